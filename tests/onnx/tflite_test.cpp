// SPDX-License-Identifier: Apache-2.0
// .tflite files written here, against the ops that they mean. tests/peers/tflite compares real ones
// with TFLite's own interpreter.
#include "tandem/onnx/tflite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tandem/compile/compile.h"
#include "tandem/init.h"
#include "tandem/nn/nn.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/onnx/onnx.h"
#include "tandem/onnx/stepper.h"
#include "tandem/onnx/tensorflow.h"
#include "tandem/onnx/tflite_export.h"
#include "tandem/ops/ops.h"
#include "tandem/ops/pointwise/quantize.h"
#include "tests/onnx/tflite_builder.h"
#include "tests/onnx/written_nets.h"
#include "tests/support/errors.h"

namespace tandem::onnx {
namespace {

class TfliteTest : public testing::Test {
 protected:
  void SetUp() override {
    init();
    path_ = std::filesystem::temp_directory_path() / "tandem_tflite_test.tflite";
  }
  void TearDown() override { std::filesystem::remove(path_); }
  OnnxModel load(const std::string& bytes, const std::string& signature = "") {
    write_file(path_, bytes);
    return OnnxModel::load(path_, {.signature = signature});
  }
  /// What loading says.
  std::string refusal(const std::string& bytes, ErrorKind kind) {
    try {
      load(bytes);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), kind) << e.what();
      return e.what();
    }
    return "";
  }
  std::string path_;
};

constexpr char kDetectionOptions[] =
    "\155\141\170\137\144\145\164\145\143\164\151\157\156\163\000\156\155\163\137\151\157\165"
    "\137\164\150\162\145\163\150\157\154\144\000\156\155\163\137\163\143\157\162\145\137\164"
    "\150\162\145\163\150\157\154\144\000\156\165\155\137\143\154\141\163\163\145\163\000\004"
    "\102\064\043\020\000\000\006\000\000\000\000\000\000\000\001\000\000\000\000\000\000\000"
    "\004\000\000\000\000\000\000\000\003\000\000\000\000\000\000\000\000\000\000\000\000\000"
    "\340\077\232\231\231\231\231\231\271\077\002\000\000\000\000\000\000\000\007\017\017\007"
    "\044\047\001";

TEST_F(TfliteTest, NetworkIsWhatItsOpsMean) {
  const OnnxModel net = load(tflite_network());
  ASSERT_EQ(net.inputs().size(), 1u);
  EXPECT_EQ(net.inputs()[0].name, "image");
  EXPECT_EQ(net.outputs()[0].name, "shares");
  EXPECT_EQ(net.inputs()[0].type.dims, (std::vector<int64_t>{1, 5, 5, 2}));
  const Tensor x = tflite_pattern({1, 5, 5, 2}) * 0.5, b = tflite_pattern({3});
  // Stride 2 over five pixels: one pixel of padding on either side.
  Tensor y = relu(conv2d(x.permute({0, 3, 1, 2}),
                         tflite_pattern({3, 3, 3, 2}).permute({0, 3, 1, 2}), b, {2}, {1}));
  // Two by two: padding comes last.
  y = relu6(conv2d(pad(y, {0, 1, 0, 1}), tflite_pattern({1, 2, 2, 3}).permute({3, 0, 1, 2}), b, {1},
                   {0}, {1}, 3));
  y = max_pool2d(y, {2}, {1}).permute({0, 2, 3, 1}).reshape({1, 12});
  const Tensor want = softmax(matmul(y, tflite_pattern({4, 12}).transpose(0, 1)), -1);
  const Tensor got = net({x})[0];
  ASSERT_EQ(got.shape(), want.shape());
  EXPECT_LT((got - want).abs().max().item<float>(), 1e-6f);
  auto f = compile([&](const Tensor& in) { return net({in})[0]; });
  EXPECT_LT((f(x) - want).abs().max().item<float>(), 1e-6f);
}

TEST_F(TfliteTest, BranchesAndVariables) {
  const OnnxModel net = load(tflite_branches());
  ASSERT_EQ(net.states().size(), 1u);
  OnnxStepper step(net);
  const Tensor large = tensor({2.0f, 3.0f}), small = tensor({-1.0f, 0.5f});
  const auto first = step({large}), second = step({small});
  EXPECT_TRUE(equal(first[0], tensor({4.0f, 9.0f})));
  EXPECT_TRUE(equal(first[1], tensor({14.0f, 29.0f})));
  EXPECT_TRUE(equal(second[0], tensor({1.0f, -0.5f})));
  EXPECT_TRUE(equal(second[1], tensor({15.0f, 28.5f})));
}

// What each filter remembers, over three steps.
TEST_F(TfliteTest, MemoryOfFilters) {
  TfliteFile f;
  const int x = f.tensor("x", TfliteFile::f32, {1, 2});
  const int w = f.constant<float>("w", TfliteFile::f32, {2, 2}, {1, 0, 0, 2});
  const int t = f.constant<float>("t", TfliteFile::f32, {2, 2}, {0.5f, 1, -1, 1});
  const int memory = f.tensor("memory", TfliteFile::f32, {1, 4}),
            y = f.tensor("y", TfliteFile::f32, {1, 1});
  f.variable(memory);
  io::FlatWriter rank;
  rank.add<int32_t>(0, 2);
  f.op(27, {x, w, t, -1, memory}, {y}, rank);
  f.graph("main", {x}, {y});
  OnnxStepper step(load(f.bytes()));
  // Filter 0: half of the step before and all of this one. Filter 1: twice the difference.
  const float in[3][2] = {{1, 1}, {2, 4}, {0, 5}}, want[3] = {1 + 2, 2.5f + 6, 1 + 2};
  for (int k = 0; k < 3; ++k)
    EXPECT_FLOAT_EQ(step({tensor({in[k][0], in[k][1]}).reshape({1, 2})})[0].item<float>(), want[k]);
}

// One unit, h = relu(2 x - h before + 1), in both directions; the states stay from call to call.
TEST_F(TfliteTest, RecurrentNetsRemember) {
  for (const bool both : {false, true}) {
    OnnxStepper step(load(tflite_recurrent(both)));
    const Tensor v = tensor({1.0f, 0.0f, 3.0f}).reshape({1, 3, 1});
    EXPECT_EQ(step({v})[0].to_vector<float>(), (std::vector<float>{3, 0, 7}));
    const std::vector<Tensor> second = step({v});
    EXPECT_EQ(second[0].to_vector<float>(), (std::vector<float>{0, 1, 6}));
    // Backwards: 7, 0, 3 in the first call, which leaves 3 behind.
    if (both) {
      EXPECT_EQ(second[1].to_vector<float>(), (std::vector<float>{3, 0, 4}));
    }
  }
}

TEST_F(TfliteTest, SignaturesChooseSubgraphs) {
  TfliteFile f;
  for (const int code : {92, 59}) {
    f.tensor("a", TfliteFile::f32, {2});
    f.tensor("b", TfliteFile::f32, {2});
    f.op(code, {0}, {1});
    f.graph("g", {0}, {1});
  }
  f.signature("square", {{"x", 0}}, {{"y", 1}}, 0);
  f.signature("turn", {{"x", 0}}, {{"z", 1}}, 1);
  const Tensor x = tensor({2.0f, -3.0f});
  EXPECT_TRUE(equal(load(f.bytes())({x})[0], tensor({4.0f, 9.0f})));
  const OnnxModel turn = load(f.bytes(), "turn");
  EXPECT_TRUE(equal(turn({x})[0], tensor({-2.0f, 3.0f})));
  EXPECT_EQ(turn.outputs()[0].name, "z");
  EXPECT_EQ(tensorflow_signatures(path_), (std::vector<std::string>{"square", "turn"}));
  try {
    load(f.bytes(), "other");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("'square', 'turn'"), std::string::npos) << e.what();
  }
}

// Codes of 8 and 16 bits as weights of numbers; op codes beyond a byte.
TEST_F(TfliteTest, StoredWeightsBecomeNumbers) {
  TfliteFile f;
  const int x = f.tensor("x", TfliteFile::f32, {2});
  const int half = f.constant<uint16_t>("half", TfliteFile::f16, {2}, {0x3c00, 0xc000});  // 1, -2
  const int wide = f.tensor("wide", TfliteFile::f32, {2}), y = f.tensor("y", TfliteFile::f32, {2});
  const int codes = f.constant<int8_t>("codes", TfliteFile::i8, {2}, {3, -5}, {0.5f}, {1});
  const int real = f.tensor("real", TfliteFile::f32, {2}), z = f.tensor("z", TfliteFile::f32, {2});
  const int g = f.tensor("g", TfliteFile::f32, {2});
  f.op(6, {half}, {wide});
  f.op(18, {x, wide}, {y}, TfliteFile::activation(0));
  f.op(6, {codes}, {real});
  f.op(0, {y, real}, {z}, TfliteFile::activation(0));
  f.op(150, {z}, {g});
  f.graph("main", {x}, {g});
  const OnnxModel net = load(f.bytes());
  const Tensor want = gelu(tensor({3.0f * 1 + 1.0f, 4.0f * -2 - 3.0f}));
  EXPECT_LT((net({tensor({3.0f, 4.0f})})[0] - want).abs().max().item<float>(), 1e-6f);
}

// What the reference kernels of TFLite (ai-edge-litert 2.3.0) give for the same file.
TEST_F(TfliteTest, CodesAreThoseOfTheReferenceKernels) {
  const std::vector<std::pair<std::string, std::vector<int32_t>>> expected = {
      {"y", {127, 4, 35, 4, 4,  4, 4,  127, 4, 117, 4, 47,  36, 118,
             4,   4, 4,  4, 70, 4, 53, 8,   4, 4,   4, 127, 4}},
      {"z", {-20, -20, -20, 2,   -20, -20, -19, -20, -20, -20, -17, -20, -20, -20,
             -20, -19, -20, -20, -20, -20, -20, -20, -16, -20, -19, -20, -20}},
      {"a", {67, 5, 21, 20, 5,  5, 6,  67, 5, 62, 7, 27, 21, 62,
             5,  6, 5,  5,  38, 5, 30, 7,  8, 5,  6, 67, 5}},
      {"p", {43, 20, 15, 13, 35, 5, 32, 21, 17, 10, 36, 5}},
      {"r", {-72, 8, 19, -31}},
      {"s", {-128, -119, 119, -128}}};
  const OnnxModel net = load(tflite_codes());
  const Tensor x = (remainder(arange(50) * 53, 256) - 128).to(DType::i8).reshape({1, 5, 5, 2});
  const std::vector<Tensor> got = net({x});
  ASSERT_EQ(got.size(), expected.size());
  auto f = compile([&](const Tensor& in) { return net({in})[5]; });
  EXPECT_TRUE(equal(f(x), got[5]));
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(net.outputs()[i].name, expected[i].first);
    EXPECT_EQ(got[i].dtype(), DType::i8);
    EXPECT_EQ(got[i].to(DType::i32).reshape({-1}).to_vector<int32_t>(), expected[i].second)
        << expected[i].first;
  }
}

// Halves: products with factors are rounded twice, sums and matrices once, away from zero.
TEST_F(TfliteTest, HalvesAreRoundedAsTheKernelsDo) {
  TfliteFile f;
  const int x = f.tensor("x", TfliteFile::i8, {7, 1}, {0.25f}, {0});
  const int other = f.tensor("other", TfliteFile::i8, {7, 1}, {1.0f}, {0});
  const int w = f.constant<int8_t>("w", TfliteFile::i8, {1, 1}, {1}, {1.0f}, {0});
  const int y = f.tensor("y", TfliteFile::i8, {7, 1}, {1.0f}, {0});
  const int up = f.tensor("up", TfliteFile::i8, {7, 1}, {1.0f}, {0});
  f.op(114, {x}, {other});
  f.op(9, {x, w, -1}, {y}, TfliteFile::activation(0));
  f.op(98, {x}, {up}, TfliteFile::number(0.5f));
  f.graph("main", {x}, {other, y, up});
  const std::vector<Tensor> got =
      load(f.bytes())({tensor({-10, -6, -2, -1, 1, 2, 6}).to(DType::i8).reshape({7, 1})});
  const auto numbers = [&](size_t i) {
    return got[i].to(DType::i32).reshape({-1}).to_vector<int32_t>();
  };
  EXPECT_EQ(numbers(0), (std::vector<int32_t>{-3, -2, -1, 0, 1, 1, 2}));
  EXPECT_EQ(numbers(1), (std::vector<int32_t>{-3, -2, -1, 0, 0, 1, 2}));
  EXPECT_EQ(numbers(2), (std::vector<int32_t>{-1, -1, 0, 0, 1, 1, 2}));
}

// Codes of any scale: beyond the curve's last sample there is nothing but its ends.
TEST_F(TfliteTest, CurvesOfHugeScales) {
  for (const float scale : {1e5f, 1e12f, 1e30f}) {
    TfliteFile f;
    const int x = f.tensor("x", TfliteFile::i16, {4}, {scale}, {0});
    const int y = f.tensor("y", TfliteFile::i16, {4}, {0x1p-15f}, {0});
    const int z = f.tensor("z", TfliteFile::i16, {4}, {0x1p-15f}, {0});
    f.op(14, {x}, {y});
    f.op(28, {x}, {z});
    f.graph("main", {x}, {y, z});
    const std::vector<Tensor> got =
        load(f.bytes())({tensor({-32768, -1, 0, 32767}).to(DType::i16)});
    const auto codes = [&](size_t i) { return got.at(i).to(DType::i32).to_vector<int32_t>(); };
    EXPECT_EQ(codes(0), (std::vector<int32_t>{1, 1, 16384, 32767})) << scale;
    EXPECT_EQ(codes(1), (std::vector<int32_t>{-32767, -32767, 0, 32767})) << scale;
  }
}

TEST_F(TfliteTest, UnknownOpsAreNamedWithVersionAndSubgraph) {
  TfliteFile f;
  const int x = f.tensor("x", TfliteFile::f32, {2}), y = f.tensor("y", TfliteFile::f32, {2});
  f.op(32, {x}, {y}, {}, "Landmarks", 2);
  f.op(210, {x}, {y}, {}, "", 4);
  f.graph("main", {x}, {y});
  const std::string text = refusal(f.bytes(), ErrorKind::Unsupported);
  EXPECT_NE(text.find("1 custom op 'Landmarks' (version 2, subgraph 'main')"), std::string::npos)
      << text;
  EXPECT_NE(text.find("1 operator 210 (version 4, subgraph 'main')"), std::string::npos) << text;
}

TEST_F(TfliteTest, BrokenFilesAreRefused) {
  const std::string good = tflite_network();
  for (size_t n = 8; n < good.size(); n += 5) {
    // Whatever is cut off is either missed, or was padding.
    try {
      load(good.substr(0, n));
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Format) << n << ": " << e.what();
    }
  }
  TfliteFile cycle;
  const int x = cycle.tensor("x", TfliteFile::f32, {2}),
            y = cycle.tensor("y", TfliteFile::f32, {2});
  cycle.op(31, {x}, {y}, TfliteFile::whole({0}));
  cycle.graph("main", {x}, {y});
  EXPECT_NE(refusal(cycle.bytes(), ErrorKind::Format).find("call each other"), std::string::npos);
  TfliteFile late;
  late.tensor("x", TfliteFile::f32, {2});
  late.tensor("y", TfliteFile::f32, {2});
  late.op(92, {1}, {0});
  late.graph("main", {}, {0});
  EXPECT_NE(refusal(late.bytes(), ErrorKind::Format).find("never computed"), std::string::npos);
  TfliteFile cut;
  cut.constant<float>("w", TfliteFile::f32, {3}, {1, 2});
  cut.tensor("y", TfliteFile::f32, {3});
  cut.op(92, {0}, {1});
  cut.graph("main", {}, {1});
  EXPECT_NE(refusal(cut.bytes(), ErrorKind::Format).find("needs 12 bytes, 8 are there"),
            std::string::npos);
  for (const int code : {0, 2}) {  // no code of the result is 0.5: of a sum, and of what is moved
    TfliteFile flat;
    flat.tensor("x", TfliteFile::u8, {3}, {0.5f}, {0});
    flat.tensor("y", TfliteFile::u8, {3}, {0.0f}, {0});
    flat.tensor("z", TfliteFile::u8, {code == 0 ? 3 : 6}, {0.0f}, {0});
    io::FlatWriter options = TfliteFile::activation(3);
    if (code == 2) {
      options = TfliteFile::whole({0});
      options.add<int8_t>(1, 3);
    }
    flat.op(code, code == 0 ? std::vector<int32_t>{0, 0} : std::vector<int32_t>{1, 1}, {2},
            options);
    flat.graph("main", {code == 0 ? 0 : 1}, {2});
    EXPECT_NE(refusal(flat.bytes(), ErrorKind::Format).find("tensor 'z' has the scale 0"),
              std::string::npos);
  }
  EXPECT_NE(refusal(late.bytes(4), ErrorKind::Format).find("version is 4"), std::string::npos);
}

// Two boxes that overlap and one apart, of two classes behind a background.
TEST_F(TfliteTest, Detections) {
  TfliteFile f;
  const int boxes = f.tensor("boxes", TfliteFile::f32, {1, 3, 4});
  const int scores = f.tensor("scores", TfliteFile::f32, {1, 3, 3});
  const int anchors = f.constant<float>(
      "anchors", TfliteFile::f32, {3, 4},
      {0.25f, 0.25f, 0.5f, 0.5f, 0.25f, 0.3f, 0.5f, 0.5f, 0.75f, 0.75f, 0.5f, 0.5f});
  const int corners = f.tensor("corners", TfliteFile::f32, {1, 3, 4});
  const int classes = f.tensor("classes", TfliteFile::f32, {1, 3});
  const int best = f.tensor("best", TfliteFile::f32, {1, 3}),
            count = f.tensor("count", TfliteFile::f32, {1});
  // {"max_detections": 3, "nms_iou_threshold": 0.5, "nms_score_threshold": 0.1, "num_classes": 2}
  // as the package flatbuffers writes it.
  const std::string options(kDetectionOptions, sizeof kDetectionOptions - 1);
  f.op(32, {boxes, scores, anchors}, {corners, classes, best, count}, {},
       "TFLite_Detection_PostProcess", 1, options);
  f.graph("main", {boxes, scores}, {corners, classes, best, count});
  const OnnxModel net = load(f.bytes());
  const std::vector<Tensor> in{
      zeros({1, 3, 4}),
      tensor({0.0f, 0.1f, 0.8f, 0.0f, 0.9f, 0.2f, 0.9f, 0.3f, 0.05f}).reshape({1, 3, 3})};
  const std::vector<Tensor> got = net(in);
  EXPECT_TRUE(equal(got[1], tensor({{0.0f, 0.0f, 0.0f}})));
  EXPECT_TRUE(equal(got[2], tensor({{0.9f, 0.3f, 0.0f}})));
  EXPECT_TRUE(equal(got[3], tensor({2.0f})));
  const Tensor want =
      tensor({{0.0f, 0.05f, 0.5f, 0.55f}, {0.5f, 0.5f, 1.0f, 1.0f}, {0.0f, 0.0f, 0.0f, 0.0f}});
  EXPECT_LT((got[0].squeeze(0) - want).abs().max().item<float>(), 1e-6f);
  auto detect = compile([&](const Tensor& a, const Tensor& b) { return net({a, b})[0]; });
  EXPECT_TRUE(equal(detect(in[0], in[1]), got[0]));
}

// What is written is read back by the reader, which knows nothing of the writer. The largest error
// is that of export_tflite() itself.
TEST_F(TfliteTest, ExportedNetsReadBack) {
  nn::Sequential net = written_image_net();
  const Tensor x = randn({1, 3, 17, 17});
  const auto report = export_tflite(net, x, path_, {.input_names = {"image"}});
  EXPECT_LT(report.relative_error, 1e-5);
  const OnnxModel back = OnnxModel::load(path_);
  EXPECT_EQ(back.inputs()[0].name, "image");
  size_t transposes = 0, convolutions = 0, norms = 0;
  for (const OnnxNode& n : back.proto().graph.nodes) {
    convolutions += n.op == "Conv";
    norms += n.op == "Mul" || n.op == "Sqrt";
    transposes += n.op == "Transpose" && n.domain == kOnnxTf;
  }
  EXPECT_EQ(convolutions, 3u);
  EXPECT_EQ(norms, 0u);       // it is in the convolution before
  EXPECT_EQ(transposes, 2u);  // the image on its way in, the features before they are flattened
}

TEST_F(TfliteTest, ExportedFunctionsReadBack) {
  each_written_function([&](auto f, const Tensor& in) {
    const auto report = export_tflite(f, in, path_);
    EXPECT_LT(report.relative_error, 1e-5) << report.to_string();
  });
  const Tensor m = tflite_pattern({3, 5, 8});
  try {
    export_tflite([](const Tensor& v) { return acosh(asin(v)); }, m, path_);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Unsupported);
    EXPECT_NE(std::string(e.what()).find("1 Acosh, 1 Asin"), std::string::npos) << e.what();
  }
}

// Between DequantizeLinear and QuantizeLinear layers become operators of codes.
TEST_F(TfliteTest, ExportedQuantisedNetsWorkOnCodes) {
  const Tensor x = tflite_pattern({1, 4, 6, 6});
  const auto report = export_tflite(written_code_net, x, path_);
  EXPECT_LE(report.largest_error, 0.0501);  // a code of the result
  const OnnxModel back = OnnxModel::load(path_);
  std::map<std::string, int> ops;
  for (const OnnxNode& n : back.proto().graph.nodes)
    if (n.domain == kOnnxTflite) ++ops[n.op];
  EXPECT_EQ(ops["Conv"], 1);
  EXPECT_EQ(ops["Add"], 1);
  EXPECT_EQ(ops["MatMul"], 1);
  EXPECT_EQ(ops["Quantize"], 1);  // the input alone
  // Whole codes, as the floats that they stand for.
  const Tensor steps = back({x})[0] / 0.05;
  EXPECT_LT((steps - round(steps)).abs().max().item<float>(), 1e-4f);
}

// Of two bounds the tighter one holds, whichever comes last.
TEST_F(TfliteTest, BoundsOfCodesAreNotWidened) {
  const auto number = [](auto v) { return constant(tensor(v)); };
  const auto rounded = [&](const Tensor& v, float scale, uint8_t zero) {
    const Tensor s = number(scale), z = constant(full(Shape(), zero, DType::u8));
    return dequantize_linear(quantize_linear(v, s, z), s, z);
  };
  const Tensor x = tflite_pattern({1, 2, 4, 4}) * 4,
               w = (remainder(arange(8) * 37, 255) - 90).to(DType::i8).reshape({4, 2, 1, 1});
  const auto layer = [&](const Tensor& v) {
    return conv2d(rounded(v, 0.05f, 100), dequantize_linear(constant(w), number(0.02f)));
  };
  const auto largest = [&](auto f) {
    const auto bounded = [&](const Tensor& v) { return rounded(f(layer(v)), 0.05f, 0); };
    EXPECT_GT(amax(layer(x), IntList{0, 1, 2, 3}, false).item<float>(), 6);
    return export_tflite(bounded, x, path_).largest_error;
  };
  constexpr double kCode = 0.0501;
  EXPECT_LE(largest([&](const Tensor& v) { return minimum(clamp(v, 0, 3), number(6.0f)); }), kCode);
  EXPECT_LE(largest([&](const Tensor& v) { return maximum(clamp(v, 1, 6), number(0.0f)); }), kCode);
  EXPECT_LE(largest([&](const Tensor& v) { return minimum(clamp(v, 0, 6), number(8.0f)); }), kCode);
  EXPECT_TRUE(has(read_file(path_), "serving_default"));
}

// The file that was there is there again; where there was none, there is none.
TEST_F(TfliteTest, AFailedExportLeavesTheFileAlone) {
  const Tensor x = tflite_pattern({3, 8});
  const auto fails = [&](const std::string& path) {
    return thrown(
        [&] {
          export_tflite([](const Tensor& v) { return v * 3; }, x, path, {.rtol = -1, .atol = 0});
        },
        ErrorKind::Value);
  };
  export_tflite([](const Tensor& v) { return v * 2; }, x, path_);
  const std::string before = read_file(path_), other = path_ + ".new";
  EXPECT_TRUE(has(fails(path_), "differs by"));
  EXPECT_EQ(read_file(path_), before);
  fails(other);
  EXPECT_FALSE(file_exists(other));
}

// docs/tensorflow.md lists what is read.
TEST_F(TfliteTest, OpsAreListedInTheDocs) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  const std::string docs = read_file(std::string(root ? root : ".") + "/docs/tensorflow.md");
  std::string list;
  for (const std::string& op : tflite_ops()) list += (list.empty() ? "" : ", ") + op;
  std::string text;  // lines of the page joined
  for (const char c : docs) text += c == '\n' ? ' ' : c;
  EXPECT_NE(text.find(list + "."), std::string::npos) << list << ".";
  list.clear();
  for (const std::string& op : tflite_exported_ops()) list += (list.empty() ? "" : ", ") + op;
  EXPECT_NE(text.find(list + "."), std::string::npos) << list << ".";
}

}  // namespace
}  // namespace tandem::onnx
