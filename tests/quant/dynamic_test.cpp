// SPDX-License-Identifier: Apache-2.0
// Linear layers whose inputs each call rounds, activations of 16 bits, weights of fewer bits: how
// close they are, and that a file holds the same function.
#include <gtest/gtest.h>

#include <map>

#include "tandem/compile/compile.h"
#include "tandem/onnx/export.h"
#include "tandem/onnx/onnx.h"
#include "tandem/ops/matmul/integer.h"
#include "tandem/ops/pointwise/quantize.h"
#include "tandem/quant/calibrate.h"
#include "tandem/tandem.h"
#include "tests/compile/helpers.h"
#include "tests/io/io_helper.h"
#include "tests/quant/network_helper.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::quant {
namespace {

// A weight [outputs, inputs] that codes of 8 bits hold exactly.
Tensor on_codes(int64_t outputs, int64_t inputs) {
  const Tensor codes = cat({full({outputs, 1}, 127), randint(-126, 127, {outputs, inputs - 1})}, 1);
  return codes.to(DType::f32) / 512.0;
}

// A convolution, which stays in floating point, and two linear layers, one without a bias.
struct Widths : testing::Test {
  Widths() {
    manual_seed(8);
    const Tensor w = on_codes(6, 18).reshape({6, 2, 3, 3}), a = on_codes(24, 96), c = randn({24}),
                 b = on_codes(5, 24).t();
    f = [=](std::span<const Tensor> x) {
      const Tensor y = relu(conv2d(x[0], w, {}, {1}, {1}));
      return std::vector<Tensor>{matmul(gelu(linear(y.flatten(1), a, c)), b)};
    };
    x = randn({3, 2, 4, 4});
  }
  Network network() const {
    return Network(f, std::vector<Spec>{Spec(DType::f32, Shape(Dim::symbol("batch"), 2, 4, 4))});
  }
  Batches data() const {
    return [this](const std::function<void(std::span<const Tensor>)>& see) { see({&x, 1}); };
  }
  Tensor want() const {
    const NoGradGuard no_grad;
    return f({&x, 1})[0];
  }
  std::map<std::string, int> exported(const Quantized& q, const std::string& file,
                                      int opset) const {
    onnx::export_onnx_function([&](std::span<const Tensor> v) { return q(v); }, {&x, 1}, file,
                               {.dynamic = {{0, "batch"}}, .opset = opset, .external_data = false});
    std::map<std::string, int> ops;
    const onnx::OnnxModel model = onnx::OnnxModel::load(file);
    for (const onnx::OnnxNode& n : model.proto().graph.nodes) ++ops[n.op];
    EXPECT_GT(decibels(q({&x, 1})[0], model({x})[0]), 60);
    return ops;
  }
  Forward f;
  Tensor x;
  TempFolder folder;
};

TEST_F(Widths, EachCallRoundsWhatLinearLayersRead) {
  QuantizeOptions options;
  options.dynamic = true;
  Network net = network();
  const Calibrated c(
      net, [](const auto&) {}, options);
  const Quantized q = c.quantised();
  EXPECT_FALSE(q.plan().is_quantised(0));
  EXPECT_TRUE(q.plan().is_quantised(1) && q.plan().is_quantised(2));
  EXPECT_GT(decibels(want(), q({&x, 1})[0]), 35);
  // Inputs a thousand times as large get steps a thousand times as large.
  const Tensor large = x * 1000.0;
  const NoGradGuard no_grad;
  EXPECT_GT(decibels(f({&large, 1})[0], q({&large, 1})[0]), 35);
  const int64_t conv = 6 * 2 * 9 * 4;
  EXPECT_EQ(q.weight_bytes(), conv + 24 * 96 + 4 * (24 + 24) + 24 * 5 + 4 * 5);
  const auto ops = exported(q, folder / "d.onnx", 18);
  EXPECT_EQ(ops.at("DynamicQuantizeLinear"), 2);
  EXPECT_EQ(ops.at("MatMulInteger"), 2);
  EXPECT_EQ(ops.count("MatMul") + ops.count("Gemm") + ops.count("QuantizeLinear"), 0u);
  auto compiled = compile([&](const Tensor& v) { return q({&v, 1})[0]; }, {.same_bits = false});
  EXPECT_GT(decibels(q({&x, 1})[0], compiled(x)), 60);
  EXPECT_EQ(test::count_ops(compiled.executable(), op::packed_integer_matmul), 2);
}

TEST_F(Widths, WordsLoseLessThanBytes) {
  double last = 0;
  for (const DType t : {DType::u8, DType::i16}) {
    QuantizeOptions options;
    options.method = Method::min_max;
    options.correct_bias = false;
    options.activations = t;
    Network net = network();
    const Quantized q = Calibrated(net, data(), options).quantised();
    const double now = decibels(want(), q({&x, 1})[0]);
    EXPECT_GT(now, last + 35);
    last = now;
    const auto ops = exported(q, folder / "w.onnx", 21);
    EXPECT_EQ(ops.at("QuantizeLinear"), static_cast<int>(q.plan().sites().size()));
    EXPECT_EQ(ops.count("Round"), 0u);
    // Before opset 21 ONNX has no such codes: the nodes of the row's body stand there.
    EXPECT_EQ(exported(q, folder / "o.onnx", 18).count("QuantizeLinear"), t == DType::u8);
    for (const Step& s : q.steps()) EXPECT_TRUE(t == DType::u8 || s.zero == 0);
  }
}

TEST_F(Widths, TwoCodesOfFourBitsLieInAByte) {
  QuantizeOptions options;
  options.weight_bits = 4;
  Network net = network();
  const Quantized q = Calibrated(net, data(), options).quantised();
  exported(q, folder / "four.onnx", 21);
  const onnx::OnnxModel model = onnx::OnnxModel::load(folder / "four.onnx");
  int64_t packed = 0;
  for (const auto& [name, value] : model.proto().graph.initializers)
    if (value.type() == onnx::OnnxType::i4) packed += value.tensor().numel() > 24;
  EXPECT_EQ(packed, 3);
  const int64_t codes = (6 * 18 + 24 * 96 + 24 * 5) / 2;
  EXPECT_EQ(q.weight_bytes(), codes + 4 * (24 + 2 * (6 + 24 + 5)));
  // The kernels of integers take them as they take those of 8 bits.
  auto compiled = compile([&](const Tensor& v) { return model({v})[0]; }, {.same_bits = false});
  EXPECT_GT(decibels(q({&x, 1})[0], compiled(x)), 40);
  EXPECT_EQ(test::count_ops(compiled.executable(), op::packed_integer_matmul), 2);
  exported(q, folder / "old.onnx", 18);
  const onnx::OnnxModel old = onnx::OnnxModel::load(folder / "old.onnx");
  for (const auto& [name, value] : old.proto().graph.initializers)
    EXPECT_NE(value.type(), onnx::OnnxType::i4) << name;
}

TEST_F(Widths, FewerBitsOfWeightsCostMore) {
  double last = 100;
  for (const int64_t bits : {8, 6, 4, 2}) {
    QuantizeOptions options;
    options.weight_bits = bits;
    options.activations = DType::i16;
    Network net = network();
    const Quantized q = Calibrated(net, data(), options).quantised();
    const double now = decibels(want(), q({&x, 1})[0]);
    EXPECT_LT(now, last - 3) << bits;
    last = now;
    const int64_t most = (int64_t{1} << (bits - 1)) - 1;
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(amax(abs(q.codes(i).weight.to(DType::i32))).item<int64_t>(), most);
  }
}

TEST_F(Widths, SaysWhatDoesNotFit) {
  Network net = network();
  QuantizeOptions options;
  options.activations = DType::i32;
  const auto refused = [&] { return error_of([&] { Calibrated(net, data(), options); }); };
  EXPECT_TRUE(has(refused(), "activations of int32 were asked for")) << refused();
  options.activations = DType::i16;
  options.dynamic = true;
  EXPECT_TRUE(has(refused(), "codes are uint8 and outputs stay")) << refused();
}

TEST(DynamicQuantize, TheRowIsOnnxsFunction) {
  struct Case {
    std::vector<double> x, codes;
    double scale, zero;
  };
  // The examples of ONNX's page of DynamicQuantizeLinear, and nothing but zeros.
  const Case cases[] = {
      {{0, 2, -3, -2.5, 1.34, 0.5}, {153, 255, 0, 26, 221, 179}, 0.0196078438, 153},
      {{-1, -2.1, -1.3, -2.5, -3.34, -4}, {191, 121, 172, 96, 42, 0}, 0.0156862754, 255},
      {{1, 2.1, 1.3, 2.5, 3.34, 4, 1.5, 2.6, 3.9, 4, 3, 2.345},
       {64, 134, 83, 159, 213, 255, 96, 166, 249, 255, 191, 149},
       0.0156862754,
       0},
      {{0, 0}, {0, 0}, 1.0 / 255, 0}};
  for (const Case& c : cases) {
    const DynamicCodes d = dynamic_quantize_linear(tensor(c.x).to(DType::f32));
    EXPECT_EQ(d.codes.to_vector<double>(), c.codes);
    EXPECT_FLOAT_EQ(d.scale.item<float>(), static_cast<float>(c.scale));
    EXPECT_EQ(d.zero.to(DType::f32).item<float>(), static_cast<float>(c.zero));
  }
  EXPECT_TRUE(has(error_of([] { dynamic_quantize_linear(zeros({0, 3})); }), "there is no range"));
}

}  // namespace
}  // namespace tandem::quant
