// SPDX-License-Identifier: Apache-2.0
// Exports ONNX models with inputs and outputs for tests/peers/onnx_export.
//   onnx_export_program rows OUT OPSET   a model per row of the op tests
//   onnx_export_program models           the names of the models
//   onnx_export_program models OUT NAME  that one, with all sizes open that it can take: inputs and
//                                        outputs are of other sizes than those of the export
//   onnx_export_program training OUT     20 steps of the conv net of the README, as one model
// Each is NAME.onnx with NAME.case.safetensors (in.X, out.Y); standard output lists
// "NAME <tab> what it is <tab> random or exact <tab> ops of our own".
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "bench/models.h"
#include "tandem/models/pretrained.h"
#include "tandem/models/registry.h"
#include "tandem/models/text/gpt.h"
#include "tandem/onnx/export.h"
#include "tandem/tandem.h"
#include "tests/ops/row_driver.h"

using namespace tandem;
using onnx::OnnxExportOptions;

namespace {

using Function = FunctionRef<std::vector<Tensor>(std::span<const Tensor>)>;

// Exports f at `example`, and writes its results at x.
void write_case(const std::string& out, const std::string& name, const std::string& what,
                Function f, const std::vector<Tensor>& example, const std::vector<Tensor>& x,
                const OnnxExportOptions& o) {
  onnx::OnnxExportReport r;
  try {
    r = onnx::export_onnx_function(f, example, out + "/" + name + ".onnx", o);
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
    if (row.op == "searchsorted") args[0].tensor = sort(args[0].tensor, -1).values;
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
    const std::vector<Tensor> x = rows::tensors_of(args);
    write_case(out, fmt::format("row{:04}", n++), row.op + "(" + row.in + ")", f, x, x, o);
  }
  return 0;
}

using Inputs = std::vector<std::pair<std::string, Tensor>>;

void write_net(const std::string& out, const std::string& name, nn::Module& net,
               const Tensor& example, const Tensor& x, std::vector<DynamicDim> dynamic) {
  net.eval();
  const auto f = [&](std::span<const Tensor> in) {
    NoGradGuard no_grad;
    return std::vector<Tensor>{net(in[0])};
  };
  OnnxExportOptions o;
  o.dynamic = std::move(dynamic);
  o.state = net.state_dict();
  write_case(out, name, name, f, {example}, {x}, o);
}

// A net of the registry at small sizes; batch norms have statistics like those after training, as
// fresh ones shrink or blow up what goes through deep nets.
void write_registered(const std::string& out, const models::ModelInfo& info) {
  nn::AnyModule net = models::make(info.name, {.num_classes = 10});
  const int64_t channels = info.input[0], side = info.any_size ? 64 : info.input[1];
  NoGradGuard no_grad;
  for (auto& [name, p] : net.named_parameters())  // a head of zeros would answer zeros
    if (p.dim() >= 2 && abs(p.value()).amax().item<float>() == 0)
      p.assign_(randn(p.shape()) * 0.02);
  net.train();
  bool norms = false;
  for (const auto& [name, value] : net.state_dict()) norms |= name.ends_with("running_mean");
  for (int i = 0; norms && i < 20; ++i) net(randn({2, channels, side, side}));
  std::vector<DynamicDim> dynamic = {{0, "batch"}};
  if (info.any_size) dynamic.insert(dynamic.end(), {{2, "height"}, {3, "width"}});
  const int64_t more = info.any_size ? 17 : 0;
  write_net(out, info.name, net, randn({2, channels, side, side}),
            randn({3, channels, side + more, side + 2 * more}), dynamic);
}

Inputs text_inputs(int64_t n, int64_t length) {
  return {{"input_ids", randint(0, 90, {n, length})},
          {"attention_mask", ones({n, length}, DType::i64)}};
}

void write_folder(const std::string& out, const std::string& name, const std::string& config,
                  const Inputs& example, const Inputs& other) {
  const auto model = models::from_config(models::ModelConfig::from_json(config));
  model->module().eval();
  OnnxExportOptions o;
  std::vector<Tensor> x, y;
  for (size_t i = 0; i < example.size(); ++i) {
    o.input_names.push_back(example[i].first);
    o.dynamic.emplace_back(static_cast<int64_t>(i), 0, "batch");
    o.dynamic.emplace_back(static_cast<int64_t>(i), 1, "length");
    x.push_back(example[i].second);
    y.push_back(other[i].second);
  }
  o.output_names = model->output_names();
  o.state = model->module().state_dict();
  const auto f = [&](std::span<const Tensor> in_) {
    NoGradGuard no_grad;
    models::ModelInputs all;
    for (size_t i = 0; i < in_.size(); ++i) all.at(o.input_names[i]) = in_[i];
    return model->run(all);
  };
  write_case(out, name, name, f, x, y, o);
}

const std::map<std::string, std::string>& folders() {
  static const std::string sizes =
      R"("vocab_size":99,"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,)"
      R"("intermediate_size":128,"max_position_embeddings":64)";
  static const std::map<std::string, std::string> all = {
      {"bert", R"({"model_type":"bert","architectures":["BertForMaskedLM"],)" + sizes +
                   R"(,"type_vocab_size":2})"},
      {"distilbert", R"({"model_type":"distilbert","architectures":["DistilBertForMaskedLM"],)"
                     R"("vocab_size":99,"dim":64,"n_layers":2,"n_heads":4,"hidden_dim":128,)"
                     R"("max_position_embeddings":64})"},
      {"gpt2", R"({"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"vocab_size":99,)"
               R"("n_embd":64,"n_layer":2,"n_head":4,"n_positions":64})"},
      {"llama", R"({"model_type":"llama","architectures":["LlamaForCausalLM"],)" + sizes +
                    R"(,"num_key_value_heads":2})"},
      {"t5", R"({"model_type":"t5","architectures":["T5ForConditionalGeneration"],)"
             R"("vocab_size":99,"d_model":64,"d_kv":16,"d_ff":128,"num_layers":2,"num_heads":4})"}};
  return all;
}

// Sequences [n, length, 16] or ids [n, length] of any number and length.
void write_sequences(const std::string& out, const std::string& name) {
  OnnxExportOptions o;
  o.dynamic = {{0, "batch"}, {1, "length"}};
  if (name == "GPT") {
    models::GPT gpt({.vocabulary = 90, .context = 32, .layers = 2, .heads = 4, .width = 64});
    return write_net(out, name, gpt, randint(0, 90, {2, 12}), randint(0, 90, {3, 25}), o.dynamic);
  }
  const nn::LSTMOptions both = {.num_layers = 2, .batch_first = true, .bidirectional = true};
  nn::LSTMOptions projected = both;
  projected.proj_size = 8;
  nn::LSTM lstm(16, 32, both), narrow(16, 32, projected);
  nn::GRU gru(16, 32, {.num_layers = 2, .batch_first = true});
  nn::RNN rnn(16, 32, {.batch_first = true});
  lstm.named_parameters();
  const auto f = [&](std::span<const Tensor> x) {
    NoGradGuard no_grad;
    return std::vector<Tensor>{lstm.forward(x[0]).y, narrow.forward(x[0]).y, gru.forward(x[0]).y,
                               rnn.forward(x[0]).y};
  };
  write_case(out, name, name, f, {randn({5, 7, 16})}, {randn({2, 19, 16})}, o);
}

const std::vector<std::string> kSequences = {"GPT", "recurrent"};

int list_models() {
  for (const models::ModelInfo& info : models::list()) fmt::print("{}\n", info.name);
  for (const auto& [name, config] : folders()) fmt::print("{}\n", name);
  for (const std::string& name : kSequences) fmt::print("{}\n", name);
  return 0;
}

int write_model(const std::string& out, const std::string& name) {
  manual_seed(3);
  if (const auto at = folders().find(name); at != folders().end()) {
    Inputs example = text_inputs(2, 12), other = text_inputs(3, 21);
    for (Inputs* in : {&example, &other})
      if (name == "t5") in->emplace_back("decoder_input_ids", in->front().second);
    write_folder(out, name, at->second, example, other);
  } else if (std::find(kSequences.begin(), kSequences.end(), name) != kSequences.end()) {
    write_sequences(out, name);
  } else {
    write_registered(out, models::info(name));
  }
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
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "rows" && argc > 3) return write_rows(argv[2], std::atoi(argv[3]));
  if (what == "models") return argc > 3 ? write_model(argv[2], argv[3]) : list_models();
  if (what == "training" && argc > 2) return write_training(argv[2]);
  fmt::print(stderr, "onnx_export_program rows OUT OPSET | models [OUT NAME] | training OUT\n");
  return 2;
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
