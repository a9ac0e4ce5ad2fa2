// SPDX-License-Identifier: Apache-2.0
// Models of TensorFlow.js written here: read back by the reader, which knows nothing of the writer.
// tests/peers/tfjs_write runs them in TensorFlow.
#include "tandem/onnx/tfjs_export.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "tandem/base/files/folder.h"
#include "tandem/init.h"
#include "tandem/io/json.h"
#include "tandem/onnx/onnx.h"
#include "tandem/onnx/tflite/traced_internal.h"
#include "tandem/onnx/tflite_export.h"
#include "tests/io/io_helper.h"
#include "tests/onnx/tflite_builder.h"
#include "tests/onnx/written_nets.h"

namespace tandem::onnx {
namespace {

class TfJsExport : public testing::Test {
 protected:
  void SetUp() override { init(); }
  io::Json json() const { return io::parse_json(read_file(path_)); }
  /// How often each op is in the file.
  std::map<std::string, int> ops() const {
    std::map<std::string, int> out;
    const io::Json model = json();
    for (const io::Json& n : *model.find("modelTopology")->find("node")->as_array())
      ++out[io::text_of(n.find("op"))];
    return out;
  }
  std::vector<std::string> names() const { return folder_.names(); }
  const TempFolder folder_;
  const std::string path_ = folder_ / "model.json";
};

TEST_F(TfJsExport, ImageNetsAreFusedAndReadBack) {
  nn::Sequential net = written_image_net();
  const Tensor x = randn({1, 3, 17, 17});
  const auto report = export_tfjs(net, x, path_, {.input_names = {"an image"}});
  EXPECT_LT(report.relative_error, 1e-5) << report.to_string();
  std::map<std::string, int> all = ops();
  EXPECT_EQ(all["_FusedConv2D"], 2);  // with relu and relu6
  EXPECT_EQ(all["FusedDepthwiseConv2dNative"], 1);
  EXPECT_EQ(all["_FusedMatMul"], 1);
  EXPECT_EQ(all["Conv2D"], 0);
  EXPECT_EQ(all["BiasAdd"], 0);
  EXPECT_EQ(all["Relu6"], 1);  // that of the hard swish
  EXPECT_EQ(OnnxModel::load(path_).inputs()[0].name, "an image");
  const io::Json model = json();
  EXPECT_EQ(io::text_of(model.find("signature")->find("inputs")->find("an image")->find("name")),
            "an_image:0");
  EXPECT_EQ(io::text_of(model.find("format")), "graph-model");
  EXPECT_EQ(names(), (std::vector<std::string>{"group1-shard1of1.bin", "model.json"}));
  EXPECT_EQ(OnnxModel::load(folder_.path())({x})[0].shape(), (Shape{1, 5}));
}

TEST_F(TfJsExport, FunctionsReadBack) {
  const auto check = [&](auto f, const Tensor& in) {
    const auto report = export_tfjs(f, in, path_);
    EXPECT_LT(report.relative_error, 1e-5) << report.to_string();
  };
  each_written_function(check);
  const Tensor x = tflite_pattern({2, 6, 5, 5}), k = tflite_pattern({4, 3, 3, 3}) * 0.1;
  check([&](const Tensor& v) { return conv2d(v, constant(k), {}, {1}, {1}, {1}, 2); }, x);
  EXPECT_EQ(ops()["Conv2D"], 2);  // a convolution for each group
  const Tensor w = tflite_pattern({7, 5}), b = tflite_pattern({7});
  check([&](const Tensor& v) { return sigmoid(linear(v, constant(w), constant(b))); }, x);
  EXPECT_EQ(ops()["_FusedMatMul"], 1);
  check([&](const Tensor& v) { return gelu(v) + hardswish(v) + gelu(v, "tanh"); }, x);
  EXPECT_EQ(ops()["Erf"], 1);
  check([&](const Tensor& v) { return leaky_relu(conv2d(v, constant(k), {}, {1}, {0}, {1}, 2)); },
        x);
  const Tensor wide = tflite_pattern({4, 6, 1, 1}), slope = tflite_pattern({4});
  check([&](const Tensor& v) { return prelu(conv2d(v, constant(wide)), constant(slope)); }, x);
  check([&](const Tensor& v) { return (v > 0.5).to(DType::i64).sum(1) * 3; }, x);
}

TEST_F(TfJsExport, WeightsAreQuantisedAndCut) {
  manual_seed(1);
  nn::Sequential net(nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 32));
  const Tensor x = randn({4, 64});
  const struct {
    const char* quantize;
    double bytes, least, most;  ///< of a number; errors
  } kCases[] = {{"", 4, 0, 1e-6},
                {"float16", 2, 1e-6, 2e-3},
                {"uint16", 2, 1e-8, 1e-4},
                {"uint8", 1, 1e-4, 3e-2}};
  for (const auto& c : kCases) {
    const auto report = export_tfjs(net, x, path_, {.quantize = c.quantize});
    EXPECT_GE(report.relative_error, c.least) << c.quantize;
    EXPECT_LT(report.relative_error, c.most) << c.quantize;
    EXPECT_EQ(static_cast<double>(read_file(folder_ / "group1-shard1of1.bin").size()),
              64 * 128 * c.bytes + 128 * 32 * c.bytes + (128 + 32) * 4)
        << c.quantize;
  }
  const auto report = export_tfjs(net, x, folder_ / "cut/net.json", {.shard_bytes = 20000});
  EXPECT_EQ(report.shards, 3u);
  EXPECT_LT(report.relative_error, 1e-6);
  EXPECT_EQ(read_file(folder_ / "cut/net-group1-shard1of3.bin").size(), 20000u);
  EXPECT_EQ(read_file(folder_ / "cut/net-group1-shard3of3.bin").size(), 9792u);
}

// Zero is exact in codes; what halves do not hold, and what is not finite, stays as it is.
TEST_F(TfJsExport, ConstantsThatStayExact) {
  const Tensor mask = where(arange(300) < 150, full({300}, -3e38f), zeros({300}));
  const Tensor sides = where(arange(300) < 7, full({300}, -1.0f), arange(300).to(DType::f32));
  const Tensor odd = where(arange(300) < 9, full({300}, -INFINITY), sides);
  const Tensor same = full({300}, 0.3f);
  const auto written = [&](const Tensor& w, const char* quantize) {
    return export_tfjs([&](const Tensor& v) { return maximum(v, constant(w)); },
                       full({300}, -3.4e38f), path_, {.quantize = quantize})
        .largest_error;
  };
  EXPECT_EQ(written(mask, "float16"), 0);
  EXPECT_EQ(written(odd, "uint8"), 0);
  EXPECT_EQ(written(same, "uint8"), 0);
  EXPECT_GT(written(sides, "uint8"), 0);
  const Tensor ends = cat({full({150}, -1.0f), zeros({100}), full({50}, 0.37f)}, 0);
  EXPECT_GT(written(ends, "uint8"), 0);
  const Tensor back = OnnxModel::load(path_)({full({300}, -3e38f)})[0];
  EXPECT_TRUE(equal(back.slice(0, 150, 250), zeros({100})));
}

// Constants of one number have the same codes, and each its own number.
TEST_F(TfJsExport, QuantisedConstantsStayApart) {
  const Tensor a = full({256}, 0.3f), b = full({256}, 0.7f), x = tflite_pattern({256});
  const auto f = [&](const Tensor& v) { return v * constant(a) + constant(b) + v * constant(a); };
  for (const char* quantize : {"uint8", "uint16", "float16", ""})
    EXPECT_LT(export_tfjs(f, x, path_, {.quantize = quantize}).largest_error, 1e-3) << quantize;
  EXPECT_EQ(read_file(folder_ / "group1-shard1of1.bin").size(), 2u * 256 * 4)
      << "equal ones are one";
}

// What a function passes on is written as an operator of its own, in both formats.
TEST_F(TfJsExport, InputsMayBeOutputs) {
  using List = std::span<const Tensor>;
  const Tensor in[] = {tflite_pattern({1, 2, 3, 4}), tflite_pattern({1, 2, 3, 4}) * 3};
  const auto check = [&](FunctionRef<std::vector<Tensor>(List)> f, List x) {
    EXPECT_EQ(export_tfjs_function(f, x, path_).largest_error, 0);
    const std::string tflite = folder_ / "net.tflite";
    EXPECT_EQ(export_tflite_function(f, x, tflite).largest_error, 0);
    for (const std::string& file : {path_, tflite}) {
      const OnnxModel back = OnnxModel::load(file);
      EXPECT_EQ(back.inputs()[0].name, x.size() == 1 ? "x" : "x0");
      EXPECT_EQ(back.inputs().size(), x.size());
    }
  };
  check([](List x) { return std::vector<Tensor>{x[0], x[0] * 2}; }, {in, 1});
  check([](List x) { return std::vector<Tensor>{x[0]}; }, {in, 1});
  check([](List x) { return std::vector<Tensor>{x[0], x[0]}; }, {in, 1});
  check([](List x) { return std::vector<Tensor>{x[1], x[0]}; }, in);
  check([](List x) { return std::vector<Tensor>{x[0].permute({0, 3, 1, 2}), x[0] * 2}; }, {in, 1});
  check([](List x) { return std::vector<Tensor>{x[0].permute({0, 2, 3, 1}), x[0] + x[1]}; }, in);
}

// A transposed image is the same tensor as the image, whose readers do not want the activation.
TEST_F(TfJsExport, ActivationsStayOutOfSharedTensors) {
  const Tensor x = tflite_pattern({1, 4, 6, 6}), k = tflite_pattern({4, 4, 3, 3}) * 0.1;
  const auto f = [&](std::span<const Tensor> v) {
    const Tensor y = conv2d(v[0], constant(k), {}, {1}, {1});
    return std::vector<Tensor>{relu(y.permute({0, 2, 3, 1})), y};
  };
  EXPECT_LT(export_tflite_function(f, {&x, 1}, folder_ / "net.tflite").relative_error, 1e-6);
  EXPECT_LT(export_tfjs_function(f, {&x, 1}, path_).relative_error, 1e-6);
}

// Infinities and NaN where the function has them, too, are no difference.
TEST_F(TfJsExport, NumbersThatAreNotFinite) {
  const Tensor x = tflite_pattern({4, 8});
  const auto f = [](const Tensor& v) { return where(v > 0, v, full(Shape(), -INFINITY)) * v; };
  const auto nan = [](const Tensor& v) { return cat({log(v), v}, 0); };
  EXPECT_EQ(export_tfjs(f, x, path_).largest_error, 0);
  EXPECT_EQ(export_tflite(f, x, folder_ / "net.tflite").largest_error, 0);
  EXPECT_LT(export_tfjs(nan, x, path_).largest_error, 1e-6);
  const auto apart = [&](const Tensor& wanted) {
    return compare_written(path_, {{"x", x}}, {{"y", wanted}}, {.any = true}).largest;
  };
  const Tensor y = nan(x);
  EXPECT_LT(apart(y), 1e-6);
  EXPECT_EQ(apart(cat({x, x}, 0)), INFINITY) << "NaN instead of a number";
  EXPECT_EQ(apart(where(y > 1, full(Shape(), NAN), y)), INFINITY) << "a number instead of NaN";
  EXPECT_EQ(apart(where(y > 1, full(Shape(), INFINITY), y)), INFINITY);
  const std::string said = thrown(
      [&] {
        compare_written(path_, {{"x", x}}, {{"y", cat({x, x}, 0)}}, {.rtol = 1e-4, .atol = 1e-5});
      },
      ErrorKind::Value);
  EXPECT_TRUE(has(said, "differs by inf")) << said;
}

TEST_F(TfJsExport, FilesOfTfliteKeepTheirNames) {
  nn::Sequential net = written_image_net();
  const Tensor x = randn({1, 3, 17, 17});
  const std::string tflite = folder_ / "net.tflite";
  export_tflite(net, x, tflite, {.input_names = {"image"}, .output_names = {"scores"}});
  const auto report = export_tfjs_file(tflite, {&x, 1}, path_);
  EXPECT_LT(report.relative_error, 1e-5);
  EXPECT_EQ(OnnxModel::load(path_).outputs()[0].name, "scores");
  EXPECT_LT(export_tfjs_file(tflite, {}, path_).largest_error, 0) << "nothing to compare with";
}

// Files that others wrote: a network of floats, one of codes, and what has no form.
TEST_F(TfJsExport, FilesThatOthersWrote) {
  const std::string tflite = folder_ / "net.tflite";
  const Tensor x = tflite_pattern({1, 5, 5, 2}) * 0.5;
  write_file(tflite, tflite_network());
  EXPECT_LT(export_tfjs_file(tflite, {&x, 1}, path_).relative_error, 1e-6);
  const Tensor codes = (tflite_pattern({1, 5, 5, 2}) * 20).to(DType::i8);
  write_file(tflite, tflite_codes());
  const auto report = export_tfjs_file(tflite, {&codes, 1}, path_);
  EXPECT_LT(report.relative_error, 0.1);
  EXPECT_EQ(OnnxModel::load(path_).inputs()[0].type.elem, OnnxType::f32);
  TfliteFile f;  // a convolution and the PReLU that belongs to it
  const int in = f.tensor("in", TfliteFile::f32, {1, 5, 5, 2}),
            w = f.constant<float>("w", TfliteFile::f32, {2, 1, 1, 2}, {1, -1, 2, 0.5}),
            b = f.constant<float>("b", TfliteFile::f32, {2}, {-0.5, 0.25}),
            slopes = f.constant<float>("slopes", TfliteFile::f32, {1, 1, 2}, {0.5, -2}),
            y = f.tensor("y", TfliteFile::f32, {1, 5, 5, 2}),
            z = f.tensor("z", TfliteFile::f32, {1, 5, 5, 2});
  f.op(3, {in, w, b}, {y}, TfliteFile::conv(0, 1, 0));
  f.op(54, {y, slopes}, {z});
  f.graph("main", {in}, {z});
  write_file(tflite, f.bytes());
  EXPECT_LT(export_tfjs_file(tflite, {&x, 1}, path_).relative_error, 1e-6);
  EXPECT_TRUE(has(read_file(path_), "[\"Qmlhc0FkZA==\",\"UHJlbHU=\"]")) << "BiasAdd, Prelu";
  const auto refused = [&](const std::string& content, ErrorKind kind) {
    write_file(tflite, content);
    return thrown([&] { export_tfjs_file(tflite, {}, path_); }, kind);
  };
  const std::string said = refused(tflite_recurrent(true), ErrorKind::Unsupported);
  EXPECT_TRUE(has(said, "has no form in TensorFlow.js: 1 BIDIRECTIONAL_SEQUENCE_RNN")) << said;
  refused(tflite_branches(), ErrorKind::Unsupported);
  const std::string whole = tflite_network();
  refused(whole.substr(0, whole.size() / 2), ErrorKind::Format);
  EXPECT_EQ(names(),
            (std::vector<std::string>{"group1-shard1of1.bin", "model.json", "net.tflite"}));
}

// Operators whose inputs do not fit each other are errors of the file.
TEST_F(TfJsExport, FilesThatDoNotFit) {
  const std::string tflite = folder_ / "net.tflite";
  using F = TfliteFile;
  const auto refused = [&](const F& f, ErrorKind kind, const char* says) {
    write_file(tflite, f.bytes());
    const std::string said = thrown([&] { export_tfjs_file(tflite, {}, path_); }, kind);
    EXPECT_TRUE(has(said, says)) << said;
  };
  const auto layer = [&](int code, const std::vector<int32_t>& image,
                         const std::vector<int32_t>& filter, int32_t bias, const char* says) {
    F f;
    const auto floats = [&](const char* name, const std::vector<int32_t>& shape) {
      size_t n = 1;
      for (const int32_t d : shape) n *= static_cast<size_t>(d);
      return f.constant(name, F::f32, shape, std::vector<float>(n, 0.5f));
    };
    const int x = f.tensor("x", F::f32, image), w = floats("w", filter), b = floats("b", {bias}),
              y = f.tensor("y", F::f32, {1, 2, 2, 4});
    f.op(code, {x, w, b}, {y},
         code == 3   ? F::conv(0, 1, 0)
         : code == 4 ? F::depthwise(0, 1, 0)
                     : F::activation(0));
    f.graph("main", {x}, {y});
    refused(f, ErrorKind::Format, says);
  };
  layer(3, {1, 2, 2, 6}, {4, 1, 1, 2}, 4, "a CONV_2D has the filter 'w' of 4 x 1 x 1 x 2 for an");
  layer(3, {1, 2, 2, 6}, {4, 1, 1, 4}, 4, "for an image of 6 channels");
  layer(3, {1, 2, 2, 2}, {4, 0, 1, 2}, 4, "takes tensor 'w'");
  layer(3, {1, 2, 2, 2}, {4, 1, 1, 2}, 3, "has the bias 'b' of 3 numbers for 4 channels");
  layer(4, {1, 2, 2, 3}, {1, 1, 1, 4}, 4, "a DEPTHWISE_CONV_2D has the filter 'w' of");
  layer(4, {1, 2, 2, 2}, {2, 1, 1, 4}, 4, "for an image of 2 channels");
  layer(9, {1, 3}, {4, 3}, 5, "a FULLY_CONNECTED has the bias");
  {
    F f;  // a weight that is computed, of one dimension
    const int x = f.tensor("x", F::f32, {1, 3}), w = f.tensor("w", F::f32, {3}),
              v = f.tensor("v", F::f32, {3}), y = f.tensor("y", F::f32, {1, 3});
    f.op(101, {w}, {v});
    f.op(9, {x, v, -1}, {y}, F::activation(0));
    f.graph("main", {x, w}, {y});
    refused(f, ErrorKind::Format, "takes tensor 'v' of 1 dimensions");
  }
  for (const bool own : {false, true}) {  // a bias of three codes for four scales
    F f;
    const int x = f.tensor("x", F::i8, {1, 3}, {0.5f}, {0}),
              w = f.constant<int8_t>("w", F::i8, {4, 3}, std::vector<int8_t>(12, 1),
                                     {0.5f, 1, 2, 3}, {0, 0, 0, 0}, 0),
              b = own ? f.constant<int32_t>("b", F::i32, {3}, {1, 2, 3}, {0.5f}, {0})
                      : f.constant<int32_t>("b", F::i32, {3}, {1, 2, 3}),
              y = f.tensor("y", F::i8, {1, 4}, {0.5f}, {0});
    f.op(9, {x, w, b}, {y}, F::activation(0));
    f.graph("main", {x}, {y});
    refused(f, ErrorKind::Format, "has the bias 'b' of 3 numbers");
  }
  const auto of_inputs = [&](int code, const std::vector<int32_t>& inputs,
                             const std::vector<int32_t>& outputs, io::FlatWriter options) {
    F f;
    for (const char* name : {"x", "y", "z"}) f.tensor(name, F::f32, {3});
    f.op(code, inputs, outputs, std::move(options));
    f.graph("main", {0}, {1});
    return f;
  };
  for (const std::vector<int32_t>& inputs : {std::vector<int32_t>{0}, {-1, 0}, {0, 0, 0}})
    refused(of_inputs(0, inputs, {1}, F::activation(0)), ErrorKind::Format, "a ADD has");
  refused(of_inputs(101, {0}, {1, 2}, {}), ErrorKind::Format, "a ABS has 1 inputs and 2 outputs");
  refused(of_inputs(98, {0}, {1}, F::number(INFINITY)), ErrorKind::Unsupported,
          "alpha of inf has no form in TensorFlow.js");
  EXPECT_EQ(names(), std::vector<std::string>{"net.tflite"});
}

TEST_F(TfJsExport, NamesOfPortsStayApart) {
  const Tensor in[] = {tflite_pattern({2, 3}), tflite_pattern({2, 3}) * 3};
  const auto report = export_tfjs_function(
      [](std::span<const Tensor> x) {
        return std::vector<Tensor>{x[0] - x[1], x[0] * x[1]};
      },
      in, path_, {.input_names = {"a b", "a_b"}, .output_names = {"../y", "a:b"}});
  EXPECT_EQ(report.largest_error, 0);
  const OnnxModel back = OnnxModel::load(path_);
  EXPECT_EQ(back.inputs()[0].name + "|" + back.inputs()[1].name, "a b|a_b");
  EXPECT_EQ(back.outputs()[0].name + "|" + back.outputs()[1].name, "../y|a:b");
}

// ":0" is how TensorFlow calls a node's first result, and is no part of a port's name.
TEST_F(TfJsExport, PortsOfFirstResults) {
  const Tensor in[] = {tflite_pattern({2, 3}), tflite_pattern({2, 3}) * 3};
  const struct {
    std::vector<std::string> inputs, outputs;
    const char* read;
  } kCases[] = {
      {{"x:0", "z:0"}, {"StatefulPartitionedCall:0", "y:1"}, "x,z,StatefulPartitionedCall,y:1"},
      {{"x:0", "x"}, {"x:0:0", ":0"}, "x,x_1,port,x_2"}};
  for (const auto& c : kCases) {
    const auto report = export_tfjs_function(
        [](std::span<const Tensor> x) {
          return std::vector<Tensor>{x[0] - x[1], x[0] * x[1]};
        },
        in, path_, {.input_names = c.inputs, .output_names = c.outputs});
    EXPECT_EQ(report.largest_error, 0);
    const OnnxModel back = OnnxModel::load(path_);
    std::string names;
    for (const auto* ports : {&back.inputs(), &back.outputs()})
      for (const OnnxPort& p : *ports) names += (names.empty() ? "" : ",") + p.name;
    EXPECT_EQ(names, c.read);
  }
  // Inputs keep their meaning where the names change their order.
  TfliteFile f;
  const int x = f.tensor("serving_default_x:0", TfliteFile::f32, {2, 3}),
            y = f.tensor("StatefulPartitionedCall:0", TfliteFile::f32, {2, 3});
  f.op(92, {x}, {y});
  f.graph("main", {x}, {y});
  write_file(folder_ / "net.tflite", f.bytes());
  EXPECT_LT(export_tfjs_file(folder_ / "net.tflite", {in, 1}, path_).largest_error, 1e-6);
  EXPECT_EQ(OnnxModel::load(path_).inputs()[0].name, "serving_default_x");
}

// Layers of codes become layers of floats: the result is not rounded to steps of 0.05.
TEST_F(TfJsExport, CodesBecomeFloats) {
  const Tensor x = tflite_pattern({1, 4, 6, 6});
  EXPECT_LT(export_tfjs(written_code_net, x, path_).largest_error, 0.06);
  EXPECT_EQ(ops()["Quantize"], 0);
  const std::string tflite = folder_ / "net.tflite";
  export_tflite(written_code_net, x, tflite);
  EXPECT_LT(export_tfjs_file(tflite, {&x, 1}, path_).largest_error, 0.06);
}

TEST_F(TfJsExport, RefusalsNameWhatTheyRefuse) {
  const Tensor x = tflite_pattern({3, 8});
  const auto refused = [&](auto f, const std::string& path, const TfjsExportOptions& o,
                           ErrorKind kind) {
    return thrown([&] { export_tfjs(f, x, path, o); }, kind);
  };
  const auto twice = [](const Tensor& v) { return v * 2; };
  const std::string said = refused([](const Tensor& v) { return acosh(asin(v)) + asin(v * 0.5); },
                                   path_, {}, ErrorKind::Unsupported);
  EXPECT_TRUE(has(said, "no form in TensorFlow.js: 1 Acosh, 2 Asin")) << said;
  EXPECT_TRUE(has(refused(twice, path_, {.quantize = "int4"}, ErrorKind::Value), "'int4'"));
  EXPECT_TRUE(has(refused(twice, folder_ / "net.js", {}, ErrorKind::Value), "ends with .json"));
  EXPECT_TRUE(has(refused(twice, path_, {.shard_bytes = 0}, ErrorKind::Value), "0 bytes"));
  const auto small = [](const Tensor& v) { return (v * 100).to(DType::u8).to(DType::f32); };
  EXPECT_TRUE(has(refused(small, path_, {}, ErrorKind::Unsupported), "becomes uint8, which"));
  const auto large = [](const Tensor& v) {
    return (v.to(DType::i64) * constant(full(Shape(), int64_t{1} << 40, DType::i64))).sum();
  };
  EXPECT_TRUE(has(refused(large, path_, {}, ErrorKind::Unsupported), "beyond 32 bits"));
  EXPECT_EQ(names(), std::vector<std::string>());
  write_file(folder_ / "file", "no folder");
  refused(twice, folder_ / "file/model.json", {}, ErrorKind::Io);
  EXPECT_EQ(names(), std::vector<std::string>{"file"});
}

// Weights that the model of that name had before are removed, and nothing else.
TEST_F(TfJsExport, WeightsOfEarlierExportsAreRemoved) {
  const Tensor x = randn({2, 40}), w = randn({45, 40});
  const auto net = [&](const Tensor& v) { return linear(v, constant(w)); };
  EXPECT_EQ(export_tfjs(net, x, path_, {.shard_bytes = 2000}).shards, 4u);
  EXPECT_EQ(export_tfjs(net, x, folder_ / "net.json", {.shard_bytes = 4000}).shards, 2u);
  // Names that are not those of an export's files, and links, stay.
  std::string text = read_file(path_);
  const std::string first = "\"group1-shard1of4.bin\",";
  const size_t at = text.find(first);
  ASSERT_NE(at, text.npos);
  text.insert(at, R"("notes.txt","../group1-shard9of9.bin","group1-shard03of4.bin",)"
                  R"("net-group1-shard1of2.bin","group1-shard7of8.bin",)");
  make_folders(folder_ / "in");
  write_file(folder_ / "in/model.json", text);
  for (const char* name : {"group1-shard9of9.bin", "in/notes.txt", "in/group1-shard03of4.bin",
                           "in/net-group1-shard1of2.bin", "in/group1-shard1of4.bin",
                           "in/group1-shard5of5.bin", "of_link"})
    write_file(folder_ / name, "x");
  std::filesystem::create_symlink(folder_ / "of_link", folder_ / "in/group1-shard7of8.bin");
  const std::vector<std::string> before = list_folder(folder_ / "in");
  thrown([&] { export_tfjs(net, x, folder_ / "in/model.json", {.rtol = -1, .atol = 0}); },
         ErrorKind::Value);
  EXPECT_EQ(list_folder(folder_ / "in"), before);
  export_tfjs(net, x, folder_ / "in/model.json");
  EXPECT_EQ(list_folder(folder_ / "in"),
            (std::vector<std::string>{"group1-shard03of4.bin", "group1-shard1of1.bin",
                                      "group1-shard5of5.bin", "group1-shard7of8.bin", "model.json",
                                      "net-group1-shard1of2.bin", "notes.txt"}));
  EXPECT_TRUE(file_exists(folder_ / "group1-shard9of9.bin"));
  export_tfjs(net, x, path_);
  EXPECT_EQ(names(), (std::vector<std::string>{"group1-shard1of1.bin", "group1-shard9of9.bin", "in",
                                               "model.json", "net-group1-shard1of2.bin",
                                               "net-group1-shard2of2.bin", "net.json", "of_link"}));
  write_file(path_, "{ not a model");
  export_tfjs(net, x, path_, {.shard_bytes = 4000});
  EXPECT_TRUE(file_exists(folder_ / "group1-shard1of1.bin"));
}

// Whatever goes wrong after the first file was written, the model that was there is there again.
TEST_F(TfJsExport, AFailedExportLeavesTheFilesAlone) {
  const Tensor x = randn({2, 40}), w = randn({30, 40});
  const auto net = [&](const Tensor& v) { return linear(v, constant(w)); };
  export_tfjs(net, x, path_);
  const std::string before = read_file(path_),
                    weights = read_file(folder_ / "group1-shard1of1.bin");
  const auto other = [&](const Tensor& v) { return linear(v * 2, constant(w)); };
  const std::string said =
      thrown([&] { export_tfjs(other, x, path_, {.rtol = -1, .atol = 0}); }, ErrorKind::Value);
  EXPECT_TRUE(has(said, "differs by")) << said;
  EXPECT_EQ(read_file(path_), before);
  EXPECT_EQ(read_file(folder_ / "group1-shard1of1.bin"), weights);
  thrown([&] { export_tfjs(other, x, folder_ / "new/model.json", {.rtol = -1, .atol = 0}); },
         ErrorKind::Value);
  EXPECT_TRUE(list_folder(folder_ / "new").empty());
}

}  // namespace
}  // namespace tandem::onnx
