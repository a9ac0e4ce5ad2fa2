// SPDX-License-Identifier: Apache-2.0
// Small ONNX models written by hand, for tests.
#pragma once

#include <string>
#include <vector>

#include "tandem/io/protobuf.h"
#include "tandem/onnx/onnx.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

using io::ProtoWriter;

/// An integer attribute.
inline std::string int_attribute(const std::string& name, int64_t v) {
  ProtoWriter a;
  a.add_bytes(1, name);
  a.add_int(3, v);
  a.add_int(20, 2);
  return a.str();
}
inline std::string ints_attribute(const std::string& name, const std::vector<int64_t>& v) {
  ProtoWriter a;
  a.add_bytes(1, name);
  for (const int64_t i : v) a.add_int(8, i);
  a.add_int(20, 7);
  return a.str();
}
inline std::string float_attribute(const std::string& name, float v) {
  ProtoWriter a;
  a.add_bytes(1, name);
  a.add_float(2, v);
  a.add_int(20, 1);
  return a.str();
}
inline std::string text_attribute(const std::string& name, const std::string& v) {
  ProtoWriter a;
  a.add_bytes(1, name);
  a.add_bytes(4, v);
  a.add_int(20, 3);
  return a.str();
}
inline std::string graph_attribute(const std::string& name, const std::string& graph) {
  ProtoWriter a;
  a.add_bytes(1, name);
  a.add_bytes(6, graph);
  a.add_int(20, 5);
  return a.str();
}
inline std::string ref_attribute(const std::string& name, const std::string& of, int64_t type) {
  ProtoWriter a;
  a.add_bytes(1, name);
  a.add_bytes(21, of);
  a.add_int(20, type);
  return a.str();
}

inline std::string node(const std::string& op, const std::vector<std::string>& in,
                        const std::vector<std::string>& out,
                        const std::vector<std::string>& attributes = {},
                        const std::string& domain = "") {
  ProtoWriter n;
  for (const std::string& i : in) n.add_bytes(1, i);
  for (const std::string& o : out) n.add_bytes(2, o);
  n.add_bytes(4, op);
  for (const std::string& a : attributes) n.add_bytes(5, a);
  if (!domain.empty()) n.add_bytes(7, domain);
  return n.str();
}

/// A float or int64 tensor in raw_data.
inline std::string raw_tensor(const std::string& name, const std::vector<int64_t>& dims, int type,
                              const std::string& raw) {
  ProtoWriter t;
  t.add_packed(1, dims);
  t.add_int(2, type);
  t.add_bytes(8, name);
  t.add_bytes(9, raw);
  return t.str();
}
inline std::string floats(const std::string& name, const std::vector<int64_t>& dims,
                          const std::vector<float>& v) {
  return raw_tensor(name, dims, 1, {reinterpret_cast<const char*>(v.data()), v.size() * 4});
}

/// A port of f32 of any shape.
inline std::string port(const std::string& name, int type = 1) {
  ProtoWriter tensor, t, p;
  tensor.add_int(1, type);
  t.add_message(1, tensor);
  p.add_bytes(1, name);
  p.add_message(2, t);
  return p.str();
}

struct GraphText {
  std::vector<std::string> nodes, initializers, inputs, outputs;  ///< ports: encoded or by port()
  std::string str() const {
    ProtoWriter g;
    for (const std::string& n : nodes) g.add_bytes(1, n);
    g.add_bytes(2, "g");
    for (const std::string& i : initializers) g.add_bytes(5, i);
    for (const std::string& i : inputs) g.add_bytes(11, i);
    for (const std::string& o : outputs) g.add_bytes(12, o);
    return g.str();
  }
};

inline std::string opset(const std::string& domain, int64_t version) {
  ProtoWriter o;
  o.add_bytes(1, domain);
  o.add_int(2, version);
  return o.str();
}

inline std::string model(const GraphText& g, int64_t version = 18,
                         const std::vector<std::string>& functions = {}) {
  ProtoWriter m;
  m.add_int(1, 8);
  m.add_bytes(8, opset("", version));
  if (!functions.empty()) m.add_bytes(8, opset("own", 1));
  m.add_bytes(7, g.str());
  for (const std::string& f : functions) m.add_bytes(25, f);
  return m.str();
}

}  // namespace tandem::onnx
