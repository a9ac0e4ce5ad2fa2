// SPDX-License-Identifier: Apache-2.0
// Models that TensorFlow and Keras wrote, against what they gave for them:
// tests/onnx/tensorflow/make_golden.py wrote both.
#include "tandem/onnx/tensorflow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tandem/compile/compile.h"
#include "tandem/init.h"
#include "tandem/io/json.h"
#include "tandem/io/protobuf.h"
#include "tandem/io/zip_internal.h"
#include "tandem/onnx/onnx.h"
#include "tandem/ops/ops.h"
#include "tests/io/io_helper.h"

namespace tandem::onnx {
namespace {

std::string golden_tf(const std::string& name) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return std::string(root ? root : ".") + "/tests/onnx/tensorflow/" + name;
}

/// TensorFlow's values for a case's output.
Tensor expected(const std::string& name, const std::string& output) {
  static const io::Json all = io::parse_json(read_file(golden_tf("expected.json")));
  const io::Json* e = all.find(name)->find(output);
  std::vector<double> values;
  std::vector<int64_t> shape;
  for (const io::Json& v : *e->find("values")->as_array()) values.push_back(io::number_of(&v));
  for (const io::Json& d : *e->find("shape")->as_array()) shape.push_back(io::whole_of(&d));
  return tensor(values, Shape(shape));
}
void expect_near(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  EXPECT_LT((got.to(DType::f64) - want).abs().max().item<double>(), 1e-6);
}

class TensorFlow : public testing::Test {
 protected:
  void SetUp() override {
    init();
    image = arange(144.0).reshape({2, 6, 6, 2}).to(DType::f32) / 144.0;
    rows = tensor({{1.0f, 2.0f}, {-1.0f, 3.0f}, {0.5f, 0.25f}, {2.0f, -1.0f}});
  }
  Tensor image, rows;
};

TEST_F(TensorFlow, KerasModelsOfBothFormats) {
  const OnnxModel net = OnnxModel::load(golden_tf("net.keras"));
  ASSERT_EQ(net.inputs().size(), 1u);
  EXPECT_EQ(net.inputs()[0].name, "image");
  EXPECT_EQ(net.inputs()[0].type.dims, (std::vector<int64_t>{-1, 6, 6, 2}));
  expect_near(net({image})[0], expected("net", "y"));
  auto f = compile([&](const Tensor& x) { return net({x})[0]; });
  expect_near(f(image), expected("net", "y"));
  expect_near(OnnxModel::load(golden_tf("line.h5"))({image.reshape({2, 9, 8})})[0],
              expected("line", "y"));
}

// Masks of steps reach the layers that use them, in both formats; slices and functions in between.
TEST_F(TensorFlow, KerasMasksAndFunctions) {
  const Tensor ids = tensor(std::vector<int64_t>{3, 0, 5, 0, 1, 0, 0, 2, 6, 4}, Shape(2, 5));
  for (const char* name : {"masked.keras", "masked.h5"}) {
    const OnnxModel net = OnnxModel::load(golden_tf(name));
    const std::vector<Tensor> y = net({ids.to(DType::i32)});
    ASSERT_EQ(y.size(), 4u);
    for (size_t i = 0; i < 4; ++i) expect_near(y[i], expected("masked", std::string(1, "abcd"[i])));
    auto f = compile([&](const Tensor& x) { return net({x})[0]; });
    const Tensor compiled = f(ids.to(DType::i32));
    EXPECT_TRUE(equal(compiled, y[0]));
  }
}

TEST_F(TensorFlow, KerasImagesOverSteps) {
  const OnnxModel net = OnnxModel::load(golden_tf("images.keras"));
  const std::vector<Tensor> y = net({stack({image, flip(image, {0}), image * 2.0}, 1)});
  ASSERT_EQ(y.size(), 2u);
  expect_near(y[0], expected("images", "a"));
  EXPECT_LT((y[1] - expected("images", "b")).abs().max().item<double>(), 1e-4);
}

// Segments, unique values, boxes, matrices, Fourier transforms.
TEST_F(TensorFlow, FunctionsThatCountAndSolve) {
  const OnnxModel m = OnnxModel::load(golden_tf("counted.pb"));
  const std::vector<Tensor> y = m({image});
  const std::string names = "abcdefghijkl";
  ASSERT_EQ(y.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const Tensor want = expected("counted", names.substr(i, 1));
    ASSERT_EQ(y[i].shape(), want.shape()) << names[i];
    EXPECT_LT((y[i].to(DType::f64) - want).abs().max().item<double>(), 2e-5) << names[i];
  }
}

// Boxes beyond the border, factors of matrices.
TEST_F(TensorFlow, CropsAndFactors) {
  const OnnxModel m = OnnxModel::load(golden_tf("cropped.pb"));
  const std::vector<Tensor> y = m({image});
  const std::string names = "abcdefg";
  ASSERT_EQ(y.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i)
    expect_near(y[i], expected("cropped", names.substr(i, 1)));
  auto f = compile([&](const Tensor& x) { return m({x})[0]; });
  EXPECT_TRUE(equal(f(image), y[0]));
}

TEST_F(TensorFlow, FrozenGraph) {
  const OnnxModel m = OnnxModel::load(golden_tf("frozen.pb"));
  ASSERT_EQ(m.inputs().size(), 1u);
  expect_near(m({image})[0], expected("frozen", "y"));
}

// TensorFlow rounds the places of cubic weights; an array of tensors grows to the place that is
// set.
TEST_F(TensorFlow, CubicImagesAndArraysThatGrow) {
  const OnnxModel m = OnnxModel::load(golden_tf("resized.pb"));
  const std::vector<Tensor> y = m({image});
  ASSERT_EQ(y.size(), 4u);
  int at = 0;
  for (const char* name : {"corners", "half", "legacy", "rows"})
    expect_near(y[static_cast<size_t>(at++)], expected("resized", name));
}

TEST_F(TensorFlow, SignaturesAndBranches) {
  const OnnxModel m = OnnxModel::load(golden_tf("running"), {.signature = "pick"});
  EXPECT_TRUE(m.states().empty());
  expect_near(m({tensor(1, DType::i32)})[0], expected("pick", "y"));
  const std::string several = error_of([] { OnnxModel::load(golden_tf("running")); });
  EXPECT_NE(several.find("'feed', 'pick'"), std::string::npos) << several;
  EXPECT_NE(error_of([] {
              OnnxModel::load(golden_tf("running"), {.signature = "fed"});
            }).find("no signature 'fed'"),
            std::string::npos);
}

// Variables that a loop and a branch write are states: the second step begins where the first
// ended.
TEST_F(TensorFlow, StateOverSteps) {
  const OnnxModel m = OnnxModel::load(golden_tf("running"), {.signature = "feed"});
  ASSERT_EQ(m.inputs().size(), 1u);
  ASSERT_EQ(m.states().size(), 2u);
  std::map<std::string, OnnxValue> state;
  const auto step = [&](const Tensor& x, const std::string& name) {
    const std::vector<OnnxValue> out = m.run(std::vector<OnnxValue>{OnnxValue(x)}, state);
    for (size_t i = 0; i < m.outputs().size(); ++i) {
      const std::string& output = m.outputs()[i].name;
      if (output == "mean" || output == "centred")
        expect_near(out[i].tensor(), expected(name, output));
      for (const OnnxState& s : m.states())
        if (s.output == output) state[s.input] = out[i];
    }
  };
  step(rows, "feed");
  ASSERT_EQ(state.size(), 2u);
  step(flip(rows, {0}) * 0.5, "feed_again");
}

/// A GraphDef of nodes (name, op, inputs), with "dtype" and "value" where they are constants.
std::string graph_of(const std::vector<std::vector<std::string>>& nodes) {
  io::ProtoWriter g;
  for (const std::vector<std::string>& n : nodes) {
    io::ProtoWriter node;
    node.add_bytes(1, n[0]);
    node.add_bytes(2, n[1]);
    for (size_t i = 2; i < n.size(); ++i) node.add_bytes(3, n[i]);
    g.add_message(1, node);
  }
  return g.str();
}

// A text that only a log or a check reads is not computed; one that the model gives is refused.
TEST_F(TensorFlow, TextsOfLogsAreLeftOut) {
  const TempFolder folder;
  write_file(folder / "graph.pb", graph_of({{"x", "Placeholder"},
                                            {"text", "StringFormat", "x"},
                                            {"log", "PrintV2", "text"},
                                            {"check", "Assert", "x", "text", "^log"},
                                            {"y", "Relu", "x", "^check"}}));
  const OnnxModel m = OnnxModel::load(folder / "graph.pb");
  EXPECT_TRUE(equal(m({rows})[0], relu(rows)));
  write_file(folder / "graph.pb", graph_of({{"x", "Placeholder"},
                                            {"text", "StringFormat", "x"},
                                            {"y", "Identity", "text", "x"}}));
  EXPECT_NE(error_of([&] { OnnxModel::load(folder / "graph.pb"); }).find("1 StringFormat"),
            std::string::npos);
}

TEST_F(TensorFlow, WhatCannotBeReadIsNamed) {
  struct Case {
    std::vector<std::vector<std::string>> nodes;
    const char* says;
  };
  const Case kCases[] = {
      {{{"x", "Placeholder"}, {"a", "Foo", "x"}, {"b", "Bar", "a"}, {"c", "Foo", "b"}},
       "2 of its ops are not supported: 2 Foo, 1 Bar"},
      {{{"x", "Placeholder"}, {"a", "Relu", "y"}}, "reads 'y', which is never defined"},
      {{{"x", "Placeholder"}, {"a", "Relu", "b"}, {"b", "Relu", "a"}, {"c", "Relu", "a"}},
       "form a cycle"},
      {{{"x", "Placeholder"}, {"x", "Relu", "x"}, {"y", "Relu", "x"}}, "defined twice"},
      {{{"x", "Placeholder"}, {"y", "PartitionedCall", "x"}}, "names no function as 'f'"},
      {{{"y", "Const"}, {"z", "Relu", "y"}}, "has no value"},
      {{{"x", "Placeholder"}, {"y", "Relu", "x:7000"}}, "names no output"},
      {{{"v", "VarHandleOp"}, {"y", "ReadVariableOp", "v"}}, "has no value"},
      {{{"x", "Placeholder"}}, "no outputs"},
  };
  const TempFolder folder;
  for (const Case& c : kCases) {
    write_file(folder / "graph.pb", graph_of(c.nodes));
    const std::string error = error_of([&] { OnnxModel::load(folder / "graph.pb"); });
    EXPECT_NE(error.find(c.says), std::string::npos) << error;
  }
  const auto ops = tensorflow_ops();
  EXPECT_TRUE(std::is_sorted(ops.begin(), ops.end()));
  EXPECT_GT(ops.size(), 150u);
}

/// A .keras archive of this configuration, with the variables of net.keras.
void write_keras(const std::string& path, const std::string& config) {
  const io::ZipReader net(golden_tf("net.keras"));
  io::ZipWriter zip(path);
  zip.add("config.json", {config}, false);
  for (const io::ZipMember& m : net.members()) {
    if (m.name != "model.weights.h5") continue;
    std::string bytes(m.size, '\0');
    io::ZipStream(net, m).read(bytes.data(), bytes.size());
    zip.add(m.name, {bytes}, false);
  }
  zip.commit();
}
/// A model of an input "x" and one call of a layer, {"args": ...} as the file has it.
std::string one_layer(const std::string& type, const std::string& config, const std::string& args,
                      const std::string& kwargs = "", const std::string& shape = "[2, 4]",
                      const std::string& module = "keras.layers") {
  const auto layer = [&](const std::string& name, const std::string& of, const std::string& where,
                         const std::string& more, const std::string& nodes) {
    return R"({"class_name": ")" + of + R"(", "module": ")" + where + R"(", "name": ")" + name +
           R"(", "config": {"name": ")" + name + "\"" + more + R"(}, "inbound_nodes": [)" + nodes +
           "]}";
  };
  const std::string x = R"({"class_name": "__keras_tensor__", "config": {"shape": )" + shape +
                        R"(, "dtype": "float32", "keras_history": ["x", 0, 0]}})";
  return R"({"class_name": "Functional", "config": {"name": "net", "layers": [)" +
         layer("x", "InputLayer", "keras.layers", R"(, "batch_shape": )" + shape, "") + ", " +
         layer("y", type, module, config,
               R"({"args": [)" + x + args + R"(], "kwargs": {)" + kwargs + "}}") +
         R"(], "input_layers": [["x", 0, 0]], "output_layers": [["y", 0, 0]]}})";
}

TEST_F(TensorFlow, KerasLayersThatCannotBeBuilt) {
  const char* ops = "keras.src.ops.numpy";
  const std::pair<std::string, const char*> kCases[] = {
      {one_layer("Bidirectional", "", "", "", "[2, 4, 3]"), "the layer 'y' holds no layer"},
      {one_layer("Bidirectional", R"(, "layer": 3)", "", "", "[2, 4, 3]"), "holds no layer"},
      {one_layer("Conv2D", R"(, "padding": "causal", "dilation_rate": [])", "", "", "[2, 4, 4, 2]"),
       "causal padding"},
      {one_layer("GetItem", "", ", 9223372036854775807", "", "[2, 4]", ops),
       "a number is 9223372036854775807"},
      {one_layer("Split", R"(, "indices_or_sections": [-9223372036854775808, 9223372036854775807])",
                 "", "", "[2, 4]", ops),
       "a number is -9223372036854775808"},
      {one_layer("StochasticDepth", R"(, "rate": 0.5)", "", R"("training": true)"),
       "training mode"},
      {one_layer("Dropout", R"(, "rate": 0.5)", "", R"("training": 1)"), "training mode"},
      {one_layer("Mean", "", "", R"("x2": 1)", "[2, 4]", ops), "a number for the argument 'x2'"},
  };
  const TempFolder folder;
  for (const auto& [config, says] : kCases) {
    write_keras(folder / "net.keras", config);
    const std::string error = error_of([&] { OnnxModel::load(folder / "net.keras"); });
    EXPECT_NE(error.find(says), std::string::npos) << error << "\n" << config;
  }
}

TEST_F(TensorFlow, KerasNumbersAndTypesOfOperations) {
  const TempFolder folder;
  const auto result = [&](const std::string& type, const std::string& args,
                          const std::string& kwargs) {
    write_keras(folder / "net.keras",
                one_layer(type, "", args, kwargs, "[4, 2]", "keras.src.ops.numpy"));
    return OnnxModel::load(folder / "net.keras")({rows})[0];
  };
  expect_near(result("Subtract", "", R"("x2": 2.5)"), (rows - 2.5).to(DType::f64));
  expect_near(result("Divide", "", R"("x2": 2)"), (rows / 2).to(DType::f64));
  expect_near(result("Add", ", 3", ""), (rows + 3).to(DType::f64));
  write_keras(folder / "net.keras", one_layer("OnesLike", R"(, "dtype": "bool")", "", "", "[4, 2]",
                                              "keras.src.ops.numpy"));
  EXPECT_TRUE(equal(OnnxModel::load(folder / "net.keras")({rows})[0], ones({4, 2}, DType::b8)));
  write_keras(folder / "net.keras",
              one_layer("RandomFlip", "", "", R"("training": true)", "[4, 2]"));
  expect_near(OnnxModel::load(folder / "net.keras")({rows})[0], rows.to(DType::f64));
}

}  // namespace
}  // namespace tandem::onnx
