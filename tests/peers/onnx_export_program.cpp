// SPDX-License-Identifier: Apache-2.0
// Exports ONNX models with inputs and outputs for tests/peers/onnx_export.
//   onnx_export_program rows OUT OPSET   a model per row of the op tests
//   onnx_export_program models OUT       a model per family, at full size
//   onnx_export_program training OUT     20 steps of the conv net of the README, as one model
// Each is NAME.onnx with NAME.case.safetensors (in.X, out.Y); standard output lists
// "NAME <tab> what it is <tab> random or exact <tab> ops of our own".
#include <fmt/ranges.h>

#include "bench/models.h"
#include "tandem/models/pretrained.h"
#include "tandem/models/registry.h"
#include "tandem/models/vision/unet.h"
#include "tandem/onnx/export.h"
#include "tandem/tandem.h"
#include "tests/ops/row_driver.h"

using namespace tandem;
using onnx::OnnxExportOptions;

namespace {

using Function = FunctionRef<std::vector<Tensor>(std::span<const Tensor>)>;

void write_case(const std::string& out, const std::string& name, const std::string& what,
                Function f, const std::vector<Tensor>& x, const OnnxExportOptions& o) {
  onnx::OnnxExportReport r;
  try {
    r = onnx::export_onnx_function(f, x, out + "/" + name + ".onnx", o);
  } catch (const Error& e) {
    fmt::print("-\t{}\t{}\t\n", what, e.message());
    return;
  }
  StateDict all;
  const auto named = [](const std::vector<std::string>& given, const char* letter, size_t n,
                        size_t i) {
    return !given.empty() ? given[i] : n == 1 ? letter : letter + std::to_string(i);
  };
  for (size_t i = 0; i < x.size(); ++i)
    all["in." + named(o.input_names, "x", x.size(), i)] = clone(x[i]);
  const std::vector<Tensor> y = f(x);
  for (size_t i = 0; i < y.size(); ++i)
    all["out." + named(o.output_names, "y", y.size(), i)] = clone(y[i]);
  save(all, out + "/" + name + ".case.safetensors");
  fmt::print("{}\t{}\t{}\t{}\n", name, what, r.random ? "random" : "exact",
             fmt::join(r.custom_ops, " "));
}

int write_rows(const std::string& out, int opset) {
  int n = 0;
  for (const rows::Row& row : rows::all_rows()) {
    std::vector<rows::Arg> args = rows::make_args(row, 5, DType::f32);
    if (row.op == "searchsorted") args[0].tensor = sort(args[0].tensor, -1).first;
    if (row.op == "nms") {
      const Tensor &b = args[0].tensor, low = b.narrow(1, 0, 2);
      args[0].tensor = cat({low, low + abs(b.narrow(1, 2, 2)) + 0.5}, 1);
    }
    if (row.op == "roi_align") {
      const Tensor low = abs(args[2].tensor.narrow(1, 0, 2));
      args[2].tensor = cat({low, low + abs(args[2].tensor.narrow(1, 2, 2)) + 0.5}, 1);
    }
    const auto f = [&](std::span<const Tensor> x) {
      return rows::call_row(row, rows::with_tensors(args, x), 5);
    };
    OnnxExportOptions o;
    o.opset = opset;
    o.external_data = false;
    write_case(out, fmt::format("row{:04}", n++), row.op + "(" + row.in + ")", f,
               rows::tensors_of(args), o);
  }
  return 0;
}

void write_net(const std::string& out, const std::string& name, nn::Module& net, const Tensor& x) {
  net.eval();
  const auto f = [&](std::span<const Tensor> in) {
    NoGradGuard no_grad;
    return std::vector<Tensor>{net(in[0])};
  };
  OnnxExportOptions o;
  o.dynamic = {{0, "batch"}};
  o.state = net.state_dict();
  write_case(out, name, name, f, {x}, o);
}

void write_folder(const std::string& out, const std::string& name, const std::string& config,
                  std::vector<std::pair<std::string, Tensor>> in) {
  const auto model = models::from_config(models::ModelConfig::from_json(config));
  model->module().eval();
  OnnxExportOptions o;
  std::vector<Tensor> x;
  for (auto& [key, t] : in) {
    o.input_names.push_back(key);
    o.dynamic.emplace_back(static_cast<int64_t>(x.size()), 0, "batch");
    if (key != "pixel_values") o.dynamic.emplace_back(static_cast<int64_t>(x.size()), 1, "length");
    x.push_back(t);
  }
  o.output_names = model->output_names();
  o.state = model->module().state_dict();
  const auto f = [&](std::span<const Tensor> in_) {
    NoGradGuard no_grad;
    models::ModelInputs all;
    for (size_t i = 0; i < in_.size(); ++i) all.at(o.input_names[i]) = in_[i];
    return model->run(all);
  };
  write_case(out, name, name, f, x, o);
}

int write_models(const std::string& out) {
  manual_seed(3);
  for (const char* name :
       {"resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "vgg11_bn",
        "densenet121", "squeezenet1_1", "shufflenet_v2_x1_0", "convnext_tiny", "vit_b_16"}) {
    nn::AnyModule net = models::make(name);
    // Fresh batch norms shrink or blow up deep nets: use statistics like those after training.
    net.train();
    NoGradGuard no_grad;
    if (std::string(name) != "vit_b_16" && std::string(name) != "convnext_tiny")
      for (int i = 0; i < 20; ++i) net(randn({2, 3, 128, 128}));
    write_net(out, name, net, randn({1, 3, 224, 224}));
  }
  models::UNet unet({.base = 32});
  write_net(out, "unet", unet, randn({1, 3, 128, 128}));
  const Tensor ids = randint(0, 90, {2, 12}), mask = ones({2, 12}, DType::i64);
  const std::string sizes =
      R"("vocab_size":99,"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,)"
      R"("intermediate_size":128,"max_position_embeddings":64)";
  write_folder(out, "bert",
               "{\"model_type\":\"bert\",\"architectures\":[\"BertForMaskedLM\"]," + sizes +
                   ",\"type_vocab_size\":2}",
               {{"input_ids", ids}, {"attention_mask", mask}});
  write_folder(out, "distilbert",
               R"({"model_type":"distilbert","architectures":["DistilBertForMaskedLM"],)"
               R"("vocab_size":99,"dim":64,"n_layers":2,"n_heads":4,"hidden_dim":128,)"
               R"("max_position_embeddings":64})",
               {{"input_ids", ids}, {"attention_mask", mask}});
  write_folder(out, "gpt2",
               R"({"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"vocab_size":99,)"
               R"("n_embd":64,"n_layer":2,"n_head":4,"n_positions":64})",
               {{"input_ids", ids}, {"attention_mask", mask}});
  write_folder(out, "llama",
               "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"]," + sizes +
                   ",\"num_key_value_heads\":2}",
               {{"input_ids", ids}, {"attention_mask", mask}});
  write_folder(out, "t5",
               R"({"model_type":"t5","architectures":["T5ForConditionalGeneration"],)"
               R"("vocab_size":99,"d_model":64,"d_kv":16,"d_ff":128,"num_layers":2,"num_heads":4})",
               {{"input_ids", ids}, {"attention_mask", mask}, {"decoder_input_ids", ids}});
  nn::LSTM lstm(16, 32, {.num_layers = 2, .batch_first = true, .bidirectional = true});
  nn::GRU gru(16, 32, {.num_layers = 2});
  nn::RNN rnn(16, 32);
  lstm.named_parameters();
  const auto f = [&](std::span<const Tensor> x) {
    NoGradGuard no_grad;
    return std::vector<Tensor>{lstm.forward(x[0]).y, gru.forward(x[0]).y, rnn.forward(x[0]).y};
  };
  write_case(out, "recurrent", "LSTM, GRU, RNN", f, {randn({5, 7, 16})}, {});
  return 0;
}

int write_training(const std::string& out) {
  manual_seed(0);
  bench::Conv net;
  net.named_parameters();
  optim::AdamW opt(net.parameters(), {.lr = 1e-3});
  const auto step = [&](const Tensor& x, const Tensor& y) {
    opt.zero_grad();
    Tensor loss = cross_entropy(net.forward(x), y);
    loss.backward();
    optim::clip_grad_norm_(net.parameters(), 1.0);
    opt.step();
    return loss;
  };
  StateDict all;
  // Ten patterns and noise: something learnable.
  const Tensor patterns = randn({10, 1, 28, 28});
  for (int k = 0; k < 20; ++k) {
    const Tensor y = randint(0, 10, {32});
    const Tensor x = index_select(patterns, 0, y) + randn({32, 1, 28, 28});
    all["x" + std::to_string(k)] = x;
    all["y" + std::to_string(k)] = y;
  }
  const auto r = onnx::export_onnx(
      step, std::tuple(all.at("x0"), all.at("y0")), out + "/training.onnx",
      {.input_names = {"images", "labels"}, .output_names = {"loss"}, .state = net.state_dict()});
  std::vector<float> losses;
  for (int k = 0; k < 20; ++k)
    losses.push_back(
        step(all.at("x" + std::to_string(k)), all.at("y" + std::to_string(k))).item<float>());
  all["losses"] = tensor(losses);
  for (const auto& [name, t] : net.state_dict()) all["last." + name] = t;
  save(all, out + "/training.case.safetensors");
  fmt::print("{}\n", r.to_string());
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  init();
  const std::string what = argc > 2 ? argv[1] : "";
  if (what == "rows" && argc > 3) return write_rows(argv[2], std::atoi(argv[3]));
  if (what == "models") return write_models(argv[2]);
  if (what == "training") return write_training(argv[2]);
  fmt::print(stderr, "onnx_export_program rows OUT OPSET | models OUT | training OUT\n");
  return 2;
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
