// SPDX-License-Identifier: Apache-2.0
// Full-integer LSTMs in .tflite files: what the reference kernels of TFLite (ai-edge-litert 2.3.0)
// give for the same files, from call to call.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tandem/compile/compile.h"
#include "tandem/init.h"
#include "tandem/onnx/onnx.h"
#include "tandem/onnx/stepper.h"
#include "tandem/onnx/tflite/fixed_point_internal.h"
#include "tandem/ops/ops.h"
#include "tests/onnx/tflite_lstm_builder.h"
#include "tests/support/errors.h"

namespace tandem::onnx {
namespace {

class TfliteLstm : public testing::Test {
 protected:
  void SetUp() override {
    init();
    path_ = std::filesystem::temp_directory_path() / "tandem_tflite_lstm_test.tflite";
  }
  void TearDown() override { std::filesystem::remove(path_); }
  OnnxModel load(const IntegerLstmFile& o) {
    write_file(path_, tflite_integer_lstm(o));
    return OnnxModel::load(path_);
  }
  std::string path_;
};

struct LstmCase {
  IntegerLstmFile file;
  std::vector<int32_t> first, second;  ///< call
};

TEST_F(TfliteLstm, CodesAreThoseOfTheReferenceKernel) {
  const std::vector<LstmCase> cases = {
      {{},
       {70, -6, 9,  89, -6, 26, 91, -6, 52, 77, -6, 65,
        15, -6, 70, 33, -6, -6, 4,  -6, -6, -7, -6, -4},
       {89, -6, 3,  92, -6, 24, 92, -6, 52, 85, -6, 65,
        0,  -6, 70, 42, -6, -6, -2, -6, -6, -8, -6, -4}},
      {{.coupled = true},
       {-6, -6, 70, -6, -6, 70, -4, -6, 70, 9,  -6, 70,
        22, -6, 70, 9,  -5, -3, 6,  -5, 51, -8, -2, 45},
       {9, -6, 70, 9, -6, 70, 11, -6, 70, 25, -6, 70, 4, -6, 70, 4, -5, -4, 3, -5, 49, -8, -2, 45}},
      {{.peepholes = true, .projected = true},
       {-128, -23, -37, -128, -68, -68, -128, -82, -77, -128, -85, -79,
        -128, -18, -31, -128, -19, -35, -128, -29, -42, -128, -17, -33},
       {-128, -48, -55, -128, -71, -70, -128, -81, -77, -128, -85, -79,
        -128, -85, -79, -128, -32, -44, -128, -30, -43, -128, -17, -33}},
      {{.coupled = true, .peepholes = true},
       {-6, -6, 70, -6, -6, 70, -4, -6, 70, 9,  -6, 70,
        22, -6, 70, 7,  -6, -3, 5,  -6, 46, -9, -4, 44},
       {9,   -6, 70, 9,   -6, 70, 11,  -6, 70, 27,  -6, 70,
        -31, -6, 70, -25, -5, -5, -14, -5, 35, -12, -4, 43}}};
  const Tensor x = (remainder(arange(40) * 53, 256) - 128).to(DType::i8).reshape({2, 4, 5});
  const auto numbers = [](const Tensor& t) {
    return t.to(DType::i32).reshape({-1}).to_vector<int32_t>();
  };
  const NoGradGuard no_grad;
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const OnnxModel net = load(cases[i].file);
    EXPECT_EQ(net({x})[0].dtype(), DType::i8);
    EXPECT_EQ(numbers(net({x})[0]), cases[i].first);
    for (const bool same_bits : {true, false}) {
      auto f = compile([&](const Tensor& in) { return net({in})[0]; }, {.same_bits = same_bits});
      EXPECT_EQ(numbers(f(x)), cases[i].first);
    }
    OnnxStepper step(load(cases[i].file));
    EXPECT_EQ(numbers(step({x})[0]), cases[i].first);
    EXPECT_EQ(numbers(step({x})[0]), cases[i].second);
  }
}

TEST_F(TfliteLstm, BrokenOnesAreNamed) {
  const std::string said =
      error_of([&] { load({.peepholes = true, .projected = true, .peephole_size = 2}); });
  EXPECT_NE(said.find("a peephole of an LSTM has another size"), said.npos) << said;
}

// The middle, the ends, and signs.
TEST(FixedPoint, SigmoidAndTanh) {
  const auto at = [](const std::vector<int64_t>& t, int64_t v) {
    return t.at(static_cast<size_t>(v - kFirstShort));
  };
  const std::vector<int64_t> sigmoid = fixed_sigmoid_table();
  EXPECT_EQ(sigmoid.size(), 65536u);
  EXPECT_EQ(at(sigmoid, 0), 16384);
  EXPECT_NEAR(at(sigmoid, 4096), 32768 / (1 + std::exp(-1.0)), 8);
  EXPECT_NEAR(at(sigmoid, kFirstShort), 32768 / (1 + std::exp(8.0)), 8);
  for (int bits = 0; bits <= 6; ++bits) {
    const std::vector<int64_t> tanh = fixed_tanh_table(bits);
    for (const int64_t v : {1, 77, 4096, 20000, 32767}) {
      EXPECT_NEAR(at(tanh, v), 32768 * std::tanh(std::ldexp(static_cast<double>(v), bits - 15)),
                  14);
      EXPECT_EQ(at(tanh, -v), -at(tanh, v));
    }
    EXPECT_EQ(at(tanh, 0), 0);
  }
}

}  // namespace
}  // namespace tandem::onnx
