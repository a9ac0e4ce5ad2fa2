// SPDX-License-Identifier: Apache-2.0
// ONNX models of a few hundred bytes that ask for gigabytes, for ever, or for numbers that
// overflow.
#include <fmt/core.h>

#include "tests/onnx/helper.h"
#include "tests/readers/readers.h"

namespace tandem::readers {
namespace {

using onnx::floats;
using onnx::graph_attribute;
using onnx::GraphText;
using onnx::int_attribute;
using onnx::model;
using onnx::node;
using onnx::opset;
using onnx::port;
using onnx::raw_tensor;

constexpr int64_t kHuge = INT64_MAX, kLow = INT64_MIN;

std::string ints(const std::string& name, const std::vector<int64_t>& v) {
  return raw_tensor(name, {static_cast<int64_t>(v.size())}, 7,
                    {reinterpret_cast<const char*>(v.data()), v.size() * 8});
}
std::string scalar(const std::string& name, int64_t v) {
  return raw_tensor(name, {}, 7, {reinterpret_cast<const char*>(&v), 8});
}
std::string list(const std::string& name, const std::vector<int64_t>& v) {
  io::ProtoWriter a;
  a.add_bytes(1, name);
  for (const int64_t x : v) a.add_int(8, x);
  a.add_int(20, 7);
  return a.str();
}
std::string text(const std::string& name, const std::string& v) {
  io::ProtoWriter a;
  a.add_bytes(1, name);
  a.add_bytes(4, v);
  a.add_int(20, 3);
  return a.str();
}
std::string texts(const std::string& name, const std::vector<std::string>& v) {
  io::ProtoWriter a;
  a.add_bytes(1, name);
  for (const std::string& s : v) a.add_bytes(9, s);
  a.add_int(20, 8);
  return a.str();
}
std::string number(const std::string& name, float v) {
  io::ProtoWriter a;
  a.add_bytes(1, name);
  a.add_float(2, v);
  a.add_int(20, 1);
  return a.str();
}
std::string strings(const std::string& name, const std::vector<std::string>& v) {
  io::ProtoWriter t;
  t.add_packed(1, std::vector<int64_t>{static_cast<int64_t>(v.size())});
  t.add_int(2, 8);
  for (const std::string& s : v) t.add_bytes(6, s);
  t.add_bytes(8, name);
  return t.str();
}

/// Nodes over `x` [1, 2, 4, 4] of ones and other initializers; the result is y.
std::string nodes(std::vector<std::string> list_of_nodes, std::vector<std::string> tensors = {},
                  int64_t version = 18) {
  GraphText g;
  g.nodes = std::move(list_of_nodes);
  g.initializers = {floats("x", {1, 2, 4, 4}, std::vector<float>(32, 1))};
  g.initializers.insert(g.initializers.end(), tensors.begin(), tensors.end());
  g.outputs = {port("y")};
  return model(g, version);
}
/// y = op(x, the tensors).
std::string on_x(const std::string& op, const std::vector<std::string>& attributes,
                 const std::vector<std::pair<std::string, std::string>>& tensors = {},
                 int64_t version = 18) {
  std::vector<std::string> in{"x"}, values;
  for (const auto& [name, value] : tensors) {
    in.push_back(name);
    if (!value.empty()) values.push_back(value);
  }
  return nodes({node(op, in, {"y"}, attributes)}, values, version);
}
/// y = op(the tensors), without x.
std::string alone(const std::string& op, const std::vector<std::string>& attributes,
                  const std::vector<std::pair<std::string, std::string>>& tensors = {},
                  int64_t version = 20) {
  std::vector<std::string> in, values;
  for (const auto& [name, value] : tensors) {
    in.push_back(name);
    values.push_back(value);
  }
  return nodes({node(op, in, {"y"}, attributes)}, values, version);
}
/// A loop without a limit around nodes that make `b` of `a`, which begins as x.
std::string endless(std::vector<std::string> body_nodes, std::vector<std::string> tensors = {}) {
  GraphText body;
  body.nodes = std::move(body_nodes);
  body.initializers = std::move(tensors);
  body.initializers.push_back(raw_tensor("again", {}, 9, "\1"));  // true
  body.inputs = {port("i", 7), port("go", 9), port("a")};
  body.outputs = {port("again", 9), port("b")};
  return nodes({node("Loop", {"", "", "x"}, {"y"}, {graph_attribute("body", body.str())})});
}
/// A sequence that grows by one with each step of an endless loop.
std::string endless_sequence() {
  GraphText body, g;
  body.nodes = {node("SequenceInsert", {"a", "i"}, {"b"})};
  body.initializers = {raw_tensor("again", {}, 9, "\1")};
  body.inputs = {port("i", 7), port("go", 9), port("a")};
  body.outputs = {port("again", 9), port("b"), port("b")};
  g.nodes = {node("SequenceConstruct", {"x"}, {"s"}),
             node("Loop", {"", "", "s"}, {"y", "z"}, {graph_attribute("body", body.str())})};
  g.initializers = {floats("x", {1}, {1})};
  g.outputs = {port("y")};
  return model(g);
}
/// Functions that each call the next one twice.
std::string doubling(int depth) {
  std::vector<std::string> functions;
  for (int k = 0; k < depth; ++k) {
    io::ProtoWriter f;
    f.add_bytes(1, fmt::format("F{}", k));
    f.add_bytes(4, "a");
    f.add_bytes(5, "c");
    const std::string next = k + 1 == depth ? "Neg" : fmt::format("F{}", k + 1);
    const std::string domain = k + 1 == depth ? "" : "own";
    f.add_bytes(7, node(next, {"a"}, {"b"}, {}, domain));
    f.add_bytes(7, node(next, {"b"}, {"c"}, {}, domain));
    f.add_bytes(9, opset("", 18));
    f.add_bytes(10, "own");
    functions.push_back(f.str());
  }
  GraphText g;
  g.nodes = {node("F0", {"x"}, {"y"}, {}, "own")};
  g.initializers = {floats("x", {2}, {1, 2})};
  g.outputs = {port("y")};
  return model(g, 18, functions);
}
std::string sparse_models(int count) {
  io::ProtoWriter g, m;
  for (int k = 0; k < count; ++k) {
    io::ProtoWriter s;
    s.add_bytes(1, floats(fmt::format("s{}", k), {1}, {1}));
    s.add_bytes(2, ints("", {0}));
    s.add_packed(3, std::vector<int64_t>{1 << 14, 1 << 12});
    g.add_message(15, s);
  }
  g.add_bytes(1, node("Identity", {"s0"}, {"y"}));
  g.add_bytes(12, port("y"));
  m.add_int(1, 8);
  m.add_bytes(8, opset("", 18));
  m.add_message(7, g);
  return m.str();
}
std::string concatenated(int times) {
  std::vector<std::string> list_of_nodes;
  for (int k = 0; k < times; ++k)
    list_of_nodes.push_back(node("StringConcat", {fmt::format("t{}", k), fmt::format("t{}", k)},
                                 {k + 1 == times ? "y" : fmt::format("t{}", k + 1)}));
  return nodes(list_of_nodes, {strings("t0", {"0123456789abcdef"})}, 20);
}
/// Gradient nodes that each run all nodes before them again.
std::string gradients(int count) {
  GraphText g;
  g.nodes = {node("Mul", {"x", "x"}, {"y"})};
  for (int k = 0; k < count; ++k)
    g.nodes.push_back(node("Gradient", {"x"}, {fmt::format("d{}", k)},
                           {texts("xs", {"x"}), text("y", "y")}, "ai.onnx.preview.training"));
  g.initializers = {floats("x", {2}, {1, 2})};
  g.outputs = {port(fmt::format("d{}", count - 1))};
  return model(g);
}
std::string many_attributes() {
  std::vector<std::string> all(100000, int_attribute("a", 1));
  return nodes({node("Neg", {"x"}, {"y"}, all)});
}
std::string many_functions() {
  io::ProtoWriter m, g;
  for (int k = 0; k < 20000; ++k) {
    g.add_bytes(1, node("Neg", {"x"}, {fmt::format("n{}", k)}));
    io::ProtoWriter f;
    f.add_bytes(1, fmt::format("F{}", k));
    m.add_message(25, f);
  }
  g.add_bytes(5, floats("x", {1}, {1}));
  g.add_bytes(12, port("n0"));
  m.add_bytes(8, opset("", 18));
  m.add_message(7, g);
  return m.str();
}
std::string many_inputs() {
  GraphText g;
  for (int k = 0; k < 30000; ++k) {
    g.inputs.push_back(port(fmt::format("i{}", k)));
    g.initializers.push_back(floats(fmt::format("i{}", k), {1}, {1}));
  }
  g.nodes = {node("Neg", {"i0"}, {"y"})};
  g.outputs = {port("y")};
  return model(g);
}

/// Two constants of these shapes, then an op on both.
std::string made(const std::string& op, const std::vector<int64_t>& a,
                 const std::vector<int64_t>& b, const std::vector<std::string>& attributes = {}) {
  return nodes({node("ConstantOfShape", {"sa"}, {"a"}), node("ConstantOfShape", {"sb"}, {"b"}),
                node(op, {"a", "b"}, {"y"}, attributes)},
               {ints("sa", a), ints("sb", b)});
}
std::string boxes_model() {
  return nodes({node("ConstantOfShape", {"sb"}, {"b"}), node("ConstantOfShape", {"ss"}, {"s"}),
                node("NonMaxSuppression", {"b", "s", "n"}, {"y"})},
               {ints("sb", {1, 4000000, 4}), ints("ss", {1, 1, 4000000}), scalar("n", kHuge)});
}
std::string regions_model(const char* mode) {
  return nodes({node("RoiAlign", {"x", "r", "i"}, {"y"}, {text("mode", mode)})},
               {floats("r", {1, 4}, {0, 0, 3e9f, 3e9f}), ints("i", {0})});
}

void add_onnx_loops_and_sizes(std::vector<Crafted>& all) {
  const auto add = [&](const char* name, auto bytes, const char* says = "",
                       const char* reader = "onnx") {
    all.push_back({std::string(reader) + "/" + name, reader, std::move(bytes), says});
  };
#define ADD(name, expression, ...) \
  add(                             \
      name, [] { return std::string(expression); }, ##__VA_ARGS__)
  ADD("split_2_31", on_x("Split", {int_attribute("num_outputs", int64_t{1} << 31)}),
      "num_outputs is 2147483648");
  ADD("split_2_62", on_x("Split", {int_attribute("num_outputs", int64_t{1} << 62)}),
      "num_outputs is");
  ADD("split_ones", nodes({node("ConstantOfShape", {"s"}, {"n"}), node("Split", {"n", "n"}, {"y"})},
                          {ints("s", {1 << 24})}));
  ADD("depth_to_space_2_33", on_x("DepthToSpace", {int_attribute("blocksize", int64_t{1} << 33)}),
      "expected [n, c *");
  ADD("depth_to_space_2_62", on_x("DepthToSpace", {int_attribute("blocksize", int64_t{1} << 62)}),
      "expected [n, c *");
  ADD("space_to_depth_2_33", on_x("SpaceToDepth", {int_attribute("blocksize", int64_t{1} << 33)}),
      "expected [n, c, h, w]");
  ADD("lrn_huge", on_x("LRN", {int_attribute("size", kHuge)}));
  ADD("constant_8_gb", alone("ConstantOfShape", {}, {{"s", ints("s", {int64_t{1} << 31})}}),
      "over the limit 'bytes'");
  ADD("constant_square", alone("ConstantOfShape", {}, {{"s", ints("s", {1 << 17, 1 << 16})}}),
      "over the limit 'bytes'");
  ADD("constant_2_62", alone("ConstantOfShape", {}, {{"s", ints("s", {1 << 30, 1 << 30, 4})}}),
      "more than 2^34 elements");
  ADD("sparse", sparse_models(32), "over the limit 'bytes'");
  ADD("loop_endless", endless({node("Neg", {"a"}, {"b"})}), "over the limit 'nodes'");
  ADD("loop_empty", endless({node("Identity", {"a"}, {"b"})}), "over the limit 'nodes'");
  ADD("loop_grows", endless({node("Concat", {"a", "a"}, {"b"}, {int_attribute("axis", 0)})}),
      "over the limit 'bytes'");
  ADD("loop_big", endless({node("Expand", {"a", "s"}, {"e"}), node("ReduceSum", {"e"}, {"b"})},
                          {ints("s", {1024, 2, 64, 64})}));
  ADD("loop_sequence", endless_sequence());
  ADD("loop_traced", endless({node("Neg", {"a"}, {"b"})}), "", "onnx_traced");
  ADD("loop_grows_traced", endless({node("Concat", {"a", "a"}, {"b"}, {int_attribute("axis", 0)})}),
      "", "onnx_traced");
  ADD("functions_double", doubling(50), "over the limit 'nodes'");
  ADD("functions_double_traced", doubling(50), "over the limit 'traced'", "onnx_traced");
  ADD("functions_deep", doubling(70), "more than 64 deep");
  ADD("gradients", gradients(40), "");
  ADD("gradients_deep", gradients(3000), "");
  ADD("expand", on_x("Expand", {}, {{"s", ints("s", {1 << 20, 2, 64, 64})}}));
  ADD("tile", on_x("Tile", {}, {{"s", ints("s", {1, 1 << 14, 1 << 14, 1})}}));
  ADD("range",
      alone("Range", {},
            {{"a", scalar("a", 0)}, {"b", scalar("b", 100000000000)}, {"c", scalar("c", 1)}}),
      "over the limit");
  ADD("range_floats",
      alone("Range", {},
            {{"a", floats("a", {}, {0})},
             {"b", floats("b", {}, {1e11f})},
             {"c", floats("c", {}, {1})}}),
      "over the limit");
  ADD("one_hot",
      nodes({node("OneHot", {"i", "d", "v"}, {"y"})},
            {ints("i", {1, 2}), scalar("d", 1000000000), floats("v", {2}, {0, 1})}),
      "over the limit 'bytes'");
#undef ADD
}

void add_onnx_pads(std::vector<Crafted>& all) {
  const auto add = [&](const char* name, auto bytes, const char* says = "",
                       const char* reader = "onnx") {
    all.push_back({std::string(reader) + "/" + name, reader, std::move(bytes), says});
  };
#define ADD(name, expression, ...) \
  add(                             \
      name, [] { return std::string(expression); }, ##__VA_ARGS__)
  ADD("pad", on_x("Pad", {}, {{"p", ints("p", {0, 0, 1 << 27, 0, 0, 0, 1 << 27, 0})}}));
  ADD("pad_reflect",
      on_x("Pad", {text("mode", "reflect")},
           {{"p", ints("p", {0, 0, 0, 1 << 27, 0, 0, 0, 1 << 27})}}),
      "over the limit 'bytes'");
  ADD("pad_low", on_x("Pad", {}, {{"p", ints("p", {kLow, kLow, 0, 0, kHuge, 0, 0, 0})}}),
      "a number is");
  ADD("crop", on_x("CenterCropPad", {}, {{"s", ints("s", {1, 2, 1 << 28, 1 << 28})}}));
  ADD("random", alone("RandomNormal", {list("shape", {1 << 15, 1 << 15})}),
      "over the limit 'bytes'");
  ADD("random_seeded",
      alone("RandomUniform", {list("shape", {1 << 15, 1 << 15}), number("seed", 3)}),
      "over the limit 'bytes'");
  ADD("multinomial",
      nodes({node("Reshape", {"x", "s"}, {"r"}),
             node("Multinomial", {"r"}, {"y"}, {int_attribute("sample_size", int64_t{1} << 40)})},
            {ints("s", {1, 32})}));
  ADD("resize", on_x("Resize", {}, {{"", ""}, {"s", floats("s", {4}, {1, 1, 9e5f, 9e5f})}}));
  ADD("resize_taps", on_x("Resize", {text("mode", "cubic"), int_attribute("antialias", 1)},
                          {{"", ""}, {"s", floats("s", {4}, {1, 1, 1, 1e-9f})}}));
#undef ADD
}

void add_onnx_ops(std::vector<Crafted>& all) {
  const auto add = [&](const char* name, auto bytes, const char* says = "",
                       const char* reader = "onnx") {
    all.push_back({std::string(reader) + "/" + name, reader, std::move(bytes), says});
  };
#define ADD(name, expression, ...) \
  add(                             \
      name, [] { return std::string(expression); }, ##__VA_ARGS__)
  ADD("average_pool",
      on_x("AveragePool",
           {list("kernel_shape", {1, 1 << 27}), list("pads", {0, 1 << 27, 0, 1 << 27})}),
      "over the limit");
  ADD("lp_pool",
      on_x("LpPool", {list("kernel_shape", {1, 1 << 20}), list("pads", {0, 1 << 20, 0, 1 << 20})}),
      "over the limit");
  ADD("max_pool",
      on_x("MaxPool", {list("kernel_shape", {4096, 4096}), list("pads", {4095, 4095, 4095, 4095})}),
      "over the limit");
  ADD("max_pool_strides",
      on_x("MaxPool", {list("kernel_shape", {2, 2}), list("dilations", {kHuge, kHuge})}),
      "a number is");
  ADD("conv_flops", made("Conv", {1, 1, 4096, 4096}, {1, 1, 2048, 2048}),
      "over the limit 'operations'");
  ADD("matmul_flops",
      nodes({node("ConstantOfShape", {"s"}, {"a"}), node("MatMul", {"a", "a"}, {"y"})},
            {ints("s", {4096, 4096})}),
      "over the limit 'operations'");
  ADD("conv_transpose", on_x("ConvTranspose", {list("strides", {1 << 20, 1 << 20})},
                             {{"w", floats("w", {2, 1, 1, 1}, {1, 1})}}));
  ADD("conv_transpose_shape", on_x("ConvTranspose", {list("output_shape", {1 << 28, 1 << 28})},
                                   {{"w", floats("w", {2, 1, 1, 1}, {1, 1})}}));
  ADD("deform_conv",
      nodes({node("ConstantOfShape", {"sw"}, {"w"}), node("ConstantOfShape", {"so"}, {"o"}),
             node("DeformConv", {"x", "w", "o"}, {"y"}, {list("pads", {500, 500, 500, 500})})},
            {ints("sw", {1, 2, 1000, 1000}), ints("so", {1, 2000000, 5, 5})}, 19));
  ADD("boxes", boxes_model(), "over the limit");
  ADD("regions_average", regions_model("avg"), "over the limit 'operations'");
  ADD("regions_max", regions_model("max"), "over the limit");
  ADD("col2im",
      nodes({node("Reshape", {"x", "s"}, {"r"}), node("Col2Im", {"r", "i", "b"}, {"y"})},
            {ints("s", {1, 32, 1}), ints("i", {1 << 28, 1 << 28, 1 << 28}),
             ints("b", {1 << 28, 1 << 28, 1 << 28})}),
      "does not fit blocks");
  ADD("mel_weights",
      alone("MelWeightMatrix", {},
            {{"a", scalar("a", 1 << 20)},
             {"b", scalar("b", 1 << 14)},
             {"c", scalar("c", 16000)},
             {"d", floats("d", {}, {0})},
             {"e", floats("e", {}, {8000})}}),
      "over the limit 'bytes'");
  ADD("hann", alone("HannWindow", {}, {{"a", scalar("a", int64_t{1} << 33)}}),
      "over the limit 'bytes'");
  ADD("dft",
      nodes({node("Reshape", {"x", "s"}, {"r"}), node("DFT", {"r", "n"}, {"y"})},
            {ints("s", {1, 32, 1}), scalar("n", int64_t{1} << 40)}),
      "is too long");
  ADD("slice_low", on_x("Slice", {},
                        {{"s", ints("s", {kHuge})},
                         {"e", ints("e", {kLow})},
                         {"a", ints("a", {3})},
                         {"t", ints("t", {kLow})}}));
  ADD("unsqueeze", on_x("Unsqueeze", {}, {{"s", ints("s", std::vector<int64_t>(1000, 0))}}));
  ADD("reshape_low", on_x("Reshape", {}, {{"s", ints("s", {kLow, kHuge})}}), "a size is");
  ADD("top_k", on_x("TopK", {}, {{"k", ints("k", {kHuge})}}), "expected the best");
  ADD("split_to_sequence",
      nodes({node("ConstantOfShape", {"s"}, {"n"}), node("SplitToSequence", {"n"}, {"y"})},
            {ints("s", {1 << 24})}));
#undef ADD
}

void add_onnx_texts_and_lists(std::vector<Crafted>& all) {
  const auto add = [&](const char* name, auto bytes, const char* says = "",
                       const char* reader = "onnx") {
    all.push_back({std::string(reader) + "/" + name, reader, std::move(bytes), says});
  };
#define ADD(name, expression, ...) \
  add(                             \
      name, [] { return std::string(expression); }, ##__VA_ARGS__)
  ADD("string_doubles", concatenated(60), "over the limit 'bytes'");
  ADD("string_regex", alone("RegexFullMatch", {text("pattern", "(a*)*b")},
                            {{"t", strings("t", {std::string(2000, 'a')})}}));
  ADD("string_regex_nested",
      alone("RegexFullMatch", {text("pattern", "((a{1,100}){1,100}){1,100}b")},
            {{"t", strings("t", {std::string(200, 'a')})}}));
  ADD("string_split",
      alone("StringSplit", {text("delimiter", ",")},
            {{"t", strings("t",
                           [] {
                             std::vector<std::string> v(20000, "");
                             v[0] = std::string(20000, ',');
                             return v;
                           }())}}),
      "over the limit 'bytes'");
  ADD("ngrams",
      nodes({node("TfIdfVectorizer", {"t"}, {"y"},
                  {int_attribute("min_gram_length", kLow), int_attribute("max_gram_length", kHuge),
                   int_attribute("max_skip_count", kHuge), list("ngram_counts", {0}),
                   list("ngram_indexes", {0}), list("pool_int64s", {1}), text("mode", "TF")})},
            {ints("t", {1, 2, 3})}),
      "grams of");
  ADD("ngrams_wide",
      nodes({node("TfIdfVectorizer", {"t"}, {"y"},
                  {int_attribute("max_gram_length", kHuge), int_attribute("max_skip_count", kHuge),
                   list("ngram_counts", {0}), list("ngram_indexes", {(1 << 28) - 1}),
                   list("pool_int64s", {1}), text("mode", "TF")})},
            {ints("t", {1, 2, 3})}),
      "over the limit 'bytes'");
  ADD("many_attributes", many_attributes());
  ADD("many_functions", many_functions());
  ADD("many_inputs", many_inputs());
#undef ADD
}

}  // namespace

void add_crafted_models(std::vector<Crafted>& all) {
  add_onnx_loops_and_sizes(all);
  add_onnx_pads(all);
  add_onnx_ops(all);
  add_onnx_texts_and_lists(all);
}

}  // namespace tandem::readers
