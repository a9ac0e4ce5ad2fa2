// SPDX-License-Identifier: Apache-2.0
// A GraphDef as JSON, as protobuf's own mapping and TensorFlow.js's converter write it, back to the
// bytes that the one parser of graphs reads. https://protobuf.dev/programming-guides/json
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tandem/base/base64.h"
#include "tandem/base/budget.h"
#include "tandem/io/protobuf.h"
#include "tandem/io/tensorflow/tensor_bundle.h"
#include "tandem/onnx/tensorflow/keras_internal.h"
#include "tandem/onnx/tensorflow/tfjs_internal.h"

namespace tandem::onnx {
namespace {

using io::Json;
using io::ProtoWriter;

/// Adds one node after the other to the message that holds them.
class GraphWriter {
 public:
  GraphWriter(const std::map<std::string, const TfjsWeight*>& weights, const std::string& what)
      : weights_(weights), what_(what) {}

  std::string run(const Json& topology) {
    ProtoWriter graph;
    nodes(topology.find("node"), "", graph, 1);
    if (const Json* library = topology.find("library"))
      for (const Json& f : keras_entries(library->find("function"))) functions(f);
    if (!library_.str().empty()) graph.add_message(2, library_);
    return graph.take();
  }

 private:
  [[noreturn]] void fail(const std::string& node, const std::string& why) const {
    TD_FAIL(Format, "'{}': the node '{}' {}", what_, node, why);
  }
  std::string bytes_of(const Json& j, const std::string& node) const {
    const std::optional<std::string> out = from_base64(io::text_of(&j));
    if (!out) fail(node, "has a text that is not base64");
    return *out;
  }

  static ProtoWriter shape_of(const Json& j) {
    ProtoWriter out;
    for (const Json& d : keras_entries(j.find("dim"))) {
      ProtoWriter dim;
      if (const Json* size = d.find("size")) dim.add_int(1, tfjs_integer(*size));
      out.add_message(2, dim);
    }
    if (const Json* unknown = j.find("unknownRank"); unknown && unknown->as_bool())
      out.add_varint(3, *unknown->as_bool() ? 1 : 0);
    return out;
  }

  static constexpr uint64_t kCopies = 2;  ///< while the message around it grows
  static uint64_t size_of(const TfjsWeight& w) {
    uint64_t n = w.bytes.size();
    for (const std::string& t : w.texts) n += t.size();
    return n;
  }

  // A constant: its values are a weight of its name, or stand in the JSON.
  ProtoWriter tensor_of(const Json& j, const std::string& node, const std::string& scope) const {
    ProtoWriter out;
    const auto at = weights_.find(scope + node);
    if (at != weights_.end()) {
      const TfjsWeight& w = *at->second;
      // Any number of nodes may name one weight: each copies it, and the graph holds all copies.
      Budget::take(kCopies * size_of(w));
      out.add_int(1, w.type);
      ProtoWriter shape;
      for (const int64_t size : w.shape) {
        ProtoWriter dim;
        dim.add_int(1, size);
        shape.add_message(2, dim);
      }
      out.add_message(2, shape);
      if (!w.bytes.empty()) out.add_bytes(4, w.bytes);
      for (const std::string& t : w.texts) out.add_bytes(8, t);
      return out;
    }
    out.add_int(1, tfjs_type(j.find("dtype")));
    if (const Json* shape = j.find("tensorShape")) out.add_message(2, shape_of(*shape));
    if (const Json* content = j.find("tensorContent")) out.add_bytes(4, bytes_of(*content, node));
    for (const Json& v : keras_entries(j.find("floatVal")))
      out.add_float(5, static_cast<float>(io::number_of(&v)));
    for (const Json& v : keras_entries(j.find("doubleVal"))) out.add_double(6, io::number_of(&v));
    for (const Json& v : keras_entries(j.find("stringVal"))) out.add_bytes(8, bytes_of(v, node));
    constexpr std::pair<const char*, uint32_t> kWhole[] = {
        {"intVal", 7}, {"int64Val", 10}, {"halfVal", 13}, {"uint32Val", 16}, {"uint64Val", 17}};
    for (const auto& [key, field] : kWhole)
      for (const Json& v : keras_entries(j.find(key))) out.add_int(field, tfjs_integer(v));
    for (const Json& v : keras_entries(j.find("boolVal")))
      out.add_int(11, v.as_bool() && *v.as_bool());
    return out;
  }

  ProtoWriter list_of(const Json& j, const std::string& node) const {
    ProtoWriter out;
    for (const Json& v : keras_entries(j.find("s"))) out.add_bytes(2, bytes_of(v, node));
    for (const Json& v : keras_entries(j.find("i"))) out.add_int(3, tfjs_integer(v));
    for (const Json& v : keras_entries(j.find("f")))
      out.add_float(4, static_cast<float>(io::number_of(&v)));
    for (const Json& v : keras_entries(j.find("b"))) out.add_int(5, v.as_bool() && *v.as_bool());
    for (const Json& v : keras_entries(j.find("type"))) out.add_int(6, tfjs_type(&v));
    for (const Json& v : keras_entries(j.find("shape"))) out.add_message(7, shape_of(v));
    for (const Json& v : keras_entries(j.find("func"))) out.add_message(9, function_name(v));
    return out;
  }
  static ProtoWriter function_name(const Json& j) {
    ProtoWriter out;
    out.add_bytes(1, io::text_of(j.find("name")));
    return out;
  }

  ProtoWriter attribute(const Json& j, const std::string& node, const std::string& scope) const {
    ProtoWriter out;
    if (const Json* v = j.find("list")) out.add_message(1, list_of(*v, node));
    if (const Json* v = j.find("s")) out.add_bytes(2, bytes_of(*v, node));
    if (const Json* v = j.find("i")) out.add_int(3, tfjs_integer(*v));
    if (const Json* v = j.find("f")) out.add_float(4, static_cast<float>(io::number_of(v)));
    if (const Json* v = j.find("b")) out.add_int(5, v->as_bool() && *v->as_bool());
    if (const Json* v = j.find("type")) out.add_int(6, tfjs_type(v));
    if (const Json* v = j.find("shape")) out.add_message(7, shape_of(*v));
    if (const Json* v = j.find("tensor")) out.add_message(8, tensor_of(*v, node, scope));
    if (const Json* v = j.find("func")) out.add_message(10, function_name(*v));
    return out;
  }

  static void put_attribute(ProtoWriter& node, std::string_view key, const ProtoWriter& value) {
    ProtoWriter entry;
    entry.add_bytes(1, key);
    entry.add_message(2, value);
    node.add_message(5, entry);
  }
  static ProtoWriter named(const std::string& name, const std::string& op) {
    ProtoWriter out;
    out.add_bytes(1, name);
    out.add_bytes(2, op);
    return out;
  }
  /// A node of inputs alone, on floats.
  void plain(const std::string& name, const std::string& op, const std::vector<std::string>& inputs,
             ProtoWriter& to, uint32_t field, const ProtoWriter* alpha = nullptr) const {
    ProtoWriter out = named(name, op), type;
    for (const std::string& i : inputs) out.add_bytes(3, i);
    type.add_int(6, 1);
    put_attribute(out, "T", type);
    if (alpha) put_attribute(out, "alpha", *alpha);
    to.add_message(field, out);
  }

  // x where it is positive, else alpha times x.
  void prelu(const std::string& name, const std::string& x, const std::string& alpha,
             ProtoWriter& to, uint32_t field) const {
    plain(name + "/positive", "Relu", {x}, to, field);
    plain(name + "/minus", "Neg", {x}, to, field);
    plain(name + "/negative", "Relu", {name + "/minus"}, to, field);
    plain(name + "/scaled", "Mul", {alpha, name + "/negative"}, to, field);
    plain(name, "Sub", {name + "/positive", name + "/scaled"}, to, field);
  }

  // A convolution or matmul with what follows it.
  void fused(const Json& j, const std::string& name, const std::string& op,
             const std::vector<std::string>& inputs, ProtoWriter& to, uint32_t field) const {
    const Json* attributes = j.find("attr");
    const Json* own = attributes ? attributes->find("fused_ops") : nullptr;
    std::vector<std::string> steps;
    if (own && own->find("list"))
      for (const Json& s : keras_entries(own->find("list")->find("s")))
        steps.push_back(bytes_of(s, name));
    if (steps.empty() || inputs.size() < 2) fail(name, "has no fused_ops, or too few inputs");
    constexpr std::string_view kOwn[] = {
        "T",       "data_format", "dilations",   "explicit_paddings",
        "padding", "strides",     "transpose_a", "transpose_b"};
    ProtoWriter base = named(name + "/first", op);
    for (int i = 0; i < 2; ++i) base.add_bytes(3, inputs[static_cast<size_t>(i)]);
    std::optional<ProtoWriter> alpha;
    if (const Json::Object* all = attributes->as_object())
      for (const auto& [key, value] : *all) {
        if (key == "leakyrelu_alpha") alpha = attribute(value, name, "");
        if (std::find(std::begin(kOwn), std::end(kOwn), key) != std::end(kOwn))
          put_attribute(base, key, attribute(value, name, ""));
      }
    to.add_message(field, base);
    std::string x = name + "/first";
    size_t next = 2;
    std::erase(steps, "NoOp");  // in the place of a bias
    if (steps.empty()) plain(name, "Identity", {x}, to, field);
    for (size_t k = 0; k < steps.size(); ++k) {
      const std::string out = k + 1 == steps.size() ? name : fmt::format("{}/step{}", name, k);
      const bool takes = steps[k] == "BiasAdd" || steps[k] == "Prelu";
      if (takes && next >= inputs.size()) fail(name, "has too few inputs for its fused_ops");
      // What is added may be another image; TensorFlow.js has the channels last.
      if (steps[k] == "BiasAdd")
        plain(out, "AddV2", {x, inputs[next++]}, to, field);
      else if (steps[k] == "Prelu")
        prelu(out, x, inputs[next++], to, field);
      else
        plain(out, steps[k], {x}, to, field, steps[k] == "LeakyRelu" && alpha ? &*alpha : nullptr);
      x = out;
    }
  }

  void nodes(const Json* all, const std::string& scope, ProtoWriter& to, uint32_t field) {
    for (const Json& j : keras_entries(all)) {
      Budget::count();
      const std::string name = io::text_of(j.find("name")), op = io::text_of(j.find("op"));
      std::vector<std::string> inputs;
      for (const Json& i : keras_entries(j.find("input"))) inputs.push_back(io::text_of(&i));
      constexpr std::pair<const char*, const char*> kFused[] = {
          {"_FusedConv2D", "Conv2D"},
          {"FusedDepthwiseConv2dNative", "DepthwiseConv2dNative"},
          {"_FusedDepthwiseConv2dNative", "DepthwiseConv2dNative"},
          {"_FusedMatMul", "MatMul"}};
      const auto* const fused_op = std::find_if(std::begin(kFused), std::end(kFused),
                                                [&](const auto& f) { return op == f.first; });
      if (fused_op != std::end(kFused)) {
        fused(j, name, fused_op->second, inputs, to, field);
        continue;
      }
      if (op == "Prelu" && inputs.size() == 2) {
        prelu(name, inputs[0], inputs[1], to, field);
        continue;
      }
      ProtoWriter out = named(name, op);
      for (const std::string& i : inputs) out.add_bytes(3, i);
      const Json* attributes = j.find("attr");
      if (const Json::Object* own = attributes ? attributes->as_object() : nullptr)
        for (const auto& [key, value] : *own)
          put_attribute(out, key, attribute(value, name, scope));
      to.add_message(field, out);
    }
  }

  static ProtoWriter argument(const Json& j) {
    ProtoWriter out;
    out.add_bytes(1, io::text_of(j.find("name")));
    out.add_int(3, tfjs_type(j.find("type")));
    return out;
  }
  void functions(const Json& j) {
    ProtoWriter out, signature;
    const Json* s = j.find("signature");
    if (!s) TD_FAIL(Format, "'{}': a function has no signature", what_);
    const std::string name = io::text_of(s->find("name"));
    signature.add_bytes(1, name);
    for (const Json& a : keras_entries(s->find("inputArg"))) signature.add_message(2, argument(a));
    for (const Json& a : keras_entries(s->find("outputArg"))) signature.add_message(3, argument(a));
    out.add_message(1, signature);
    nodes(j.find("nodeDef"), name + "/", out, 3);
    for (const auto& [key, field] : {std::pair<const char*, uint32_t>{"ret", 4}, {"controlRet", 6}})
      if (const Json* map = j.find(key); map && map->as_object())
        for (const auto& [output, value] : *map->as_object()) {
          ProtoWriter entry;
          entry.add_bytes(1, output);
          entry.add_bytes(2, io::text_of(&value));
          out.add_message(field, entry);
        }
    library_.add_message(1, out);
  }

  const std::map<std::string, const TfjsWeight*>& weights_;
  const std::string& what_;
  ProtoWriter library_;
};

}  // namespace

int64_t tfjs_integer(const Json& j) {
  if (j.as_int()) return *j.as_int();
  int64_t v = 0;
  if (const std::string* s = j.as_string()) std::from_chars(s->data(), s->data() + s->size(), v);
  return v;
}

const io::TfTypeInfo* tfjs_type_named(std::string_view name) {
  constexpr int kMostTypes = 64;
  for (int number = 1; number < kMostTypes; ++number)
    if (const io::TfTypeInfo* t = io::find_tf_type(number);
        t && (name == t->name || name == t->proto))
      return t;
  return nullptr;
}

int64_t tfjs_type(const Json* j) {
  const std::string* name = j ? j->as_string() : nullptr;
  if (!name) return io::whole_of(j);
  const io::TfTypeInfo* t = tfjs_type_named(*name);
  return t ? t->number : 0;
}

std::string tfjs_graph_bytes(const Json& topology,
                             const std::map<std::string, const TfjsWeight*>& weights,
                             const std::string& what) {
  return GraphWriter(weights, what).run(topology);
}

}  // namespace tandem::onnx
