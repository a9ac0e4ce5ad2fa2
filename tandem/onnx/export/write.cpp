// SPDX-License-Identifier: Apache-2.0
// Field by field as in onnx.proto.
#include "tandem/onnx/export/write.h"

#include "tandem/onnx/import/tensor_internal.h"

namespace tandem::onnx {
namespace {

using io::ProtoWriter;

using External = std::map<std::string, OnnxExternalData>;

ProtoWriter pair_of(const std::string& key, const std::string& value) {
  ProtoWriter w;
  w.add_bytes(1, key);
  w.add_bytes(2, value);
  return w;
}

ProtoWriter tensor_of(const OnnxValue& v, const std::string& name, const OnnxExternalData* at) {
  TD_CHECK(v.is_tensor() || v.is_strings(), Unsupported, "the constant '{}' is {}", name,
           v.describe());
  ProtoWriter w;
  w.add_packed(1, v.shape());
  w.add_int(2, static_cast<int64_t>(v.type()));
  if (v.is_strings())
    for (const std::string& s : v.strings().values) w.add_bytes(6, s);
  if (!name.empty()) w.add_bytes(8, name);
  if (at) {
    w.add_message(13, pair_of("location", at->location));
    w.add_message(13, pair_of("offset", std::to_string(at->offset)));
    w.add_message(13, pair_of("length", std::to_string(at->length)));
    w.add_int(14, 1);
  } else if (v.is_tensor()) {
    w.add_bytes(9, raw_bytes(v));
  }
  return w;
}

ProtoWriter type_of(const OnnxTypeSpec& t) {
  using Kind = OnnxTypeSpec::Kind;
  ProtoWriter inner, w;
  if (t.kind == Kind::tensor) {
    inner.add_int(1, static_cast<int64_t>(t.elem));
    if (t.has_shape) {
      ProtoWriter shape;
      for (size_t i = 0; i < t.dims.size(); ++i) {
        ProtoWriter d;
        if (t.dims[i] >= 0)
          d.add_int(1, t.dims[i]);
        else if (i < t.dim_names.size() && !t.dim_names[i].empty())
          d.add_bytes(2, t.dim_names[i]);
        shape.add_message(1, d);
      }
      inner.add_message(2, shape);
    }
    w.add_message(1, inner);
  } else if (t.inside) {
    inner.add_message(1, type_of(*t.inside));
    w.add_message(t.kind == Kind::sequence ? 4 : 9, inner);
  }
  return w;
}

ProtoWriter port_of(const OnnxPort& p) {
  ProtoWriter w;
  w.add_bytes(1, p.name);
  if (p.type.kind != OnnxTypeSpec::Kind::none) w.add_message(2, type_of(p.type));
  return w;
}

ProtoWriter graph_of(const OnnxGraph& g, const External& external);

ProtoWriter attribute_of(const OnnxAttribute& a, const External& external) {
  ProtoWriter w;
  w.add_bytes(1, a.name);
  if (!a.ref.empty()) w.add_bytes(21, a.ref);
  switch (a.ref.empty() ? a.kind : OnnxAttribute::none) {
    case OnnxAttribute::f:
      w.add_float(2, a.float_value);
      break;
    case OnnxAttribute::i:
      w.add_int(3, a.int_value);
      break;
    case OnnxAttribute::s:
      w.add_bytes(4, a.text);
      break;
    case OnnxAttribute::t:
      w.add_message(5, tensor_of(a.tensor, "", nullptr));
      break;
    case OnnxAttribute::g:
    case OnnxAttribute::graphs:
      for (const auto& g : a.graph_list)
        w.add_message(a.kind == OnnxAttribute::g ? 6 : 11, graph_of(*g, external));
      break;
    case OnnxAttribute::floats:
      for (const float v : a.float_list) w.add_float(7, v);
      break;
    case OnnxAttribute::ints:
      for (const int64_t v : a.int_list) w.add_int(8, v);
      break;
    case OnnxAttribute::strings:
      for (const std::string& s : a.text_list) w.add_bytes(9, s);
      break;
    case OnnxAttribute::tensors:
      for (const OnnxValue& v : a.tensor_list) w.add_message(10, tensor_of(v, "", nullptr));
      break;
    case OnnxAttribute::type:
      w.add_message(14, type_of(a.type_spec));
      break;
    case OnnxAttribute::none:
    case OnnxAttribute::sparse:
      break;
  }
  TD_CHECK(a.kind != OnnxAttribute::sparse, Unsupported, "sparse constants are not supported");
  w.add_int(20, a.kind);
  return w;
}

ProtoWriter node_of(const OnnxNode& n, const External& external) {
  ProtoWriter w;
  for (const std::string& s : n.inputs) w.add_bytes(1, s);
  for (const std::string& s : n.outputs) w.add_bytes(2, s);
  if (!n.name.empty()) w.add_bytes(3, n.name);
  w.add_bytes(4, n.op);
  for (const OnnxAttribute& a : n.attributes) w.add_message(5, attribute_of(a, external));
  if (!n.domain.empty()) w.add_bytes(7, n.domain);
  if (!n.overload.empty()) w.add_bytes(8, n.overload);
  return w;
}

ProtoWriter graph_of(const OnnxGraph& g, const External& external) {
  ProtoWriter w;
  for (const OnnxNode& n : g.nodes) w.add_message(1, node_of(n, external));
  w.add_bytes(2, g.name);
  for (const auto& [name, value] : g.initializers) {
    const auto at = external.find(name);
    w.add_message(5, tensor_of(value, name, at == external.end() ? nullptr : &at->second));
  }
  for (const OnnxPort& p : g.inputs) w.add_message(11, port_of(p));
  for (const OnnxPort& p : g.outputs) w.add_message(12, port_of(p));
  return w;
}

ProtoWriter opset_of(const std::string& domain, int64_t version) {
  ProtoWriter w;
  w.add_bytes(1, domain);
  w.add_int(2, version);
  return w;
}

ProtoWriter function_of(const OnnxFunction& f) {
  static const External none;
  ProtoWriter w;
  w.add_bytes(1, f.name);
  for (const OnnxPort& p : f.body.inputs) w.add_bytes(4, p.name);
  for (const OnnxPort& p : f.body.outputs) w.add_bytes(5, p.name);
  for (const std::string& a : f.attributes) w.add_bytes(6, a);
  for (const OnnxNode& n : f.body.nodes) w.add_message(7, node_of(n, none));
  for (const auto& [domain, version] : f.opsets) w.add_message(9, opset_of(domain, version));
  w.add_bytes(10, f.domain);
  for (const OnnxAttribute& a : f.default_attributes) w.add_message(11, attribute_of(a, none));
  if (!f.overload.empty()) w.add_bytes(13, f.overload);
  return w;
}

}  // namespace

std::string write_onnx_model(const OnnxModelProto& m, const External& external) {
  ProtoWriter w;
  w.add_int(1, m.ir_version);
  if (!m.producer.empty()) w.add_bytes(2, m.producer);
  w.add_bytes(3, TANDEM_VERSION);
  if (!m.domain.empty()) w.add_bytes(4, m.domain);
  w.add_int(5, m.model_version);
  w.add_message(7, graph_of(m.graph, external));
  for (const auto& [domain, version] : m.opsets) w.add_message(8, opset_of(domain, version));
  for (const auto& [key, value] : m.metadata) w.add_message(14, pair_of(key, value));
  for (const OnnxFunction& f : m.functions) w.add_message(25, function_of(f));
  TD_CHECK(w.str().size() < (size_t{1} << 31), Value,
           "the model has {} bytes, readers of protocol buffers take 2 GB\nPut the weights into a "
           "separate file.",
           w.str().size());
  return w.str();
}

}  // namespace tandem::onnx
