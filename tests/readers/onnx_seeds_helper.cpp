// SPDX-License-Identifier: Apache-2.0
// Valid ONNX models of one or few nodes, for the readers that take models.
#include "tandem/io/protobuf.h"
#include "tests/onnx/helper.h"
#include "tests/readers/readers.h"

namespace tandem::readers {

using namespace tandem::onnx;

namespace {

std::string ints_attribute(const std::string& name, const std::vector<int64_t>& v) {
  io::ProtoWriter a;
  a.add_bytes(1, name);
  for (const int64_t x : v) a.add_int(8, x);
  a.add_int(20, 7);
  return a.str();
}
std::string int64s(const std::string& name, const std::vector<int64_t>& v) {
  return raw_tensor(name, {static_cast<int64_t>(v.size())}, 7,
                    {reinterpret_cast<const char*>(v.data()), v.size() * 8});
}
/// y = the op of x [1, 2, 4, 4] and of other inputs.
std::string one_node(const std::string& op, const std::vector<std::string>& attributes,
                     const std::vector<std::string>& more = {},
                     const std::vector<std::string>& tensors = {}, int64_t version = 18,
                     size_t outputs = 1) {
  GraphText g;
  std::vector<std::string> in{"x"}, out;
  in.insert(in.end(), more.begin(), more.end());
  for (size_t i = 0; i < outputs; ++i) out.push_back("y" + std::to_string(i));
  g.nodes = {node(op, in, out, attributes)};
  g.initializers = {floats("x", {1, 2, 4, 4}, std::vector<float>(32, 0.5f))};
  g.initializers.insert(g.initializers.end(), tensors.begin(), tensors.end());
  for (const std::string& y : out) g.outputs.push_back(port(y));
  return model(g, version);
}
std::string loop_model() {
  GraphText body, g;
  body.nodes = {node("Add", {"a", "a"}, {"b"})};
  body.initializers = {raw_tensor("again", {}, 9, "\1")};  // true
  body.inputs = {port("i", 7), port("go", 9), port("a")};
  body.outputs = {port("again", 9), port("b")};
  g.nodes = {node("Loop", {"n", "", "x"}, {"y"}, {graph_attribute("body", body.str())})};
  g.initializers = {int64s("n", {3}), floats("x", {2}, {1, 2})};
  g.outputs = {port("y")};
  return model(g);
}
std::string function_model() {
  io::ProtoWriter f;
  f.add_bytes(1, "Twice");
  f.add_bytes(4, "a");
  f.add_bytes(5, "c");
  f.add_bytes(7, node("Add", {"a", "a"}, {"b"}));
  f.add_bytes(7, node("Neg", {"b"}, {"c"}));
  f.add_bytes(9, opset("", 18));
  f.add_bytes(10, "own");
  GraphText g;
  g.nodes = {node("Twice", {"x"}, {"y"}, {}, "own")};
  g.initializers = {floats("x", {2}, {1, 2})};
  g.outputs = {port("y")};
  return model(g, 18, {f.str()});
}

}  // namespace

std::vector<std::string> onnx_seeds() {
  return {
      one_node("Split", {int_attribute("num_outputs", 2), int_attribute("axis", 1)}, {}, {}, 18, 2),
      one_node("DepthToSpace", {int_attribute("blocksize", 1)}),
      one_node("LRN", {int_attribute("size", 3)}),
      one_node("MaxPool",
               {ints_attribute("kernel_shape", {2, 2}), ints_attribute("pads", {1, 1, 1, 1})}),
      one_node("AveragePool",
               {ints_attribute("kernel_shape", {2, 2}), ints_attribute("strides", {2, 2})}),
      one_node("Conv", {ints_attribute("kernel_shape", {2, 2})}, {"w"},
               {floats("w", {3, 2, 2, 2}, std::vector<float>(24, 1))}),
      one_node("ConvTranspose", {ints_attribute("strides", {2, 2})}, {"w"},
               {floats("w", {2, 3, 2, 2}, std::vector<float>(24, 1))}),
      one_node("Pad", {}, {"p"}, {int64s("p", {0, 0, 1, 1, 0, 0, 1, 1})}),
      one_node("Slice", {}, {"s", "e", "a", "t"},
               {int64s("s", {0}), int64s("e", {9}), int64s("a", {3}), int64s("t", {2})}),
      one_node("Resize", {}, {"", "k"}, {floats("k", {4}, {1, 1, 2, 2})}),
      one_node("Tile", {}, {"r"}, {int64s("r", {1, 2, 1, 1})}),
      one_node("Expand", {}, {"r"}, {int64s("r", {2, 2, 4, 4})}),
      one_node("Reshape", {}, {"r"}, {int64s("r", {-1, 4})}),
      one_node("TopK", {}, {"k"}, {int64s("k", {2})}, 18, 2),
      one_node("GatherND", {}, {"k"}, {raw_tensor("k", {1, 1}, 7, std::string(8, '\0'))}),
      one_node("CumSum", {}, {"k"}, {int64s("k", {2})}),
      one_node("Einsum", {[] {
                 io::ProtoWriter a;
                 a.add_bytes(1, "equation");
                 a.add_bytes(4, "abcd,abcd->ab");
                 a.add_int(20, 3);
                 return a.str();
               }()},
               {"x"}),
      loop_model(),
      function_model()};
}

}  // namespace tandem::readers
