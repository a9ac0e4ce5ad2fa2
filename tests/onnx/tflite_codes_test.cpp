// SPDX-License-Identifier: Apache-2.0
// Operators on codes, and those that choose boxes and look up keys: the results of TFLite's
// reference kernels (ai-edge-litert 2.3.0) for the same files. tests/peers/tflite has random ones.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tandem/compile/compile.h"
#include "tandem/init.h"
#include "tandem/onnx/onnx.h"
#include "tandem/onnx/stepper.h"
#include "tandem/ops/ops.h"
#include "tests/io/io_helper.h"
#include "tests/onnx/tflite_builder.h"

namespace tandem::onnx {
namespace {

using F = TfliteFile;

struct Codes {
  float scale = 0;
  int64_t zero = 0;
};
struct CodeCase {
  const char* name;
  int code;
  F::Type type;
  Codes in, out;  ///< `out` without a scale: of truth values
  Codes second;   ///< with a scale: there is a second input
  int axis;       ///< -1: none is there
  io::FlatWriter options;
  const char* expected;
};

io::FlatWriter keep_dims() {
  io::FlatWriter o;
  o.add<uint8_t>(0, 1);
  return o;
}
const CodeCase kCases[] = {
    {"NEG",
     59,
     F::i8,
     {0.1f, 3},
     {0.1f, 3},
     {},
     -1,
     {},
     "-128 100 57 31 17 8 3 2 1 0 -1 -4 -9 -33 -77 -127"},
    {"SQRT",
     75,
     F::i8,
     {0.05f, -128},
     {0.03f, -100},
     {},
     -1,
     {},
     "-100 -61 -38 -27 -22 -19 -17 -17 -17 -16 -16 -15 -13 -6 6 19"},
    {"RSQRT",
     76,
     F::i8,
     {0.05f, -128},
     {0.02f, -120},
     {},
     -1,
     {},
     "127 -78 -93 -97 -99 -100 -100 -100 -100 -100 -100 -101 -101 -102 -104 -106"},
    {"EXP",
     47,
     F::i8,
     {0.03f, 5},
     {0.1f, -128},
     {},
     -1,
     {},
     "-128 -128 -126 -125 -123 -121 -120 -120 -120 -119 -119 -118 -117 -105 -41 127"},
    {"LOG",
     73,
     F::i8,
     {0.05f, -30},
     {0.04f, 10},
     {},
     -1,
     {},
     "-128 -128 -128 -128 -1 12 18 18 19 20 21 23 27 39 52 62"},
    {"GELU",
     150,
     F::i8,
     {0.03f, 4},
     {0.02f, -90},
     {},
     -1,
     {},
     "-90 -90 -93 -98 -98 -96 -94 -94 -93 -93 -92 -90 -86 -55 18 94"},
    {"LEAKY_RELU",
     98,
     F::i8,
     {0.1f, -3},
     {0.07f, 9},
     {},
     -1,
     F::number(-0.3f),
     "63 51 32 21 15 11 9 10 12 13 15 19 26 60 123 127"},
    {"RELU_0_TO_1",
     152,
     F::i8,
     {0.02f, -20},
     {0.01f, -10},
     {},
     -1,
     {},
     "-10 -10 -10 -10 -4 14 24 26 28 30 32 38 48 90 90 90"},
    {"L2_NORMALIZATION",
     11,
     F::i8,
     {0.1f, 5},
     {1.0f / 128, 0},
     {},
     -1,
     F::activation(0),
     "-91 -72 -43 -25 -15 -9 -6 -5 -5 -4 -4 -1 4 25 64 108"},
    {"L2_NORMALIZATION",
     11,
     F::u8,
     {0.1f, 140},
     {1.0f / 128, 128},
     {},
     -1,
     F::activation(0),
     "39 57 84 101 110 115 118 119 116 117 118 120 125 148 189 237"},
    {"SOFTMAX",
     25,
     F::i8,
     {0.05f, 5},
     {1.0f / 256, -128},
     {},
     -1,
     F::number(1),
     "-128 -127 -123 -111 -93 -73 -58 -54 -128 -128 -128 -128 -127 -126 -109 104"},
    {"LOGISTIC",
     14,
     F::i8,
     {0.05f, 5},
     {1.0f / 256, -128},
     {},
     -1,
     {},
     "-128 -127 -117 -92 -64 -40 -25 -22 -19 -16 -13 -3 13 77 121 127"},
    {"MEAN", 40, F::i8, {0.1f, 0}, {0.1f, 0}, {}, 1, keep_dims(), "-43 31"},
    {"MEAN", 40, F::i8, {0.1f, 0}, {0.1f, 0}, {}, 0, keep_dims(), "-64 -50 -28 -13 -4 13 37 63"},
    {"MEAN", 40, F::u8, {0.1f, 130}, {0.03f, 120}, {}, 0, keep_dims(), "0 0 20 68 100 155 237 255"},
    {"SUM",
     74,
     F::u8,
     {0.1f, 130},
     {0.3f, 120},
     {},
     0,
     keep_dims(),
     "75 85 100 109 116 127 144 161"},
    {"REDUCE_PROD",
     81,
     F::i8,
     {0.05f, 3},
     {0.2f, -4},
     {},
     0,
     keep_dims(),
     "3 0 -3 -4 -5 -8 -10 -12"},
    {"SQUARED_DIFFERENCE",
     99,
     F::i8,
     {0.05f, 3},
     {0.3f, -120},
     {0.04f, -9},
     -1,
     {},
     "45 -29 41 -112 -109 -114 -119 -119 -88 -106 -54 -43 -32 -117 -85 2"},
    {"PRELU",
     54,
     F::i8,
     {0.05f, 3},
     {0.06f, -20},
     {0.02f, -9},
     -1,
     {},
     "-46 -23 -119 26 -27 -24 -21 -21 -25 -17 -24 -19 -15 5 42 83"},
    {"MAXIMUM",
     55,
     F::i8,
     {0.05f, 3},
     {0.06f, -20},
     {0.02f, -9},
     -1,
     {},
     "3 -7 90 -31 12 11 -1 1 64 0 100 4 127 33 77 127"},
    {"DIV",
     42,
     F::i8,
     {0.05f, 3},
     {0.01f, -20},
     {0.04f, -9},
     -1,
     F::activation(0),
     "-128 -128 -96 32 -128 -89 -114 -83 -27 -13 -22 -21 -14 127 127 127"},
    {"LESS", 58, F::i8, {0.05f, 3}, {}, {0.02f, -9}, -1, {}, "1 1 1 1 1 1 1 1 1 0 1 0 1 0 0 0"},
    {"FLOOR_MOD",
     95,
     F::i8,
     {0.05f, 3},
     {0.06f, -20},
     {0.02f, -9},
     -1,
     {},
     "1 -2 33 -31 7 3 0 0 63 0 1 -124 9 3 1 -3"},
    {"GELU",
     150,
     F::i16,
     {0.0002f, 0},
     {0.0003f, 0},
     {},
     -1,
     {},
     "0 0 -215 -331 -95 -21 -1 -1 -1 1 33 291 2102 8174 19999 21844"},
    {"EXP",
     47,
     F::i16,
     {0.0001f, 0},
     {0.001f, 0},
     {},
     -1,
     {},
     "38 136 406 883 971 994 1000 1000 1000 1001 1010 1081 1492 3437 20083 26486"},
    {"LOG",
     73,
     F::i16,
     {0.0002f, 0},
     {0.0003f, 0},
     {},
     -1,
     {},
     "-32768 -32768 -32768 -32768 -32768 -30782 -28827 -28796 -28666 -28145 -15776 -6206 -744 3013 "
     "5972 6267"},
    {"MEAN",
     40,
     F::i16,
     {0.01f, 0},
     {0.01f, 0},
     {},
     0,
     keep_dims(),
     "-16383 -9997 -4450 -228 1850 6141 15000 16384"},
    {"LESS", 58, F::i16, {0.05f, 0}, {}, {0.02f, 0}, -1, {}, "1 1 1 0 1 1 0 1 1 0 1 0 1 0 0 0"},
};

const std::vector<int32_t> kBytes = {-128, -100, -57, -31, -17, -8, -3, -2,
                                     -1,   0,    1,   4,   9,   33, 77, 127};
const std::vector<int32_t> kShorts = {-32768, -20000, -9000, -1234, -300, -64,   -1,    0,
                                      1,      5,      100,   777,   4000, 12345, 30000, 32767};
const std::vector<int32_t> kOthers = {3,  -7,  90,  -90,  12,  11, -1, 1,
                                      64, -64, 100, -128, 127, 5,  2,  -5};

DType dtype_of(F::Type t) { return t == F::i8 ? DType::i8 : t == F::u8 ? DType::u8 : DType::i16; }
Tensor input_of(const CodeCase& c, std::vector<int32_t> v) {
  for (int32_t& code : v) code += c.type == F::u8 ? 128 : 0;
  return tensor(v).to(dtype_of(c.type)).reshape({2, 8});
}

class TfliteCodesTest : public testing::Test {
 protected:
  void SetUp() override { init(); }
  OnnxModel load(const F& f) const {
    write_file(path_, f.bytes());
    return OnnxModel::load(path_);
  }
  const TempFolder folder_;
  const std::string path_ = folder_ / "net.tflite";
};

TEST_F(TfliteCodesTest, AreThoseOfTheReferenceKernels) {
  for (const CodeCase& c : kCases) {
    F f;
    const std::vector<int32_t> to =
        c.axis == 1 ? std::vector<int32_t>{2, 1} : std::vector<int32_t>{c.axis == 0 ? 1 : 2, 8};
    std::vector<int32_t> in = {f.tensor("x", c.type, {2, 8}, {c.in.scale}, {c.in.zero})};
    std::vector<Tensor> feeds = {input_of(c, c.type == F::i16 ? kShorts : kBytes)};
    if (c.second.scale > 0) {
      in.push_back(f.tensor("z", c.type, {2, 8}, {c.second.scale}, {c.second.zero}));
      feeds.push_back(input_of(c, kOthers));
      if (c.type == F::i16) feeds[1] = feeds[1] * 200;
    }
    const std::vector<int32_t> inputs = in;
    if (c.axis >= 0) in.push_back(f.constant<int32_t>("axis", F::i32, {1}, {c.axis}));
    const int y = c.out.scale > 0 ? f.tensor("y", c.type, to, {c.out.scale}, {c.out.zero})
                                  : f.tensor("y", F::b8, to);
    f.op(c.code, in, {y}, c.options);
    f.graph("main", inputs, {y});
    const OnnxModel net = load(f);
    const Tensor got = net(feeds)[0];
    EXPECT_EQ(got.dtype(), c.out.scale > 0 ? dtype_of(c.type) : DType::b8) << c.name;
    const auto codes = got.to(DType::i32).reshape({-1}).to_vector<int32_t>();
    EXPECT_EQ(fmt::format("{}", fmt::join(codes, " ")), c.expected)
        << c.name << " of " << to_string(dtype_of(c.type));
    auto compiled = compile([&](const std::vector<Tensor>& x) { return net(x)[0]; });
    EXPECT_TRUE(equal(compiled(feeds), got)) << c.name;
  }
}

// Halves go up.
TEST_F(TfliteCodesTest, MeansOfTwo) {
  F f;
  const int x = f.tensor("x", F::i8, {3, 2}, {0.1f}, {0}),
            y = f.tensor("y", F::i8, {3}, {0.1f}, {0});
  f.op(40, {x, f.constant<int32_t>("axis", F::i32, {1}, {1})}, {y});
  f.graph("main", {x}, {y});
  const Tensor in = tensor({-1, 0, 1, 0, -3, 0}).to(DType::i8).reshape({3, 2});
  EXPECT_EQ(load(f)({in})[0].to(DType::i32).to_vector<int32_t>(), (std::vector<int32_t>{0, 1, -1}));
}

// Filters whose memory has 16 bits, over three steps.
TEST_F(TfliteCodesTest, MemoryOfFilters) {
  F f;
  const int x = f.tensor("x", F::i8, {1, 2}, {0.03f}, {3}),
            memory = f.tensor("memory", F::i16, {1, 8}, {0.0005f}, {0}),
            w = f.constant<int8_t>("w", F::i8, {4, 2}, {50, -20, 3, 90, -77, 10, 21, 21}, {0.01f},
                                   {0}),
            t = f.constant<int16_t>("t", F::i16, {4, 2}, {500, -900, 1200, 3000, -700, 40, 5, 2500},
                                    {3e-4f}, {0}),
            b = f.constant<int32_t>("b", F::i32, {2}, {50000, -20000}, {1.5e-7f}, {0}),
            y = f.tensor("y", F::i8, {1, 2}, {0.02f}, {-4});
  f.variable(memory);
  io::FlatWriter options = TfliteFile::whole({2});
  options.add<int8_t>(1, 1);
  f.op(27, {x, w, t, b, memory}, {y}, std::move(options));
  f.graph("main", {x}, {y});
  OnnxStepper step(load(f));
  const int in[3][2] = {{100, -50}, {-128, 7}, {3, 127}},
            want[3][2] = {{-88, 5}, {12, -7}, {127, -7}};
  for (int k = 0; k < 3; ++k) {
    const Tensor got = step({tensor({in[k][0], in[k][1]}).to(DType::i8).reshape({1, 2})})[0];
    EXPECT_EQ(got.to(DType::i32).reshape({-1}).to_vector<int32_t>(),
              (std::vector<int32_t>{want[k][0], want[k][1]}))
        << k;
  }
}

// A matrix of one result, compiled: its bias and its factor follow in the same step.
TEST_F(TfliteCodesTest, MatricesOfOneResult) {
  F f;
  std::vector<int8_t> weight(32);
  for (size_t k = 0; k < weight.size(); ++k) weight[k] = static_cast<int8_t>(k * 37 % 101 - 40);
  const int x = f.tensor("x", F::i8, {1, 32}, {0.02f}, {-128}),
            w = f.constant("w", F::i8, {1, 32}, weight, {0.004f}, {0}),
            b = f.constant<int32_t>("b", F::i32, {1}, {500}),
            y = f.tensor("y", F::i8, {1, 1}, {0.064f}, {24});
  f.op(9, {x, w, b}, {y}, F::activation(0));
  f.graph("main", {x}, {y});
  const OnnxModel net = load(f);
  const Tensor in = (remainder(arange(32) * 53, 256) - 128).to(DType::i8).reshape({1, 32});
  EXPECT_EQ(net({in})[0].item<int8_t>(), 76);
  auto compiled = compile([&](const Tensor& v) { return net({v})[0]; });
  EXPECT_EQ(compiled(in).item<int8_t>(), 76);
}

// Boxes that overlap by more than half are left out; results are padded with zeros.
TEST_F(TfliteCodesTest, SuppressedBoxes) {
  for (const bool scored : {false, true}) {
    F f;
    const int boxes = f.tensor("boxes", F::f32, {4, 4}), scores = f.tensor("scores", F::f32, {4});
    const int most = f.constant<int32_t>("most", F::i32, {}, {5}),
              share = f.constant<float>("share", F::f32, {}, {0.5f}),
              least = f.constant<float>("least", F::f32, {}, {0.1f});
    std::vector<int32_t> in = {boxes, scores, most, share, least},
                         out = {f.tensor("at", F::i32, {5})};
    if (scored) {
      in.push_back(f.constant<float>("sigma", F::f32, {}, {0}));
      out.push_back(f.tensor("best", F::f32, {5}));
    }
    out.push_back(f.tensor("count", F::i32, {}));
    f.op(scored ? 121 : 120, in, out);
    f.graph("main", {boxes, scores}, out);
    const std::vector<Tensor> got =
        load(f)({tensor({0.0f, 0.0f, 1.0f, 1.0f, 0.1f, 0.0f, 1.1f, 1.0f, 2.0f, 2.0f, 3.0f, 3.0f,
                         5.0f, 5.0f, 6.0f, 6.0f})
                     .reshape({4, 4}),
                 tensor({0.6f, 0.8f, 0.7f, 0.05f})});
    EXPECT_EQ(got[0].to(DType::i32).to_vector<int32_t>(), (std::vector<int32_t>{1, 2, 0, 0, 0}));
    if (scored) {
      EXPECT_EQ(got[1].to_vector<float>(), (std::vector<float>{0.8f, 0.7f, 0, 0, 0}));
    }
    EXPECT_EQ(got.back().item<int32_t>(), 2);
  }
}
TEST_F(TfliteCodesTest, SoftSuppressionIsRefused) {
  F f;
  const int boxes = f.tensor("boxes", F::f32, {4, 4}), scores = f.tensor("scores", F::f32, {4});
  const int most = f.constant<int32_t>("most", F::i32, {}, {5}),
            share = f.constant<float>("share", F::f32, {}, {0.5f});
  const std::vector<int32_t> out = {f.tensor("at", F::i32, {5}), f.tensor("best", F::f32, {5}),
                                    f.tensor("count", F::i32, {})};
  f.op(121, {boxes, scores, most, share, share, share}, out);
  f.graph("main", {boxes, scores}, out);
  const std::string said = thrown([&] { load(f); }, ErrorKind::Unsupported);
  EXPECT_TRUE(has(said, "NON_MAX_SUPPRESSION_V5 (version 1) in subgraph 'main': soft suppression"))
      << said;
}

TEST_F(TfliteCodesTest, KeysThatAreNotThereHaveZeros) {
  F f;
  const int asked = f.tensor("asked", F::i32, {3}),
            keys = f.constant<int32_t>("keys", F::i32, {3}, {-2, 5, 9}),
            rows = f.constant<float>("rows", F::f32, {3, 2}, {1, 2, 3, 4, 5, 6});
  const int y = f.tensor("y", F::f32, {3, 2}), there = f.tensor("there", F::u8, {3});
  f.op(10, {asked, keys, rows}, {y, there});
  f.graph("main", {asked}, {y, there});
  const std::vector<Tensor> got = load(f)({tensor({9, 4, -2})});
  EXPECT_TRUE(equal(got[0], tensor({{5.0f, 6.0f}, {0.0f, 0.0f}, {1.0f, 2.0f}})));
  EXPECT_EQ(got[1].dtype(), DType::u8);
  EXPECT_EQ(got[1].to(DType::i32).to_vector<int32_t>(), (std::vector<int32_t>{1, 0, 1}));
}

}  // namespace
}  // namespace tandem::onnx
