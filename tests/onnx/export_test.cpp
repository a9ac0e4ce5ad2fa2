// SPDX-License-Identifier: Apache-2.0
// ONNX export: every op row and every family of models written, read back and compared (export does
// so itself and throws), symbolic sizes, state, names, files.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "tandem/models/pretrained.h"
#include "tandem/models/registry.h"
#include "tandem/models/text/gpt.h"
#include "tandem/models/vision/vit.h"
#include "tandem/onnx/export.h"
#include "tandem/onnx/export/write.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/onnx/onnx.h"
#include "tandem/onnx/stepper.h"
#include "tandem/tandem.h"
#include "tests/onnx/export_fixture.h"
#include "tests/ops/row_driver.h"

namespace tandem::onnx {
namespace {

class OnnxExport : public OnnxFiles {};

// ---- ops

// Rows without an ONNX equivalent: nodes of our own domain, and why.
const std::map<std::string, std::string>& own_rows() {
  static const std::string numbers = "special function: ONNX has erf alone",
                           matrices = "ONNX has no factorisation but Det",
                           draws = "ONNX draws uniform, normal and categorical numbers only",
                           boxes = "gradient or positions inside boxes: no such op";
  static const std::map<std::string, std::string> rows = {
      {"bitcast", "ONNX has BitCast from opset 26 on"},
      {"erfc", numbers},
      {"erfinv", numbers},
      {"erfcx", numbers},
      {"ndtr", numbers},
      {"log_ndtr", numbers},
      {"ndtri", numbers},
      {"i0", numbers},
      {"i1", numbers},
      {"i0e", numbers},
      {"i1e", numbers},
      {"lgamma", numbers},
      {"digamma", numbers},
      {"polygamma", numbers},
      {"zeta", numbers},
      {"gammainc", numbers},
      {"gammaincc", numbers},
      {"cholesky", matrices},
      {"solve_triangular", matrices},
      {"lu_factor", matrices},
      {"lu_permutation", matrices},
      {"ldl_factor", matrices},
      {"solve", matrices},
      {"inv", matrices},
      {"slogdet", matrices},
      {"cofactor", matrices},
      {"qr", matrices},
      {"eigh", matrices},
      {"svd", matrices},
      {"pinv", matrices},
      {"matrix_exp", matrices},
      {"sample_gamma", draws},
      {"sample_gamma_backward", draws},
      {"poisson", draws},
      {"binomial", draws},
      {"gcd", "no such op"},
      {"nextafter", "no such op"},
      {"roi_align_backward", boxes},
      {"roi_pool_indices", boxes},
      {"grid_sample_backward_input", "scatters by positions between pixels: no such op"},
      {"grid_sample", "of volumes: ONNX has it since opset 20"},
      {"ctc_loss", "no such loss"},
      {"ctc_loss_backward", "no such loss"},
  };
  return rows;
}

OnnxExportReport export_row(const rows::Row& row, const std::string& path, int opset, DType dtype) {
  std::vector<rows::Arg> args = rows::make_args(row, 5, dtype);
  // What these rows require of their arguments beyond shapes.
  if (row.op == "searchsorted") args[0].tensor = sort(args[0].tensor, -1).values;
  if (row.op == "nms") {
    const Tensor &b = args[0].tensor, low = b.narrow(1, 0, 2);
    args[0].tensor = cat({low, low + abs(b.narrow(1, 2, 2)) + 0.5}, 1);
  }
  const auto f = [&](std::span<const Tensor> x) {
    return rows::call_row(row, rows::with_tensors(args, x), 5);
  };
  OnnxExportOptions o;
  o.opset = opset;
  o.external_data = false;
  o.atol = 1e-6;
  o.rtol = 1e-4;
  return export_onnx_function(f, rows::tensors_of(args), path, o);
}

void export_rows(const std::string& path, int opset, std::set<std::string>* custom) {
  for (const rows::Row& row : rows::all_rows()) {
    SCOPED_TRACE(row.op + "(" + row.in + ")");
    if (opset < 18 &&
        (row.op == "bitwise_and" || row.op == "bitwise_or" || row.op == "bitwise_xor")) {
      EXPECT_THROW(export_row(row, path, opset, DType::f32), Error);
      continue;
    }
    try {
      const OnnxExportReport r = export_row(row, path, opset, DType::f32);
      EXPECT_EQ(r.random, find_op(row.op)->has(kRandom)) << r.to_string();
      for (const std::string& c : r.custom_ops) {
        if (custom) custom->insert(c);
        EXPECT_TRUE(opset < 18 || own_rows().count(c)) << c << " has no ONNX form, nor a reason";
      }
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

TEST_F(OnnxExport, AFailedOneLeavesWhatWasThere) {
  nn::Linear net(3, 2);
  const Tensor x = randn({1, 3});
  // No result is that near: the check of what was written fails.
  const OnnxExportOptions never = {.external_data = true, .rtol = 0, .atol = -1};
  EXPECT_NE(error_of([&] { export_onnx(net, x, path(), never); }), "no error");
  EXPECT_EQ(folder_.names(), std::vector<std::string>{});
  write_file(path(), "old model");
  write_file(path("m.safetensors"), "old weights");
  EXPECT_NE(error_of([&] { export_onnx(net, x, path(), never); }), "no error");
  EXPECT_EQ(folder_.names(), (std::vector<std::string>{"m.onnx", "m.safetensors"}));
  EXPECT_EQ(read_file(path()), "old model");
  EXPECT_EQ(read_file(path("m.safetensors")), "old weights");
  export_onnx(net, x, path(), {.external_data = true});
  EXPECT_EQ(folder_.names(), (std::vector<std::string>{"m.onnx", "m.safetensors"}));
  EXPECT_NE(read_file(path()), "old model");
}

TEST_F(OnnxExport, EveryRowGoesThereAndBack) {
  std::set<std::string> custom;
  export_rows(path(), 18, &custom);
  for (const auto& [name, why] : own_rows())
    EXPECT_TRUE(custom.count(name) || name == "lu_permutation") << name << " has an ONNX form now";
}
TEST_F(OnnxExport, EveryRowInTheOldestAndTheNewestOpset) {
  export_rows(path(), 17, nullptr);
  export_rows(path(), 22, nullptr);
}

TEST_F(OnnxExport, RowsServeAnOpOnce) {
  std::set<const OpDef*> ops;
  for (const auto& family : onnx_rows())
    for (const OnnxRow& r : family) {
      EXPECT_EQ(r.op != nullptr, r.exporter != nullptr) << r.name;
      EXPECT_TRUE(r.import || r.exporter) << r.name;
      if (r.op) {
        EXPECT_TRUE(ops.insert(r.op).second) << r.op->name << " is exported twice";
      }
    }
  EXPECT_GT(ops.size(), 100u);
}

TEST_F(OnnxExport, IntegerAndBoolArithmetic) {
  const Tensor i8 = tensor({-128.0, -3.0, 0.0, 5.0, 127.0}).to(DType::i8);
  const Tensor i64 = tensor(std::vector<int64_t>{-7, -1, 0, 3, int64_t{1} << 40});
  const Tensor b = i64 > 0;
  const auto f = [](const Tensor& x, const Tensor& y, const Tensor& b) {
    return std::vector<Tensor>{x + x,
                               x * 3,
                               floor_divide(y, 3),
                               trunc_divide(y, 3),
                               remainder(y, 4),
                               bitwise_left_shift(y, 3),
                               bitwise_right_shift(y, 1),
                               bitwise_xor(y, 5),
                               ~y,
                               logical_and(b, y > 1),
                               where(b, b, y == 0),
                               b < (y == 3),
                               relu(y),
                               y / 2,
                               x.to(float32) * 0.5,
                               y.to(DType::i32) + 1,
                               sum(b),
                               amax(x)};
  };
  const auto r = export_onnx(f, std::tuple(i8, i64, b), path());
  EXPECT_EQ(r.largest_error, 0) << r.to_string();
  EXPECT_TRUE(r.custom_ops.empty());
}

TEST_F(OnnxExport, SixteenBitFloats) {
  for (const DType t : {DType::f16, DType::bf16}) {
    const Tensor x = randn({3, 8}).to(t), w = randn({4, 8}).to(t);
    const auto f = [](const Tensor& x, const Tensor& w) {
      return softmax(silu(linear(x, w)), -1) + x.sum({1}, true) * 2.0;
    };
    export_onnx(f, std::tuple(x, w), path(), {.rtol = 1e-2});
  }
}

// ---- control flow

TEST_F(OnnxExport, ControlFlow) {
  const auto f = [](const Tensor& x, const Tensor& n) {
    const Tensor a = cond(
        x.sum() > 0.0, [&](const Tensor& v) { return v * 2.0 + n.to(float32); },
        [&](const Tensor& v) { return v - 1.0; }, x);
    const auto [steps, y] =
        while_loop([&](const std::pair<Tensor, Tensor>& s) { return s.first < n; },
                   [&](const std::pair<Tensor, Tensor>& s) {
                     return std::pair(s.first + 1, s.second * 1.5 + a);
                   },
                   std::pair(zeros({}, DType::i64), x));
    const Tensor& grown = y;
    const auto [last, all] = scan(
        [&](const Tensor& s, const Tensor& v) { return std::pair(s * 0.5 + v, s + grown.sum()); },
        zeros({3}), y, {.reverse = true});
    const auto [counted, ys] = scan(
        [](const Tensor& s, const std::vector<Tensor>&) { return std::pair(s + 1.0, s * 2.0); },
        zeros({2}), std::vector<Tensor>{}, {.reverse = true, .length = 4});
    return std::vector<Tensor>{a, steps, y, last, all, counted, ys};
  };
  const Tensor n = full({}, 5, DType::i64);
  export_onnx(f, std::tuple(randn({4, 3}) + 3.0, n), path());
  export_onnx(f, std::tuple(randn({4, 3}) - 3.0, n), path());
  const OnnxModel m = OnnxModel::load(path());
  for (const double shift : {3.0, -3.0}) {
    const Tensor x = randn({4, 3}) + shift, k = full({}, 2, DType::i64);
    const std::vector<Tensor> got = m({x, k}), want = f(x, k);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(rows::close(got[i], want[i], 1e-5)) << i << " at " << shift;
  }
}

// ---- models

TEST_F(OnnxExport, EveryFamilyOfModels) {
  struct Case {
    const char* name;
    int64_t size;
  };
  for (const Case& c : std::vector<Case>{{"resnet18", 32},
                                         {"mobilenet_v3_small", 32},
                                         {"efficientnet_b0", 32},
                                         {"densenet121", 32},
                                         {"squeezenet1_1", 48},
                                         {"shufflenet_v2_x0_5", 32}}) {
    SCOPED_TRACE(c.name);
    nn::AnyModule net = models::make(c.name, {.num_classes = 7});
    net.eval();
    const auto r =
        export_onnx(net, randn({2, 3, c.size, c.size}), path(),
                    {.dynamic = {{0, "batch"}, {2, "height"}, {3, "width"}}, .rtol = 1e-5});
    EXPECT_TRUE(r.custom_ops.empty() && !r.random) << r.to_string();
    const OnnxModel m = OnnxModel::load(path());
    EXPECT_EQ(m.inputs()[0].type.dim_names,
              (std::vector<std::string>{"batch", "", "height", "width"}));
    const Tensor x = randn({3, 3, c.size + 9, c.size});
    NoGradGuard no_grad;
    EXPECT_TRUE(rows::close(m({x})[0], net(x), 1e-5));
    // The weights alone.
    nn::AnyModule other = models::make(c.name, {.num_classes = 7});
    EXPECT_TRUE(other.load_state_dict(load(path("m.safetensors"))).ok());
  }
}

// Folders of Hugging Face: batch size and text length stay symbolic.
TEST_F(OnnxExport, EveryFamilyOfFolders) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  int families = 0;
  for (const auto& folder :
       std::filesystem::directory_iterator(std::string(root ? root : ".") + "/tests/golden/hf")) {
    SCOPED_TRACE(folder.path().filename());
    const StateDict c = load(folder.path() / "case.safetensors");
    const auto model = models::from_pretrained(folder.path());
    std::vector<std::string> names;
    std::vector<Tensor> examples;
    for (const models::ModelPort& p : model->inputs())
      if (c.contains(p.name)) {
        names.push_back(p.name);
        examples.push_back(c.at(p.name));
      }
    const auto f = [&](std::span<const Tensor> x) {
      NoGradGuard no_grad;
      models::ModelInputs in;
      for (size_t i = 0; i < x.size(); ++i) in.at(names[i]) = x[i];
      return model->run(in);
    };
    OnnxExportOptions o;
    o.input_names = names;
    o.output_names = model->output_names();
    o.state = model->module().state_dict();
    o.rtol = 1e-5;
    for (size_t i = 0; i < names.size(); ++i) {
      o.dynamic.emplace_back(static_cast<int64_t>(i), 0,
                             names[i] == "pixel_values" ? "images" : "batch");
      if (!is_floating(examples[i].dtype()))
        o.dynamic.emplace_back(static_cast<int64_t>(i), 1,
                               names[i] == "decoder_input_ids" ? "target" : "length");
    }
    try {
      const auto r = export_onnx_function(f, examples, path(), o);
      EXPECT_TRUE(r.custom_ops.empty()) << r.to_string();
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
      continue;
    }
    // Fewer rows and shorter texts.
    std::vector<Tensor> smaller;
    for (size_t i = 0; i < names.size(); ++i) {
      Tensor x = examples[i].narrow(0, 0, 1);
      if (!is_floating(x.dtype())) x = x.narrow(1, 0, x.size(1) - 1);
      smaller.push_back(x.contiguous());
    }
    const Tensor got = OnnxModel::load(path())(smaller)[0], want = f(smaller)[0];
    EXPECT_TRUE(rows::close(got, want, 1e-4));
    ++families;
  }
  EXPECT_EQ(families, 28);
}

TEST_F(OnnxExport, RecurrentLayersAndTransformer) {
  nn::LSTM lstm(5, 6, {.num_layers = 2, .batch_first = true, .bidirectional = true});
  nn::GRU gru(5, 6);
  nn::RNN rnn(5, 6);
  const Tensor x = randn({3, 4, 5});
  NoGradGuard no_grad;
  const auto all = [&](const Tensor& x) {
    return std::vector<Tensor>{lstm.forward(x).y, gru.forward(x).y, rnn.forward(x).y};
  };
  export_onnx(all, x, path());
  std::map<std::string, int> count;
  const OnnxModel m = OnnxModel::load(path());
  for (const OnnxNode& n : m.proto().graph.nodes) ++count[n.op];
  EXPECT_TRUE(count["LSTM"] == 4 && count["GRU"] == 1 && count["RNN"] == 1 && !count["Loop"]);
  nn::TransformerEncoderLayer layer(8, 2, {.dim_feedforward = 16});
  layer.eval();
  export_onnx(layer, randn({2, 5, 8}), path());
}

// ---- training

struct ConvNet : nn::Module {
  nn::Conv2d conv1{1, 4, 3}, conv2{4, 8, 3, {.bias = false}};
  nn::BatchNorm2d bn{8};
  nn::Linear fc1{200, 16}, fc2{16, 10};
  ConvNet() { TD_REGISTER(conv1, conv2, bn, fc1, fc2); }
  Tensor forward(Tensor x) {
    x = relu(conv1(x));
    x = max_pool2d(relu(bn(conv2(x))), 2);
    return fc2(relu(fc1(x.flatten(1))));
  }
};

// The whole step: forward, backward, clipping, optimizer, as a model whose state is passed out and
// in.
template <class Optimizer>
void check_training_step(const std::string& path, Optimizer make) {
  ConvNet net;
  net.named_parameters();
  auto opt = make(net);
  const auto step = [&](const Tensor& x, const Tensor& y) {
    opt.zero_grad();
    Tensor loss = cross_entropy(net.forward(x), y);
    loss.backward();
    optim::clip_grad_norm_(net.parameters(), 1.0);
    opt.step();
    return loss;
  };
  const Tensor x = randn({6, 1, 14, 14}), y = tensor(std::vector<int64_t>{1, 2, 3, 4, 5, 6});
  const StateDict before = net.state_dict();
  OnnxExportOptions o;
  o.output_names = {"loss"};
  o.state = net.state_dict();
  const auto r = export_onnx(step, std::tuple(x, y), path, o);
  EXPECT_TRUE(r.custom_ops.empty()) << r.to_string();
  EXPECT_LT(r.relative_error, 1e-5);
  for (const auto& [name, v] : before)
    EXPECT_TRUE(same_bits(v, net.state_dict().at(name))) << name << " was changed by export";
  bool weight = false, mean = false;
  for (const OnnxState& s : r.states) {
    weight |= s.input == "conv1.weight" && s.output == "conv1.weight.next";
    mean |= s.input == "bn.running_mean";
  }
  EXPECT_TRUE(weight && mean);
  // Its loss and parameters equal those of a step.
  const OnnxModel m = OnnxModel::load(path);
  const std::vector<Tensor> out = m({x, y});
  OnnxStepper steps(m), compiled(m, {.compiled = true});
  EXPECT_TRUE(rows::close(steps({x, y})[0], out[0], 0));
  EXPECT_TRUE(rows::close(compiled({x, y})[0], out[0], 1e-5));
  const Tensor loss = step(x, y);
  EXPECT_TRUE(rows::close(out[0], loss, 1e-5));
  for (size_t i = 0; i < m.outputs().size(); ++i)
    if (m.outputs()[i].name == "conv2.weight.next") {
      EXPECT_TRUE(rows::close(out[i], net.conv2.weight.value(), 1e-4));
    }
  // Fed back, they equal those of training.
  for (int k = 0; k < 4; ++k) {
    const Tensor want = step(x, y);
    EXPECT_TRUE(rows::close(steps({x, y})[0], want, 1e-4)) << k;
    EXPECT_TRUE(rows::close(compiled({x, y})[0], want, 1e-4)) << k;
  }
  EXPECT_TRUE(rows::close(steps.state("conv2.weight"), net.conv2.weight.value(), 1e-4));
  EXPECT_LT(steps({x, y})[0].item<float>(), loss.item<float>());
  steps.reset();
  EXPECT_TRUE(rows::close(steps({x, y})[0], loss, 1e-5));
}

TEST_F(OnnxExport, WholeTrainingSteps) {
  check_training_step(path(),
                      [](ConvNet& n) { return optim::AdamW(n.parameters(), {.lr = 1e-3}); });
  check_training_step(
      path(), [](ConvNet& n) { return optim::SGD(n.parameters(), {.lr = 0.1, .momentum = 0.9}); });
}

TEST_F(OnnxExport, GradientsAreOutputs) {
  nn::Linear net(3, 2);
  net.named_parameters();
  const auto f = [&](const Tensor& x) {
    Tensor loss = net(x).square().sum();
    loss.backward();
    return loss;
  };
  export_onnx(f, randn({4, 3}), path());
  EXPECT_FALSE(net.weight.grad().defined());
  std::set<std::string> names;
  const OnnxModel m = OnnxModel::load(path());
  for (const OnnxPort& p : m.outputs()) names.insert(p.name);
  EXPECT_EQ(names, (std::set<std::string>{"y", "weight.grad", "bias.grad"}));
}

TEST_F(OnnxExport, RandomStepsAreComparedByShape) {
  nn::Dropout drop(0.5);
  const auto r = export_onnx(drop, randn({64, 64}), path());
  EXPECT_TRUE(r.random && r.largest_error < 0);
  const Tensor y = OnnxModel::load(path())({ones({64, 64})})[0];
  EXPECT_NEAR(y.mean().item<float>(), 1.0, 0.1);
}

// ---- files

TEST_F(OnnxExport, FilesAreTheSameEachTime) {
  nn::Sequential net(nn::Linear(4, 8), nn::ReLU(), nn::Linear(8, 2));
  const Tensor x = randn({2, 4});
  export_onnx(net, x, path("a.onnx"), {.weights = "w.safetensors"});
  const std::string first = read_file(path("a.onnx")), weights = read_file(path("w.safetensors"));
  export_onnx(net, x, path("b.onnx"), {.weights = "w.safetensors"});
  EXPECT_EQ(first, read_file(path("b.onnx")));
  EXPECT_EQ(weights, read_file(path("w.safetensors")));
  EXPECT_LT(first.size(), 1200u) << "the weights are not in the model";
  EXPECT_EQ(folder_.names(), (std::vector<std::string>{"a.onnx", "b.onnx", "w.safetensors"}));
  // Inside the model, and rewritten from what the parser returns.
  export_onnx(net, x, path("c.onnx"), {.external_data = false});
  const std::string all = read_file(path("c.onnx"));
  EXPECT_EQ(write_onnx_model(OnnxModel::parse(all).proto()), all);
}

TEST_F(OnnxExport, TiedWeightsLieOnce) {
  struct Tied : nn::Module {
    nn::Linear a{4, 4}, b{4, 4};
    Tied() {
      b.weight = a.weight;
      TD_REGISTER(a, b);
    }
    Tensor forward(Tensor x) { return b(a(x)); }
  } net;
  export_onnx(net, randn({2, 4}), path());
  EXPECT_EQ(load(path("m.safetensors")).size(), 4u);
  EXPECT_LT(read_file(path("m.safetensors")).size(), 600u);
}

TEST_F(OnnxExport, RefusesWhatNoFileCanSay) {
  nn::Linear net(4, 2);
  const Tensor x = randn({2, 4});
  const auto fails = [&](OnnxExportOptions o, const char* text) {
    try {
      export_onnx(net, x, path(), o);
      ADD_FAILURE() << "went through, wanted: " << text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
  };
  fails({.opset = 9}, "from 17 to 22");
  fails({.input_names = {"a", "b"}}, "2 names for 1 inputs");
  fails({.input_names = {"a"}, .output_names = {"a"}}, "given twice");
  fails({.weights = "../w.safetensors"}, "in the model's folder");
  EXPECT_TRUE(folder_.names().empty());
  const Tensor outside = randn({2});
  EXPECT_THROW(export_onnx([&](const Tensor& x) { return x + outside; }, randn({2}), path()),
               Error);
}

}  // namespace
}  // namespace tandem::onnx
