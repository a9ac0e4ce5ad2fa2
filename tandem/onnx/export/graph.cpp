// SPDX-License-Identifier: Apache-2.0
// From the nodes of a trace to ONNX nodes. A row is expressed by its exporter, its ONNX name, its
// expression, its body, or, if ONNX has no equivalent, by a node of our own domain: the first of
// these that works.
#include <algorithm>
#include <unordered_map>

#include "tandem/graph/expression/scalar_expr.h"
#include "tandem/graph/infer.h"
#include "tandem/onnx/import/build_internal.h"
#include "tandem/ops/ops.h"
#include "tandem/ops/stored.h"

namespace tandem::onnx {

OnnxExport find_onnx_export(const OpDef& op) {
  static const auto* const table = [] {
    auto* t = new std::unordered_map<const OpDef*, OnnxExport>;
    for (const auto& family : onnx_rows())
      for (const OnnxRow& r : family)
        if (r.exporter) t->emplace(r.op, r.exporter);
    return t;
  }();
  const auto at = table->find(&op);
  return at == table->end() ? nullptr : at->second;
}

// ---- OnnxExportCall

std::string OnnxExportCall::x(size_t i, DType as) const {
  const In& v = in.at(i);
  return v.is_number ? b.number(v.number, as) : b.cast(v.name, v.spec.dtype, as);
}
std::string OnnxExportCall::x(size_t i) const {
  const In& v = in.at(i);
  return v.is_number ? b.number(v.number, v.number.dtype()) : v.name;
}

int OnnxExportCall::axis(int64_t dim, size_t i) const {
  return rank(i) == 0 ? 0 : normalize_dim(dim, rank(i));
}

bool OnnxExportCall::by_ops(FunctionRef<std::vector<Tensor>(std::span<const Tensor>)> f) {
  std::vector<Spec> specs;
  Names names;
  for (const In& i : in)
    if (!i.name.empty()) {
      specs.push_back(i.spec);
      names.push_back(i.name);
    }
  NoGradGuard no_grad;
  std::vector<char> set;
  const auto body = [&](std::span<const Tensor> x) {
    std::vector<Tensor> all;
    size_t at = 0;
    for (const In& i : in) all.push_back(i.name.empty() ? Tensor() : x[at++]);
    std::vector<Tensor> y = f(all), defined;
    y.resize(result.size());
    for (size_t o = 0; o < y.size(); ++o) {
      set.push_back(y[o].defined() && wanted(o));
      if (set.back()) defined.push_back(y[o]);
    }
    return defined;
  };
  const Ref<Graph> g = trace(body, specs, Captures::as_inputs);
  for (const Graph::Capture& c : g->captures) {
    TD_ASSERT(!c.outer.is_symbolic());
    names.push_back(b.constant(c.outer));
    g->inputs.push_back(c.inner);
  }
  const Names made = b.inline_graph(*g, names);
  size_t at = 0;
  for (size_t o = 0; o < result.size(); ++o) {
    if (!set[o]) continue;
    const Tensor& y = g->outputs[at];
    TD_CHECK(y.dtype() == out[o].dtype, Internal, "exporter of {}: output {} is {}, expected {}",
             op.name, o, to_string(y.dtype()), to_string(out[o].dtype));
    result[o] = made[at++];
  }
  return true;
}

namespace {

// ---- one to one: the row's ONNX name, if all operands have the type it computes in

bool is_one_op(const OpDef& op) {
  const ScalarGraph& g = expr_of(op);
  return g.outputs.size() == 1 && g.nodes.size() == static_cast<size_t>(g.n_in) + 1;
}

bool export_direct(OnnxExportCall& c) {
  if (!c.op.onnx_name || c.op.attrs || c.op.family != Family::pointwise) return false;
  if (!find_onnx_op(c.op.onnx_name)) return false;
  const bool tests = c.op.types == Types::compare;
  const size_t first = c.op.types == Types::where ? 1 : 0;
  DType t = c.out[0].dtype;
  if (tests || c.op.types == Types::logical)
    for (const auto& i : c.in)
      if (!i.is_number) {
        t = i.spec.dtype;
        break;
      }
  if (is_floating(t)
          ? c.op.types == Types::logical || c.op.types == Types::bits
          : t != DType::i64 && t != DType::i32 && !(t == DType::b8 && c.op.types == Types::logical))
    return false;
  if (!is_floating(t) && (!is_one_op(c.op) || c.op.types == Types::floating)) return false;
  if (c.op.types == Types::bits && c.b.opset() < 18) return false;
  Names in;
  for (size_t i = 0; i < c.in.size(); ++i) {
    const auto& v = c.in[i];
    if (i < first) {
      if (v.is_number || v.spec.dtype != DType::b8) return false;
    } else if (v.is_number) {
      // A number of a higher category would change the type of the computation.
      if (v.number.kind == 2 && !is_floating(t)) return false;
    } else if (v.spec.dtype != t) {
      return false;
    }
    in.push_back(c.x(i, i < first ? DType::b8 : t));
  }
  c.set(0, c.b.node(c.op.onnx_name, in));
  Shape shape;
  for (const auto& v : c.in)
    if (!v.is_number) shape = broadcast_shapes(shape, v.spec.shape);
  if (!(shape == c.out[0].shape)) c.set(0, c.b.expand(c.result[0], c.out[0].shape));
  return true;
}

// ---- from its body

bool export_body(OnnxExportCall& c) {
  if (!c.op.body_fn) return false;
  bool hidden = false;
  for (int o = c.op.shown(); o < c.op.n_out; ++o) hidden |= c.wanted(static_cast<size_t>(o));
  return c.by_ops([&](std::span<const Tensor> x) {
    std::vector<Scalar> numbers;
    for (const auto& i : c.in) numbers.push_back(i.number);
    BodyCall body{c.op, c.attrs, x, numbers, {}, hidden};
    c.op.body_fn(body);
    return std::vector<Tensor>(body.out, body.out + c.op.n_out);
  });
}

// ---- attributes of our own domain

class WriteAttributes : public AttrVisitor {
 public:
  explicit WriteAttributes(const char* op) : op_(op) {}
  OnnxAttributes out;
  void operator()(const char* name, int64_t& v) override { out.push_back(onnx_int(name, v)); }
  void operator()(const char* name, double& v) override {
    out.push_back(onnx_tensor(name, full({}, v, DType::f64)));
  }
  void operator()(const char* name, bool& v) override { out.push_back(onnx_int(name, v)); }
  void operator()(const char* name, DType& v) override {
    out.push_back(onnx_int(name, static_cast<int64_t>(onnx_type_of(v))));
  }
  void operator()(const char* name, std::string& v) override { out.push_back(onnx_text(name, v)); }
  void operator()(const char* name, IntList& v) override {
    out.push_back(onnx_ints(name, onnx_numbers(v, op_)));
  }
  void operator()(const char* name, Scalar& v) override {
    out.push_back(onnx_tensor(name, full({}, v,
                                         v.kind == 2   ? DType::f64
                                         : v.kind == 1 ? DType::i64
                                                       : DType::b8)));
  }
  void operator()(const char* name, std::vector<int64_t>& v) override {
    out.push_back(onnx_ints(name, v));
  }
  void operator()(const char* name, Ref<RefCounted>&) override {
    TD_FAIL(Unsupported, "{}: its attribute '{}' holds a function, which no file can", op_, name);
  }

 private:
  const char* op_;
};

}  // namespace

void export_custom(OnnxExportCall& c) {
  WriteAttributes attributes(c.op.name);
  if (c.attrs) {
    AttrsHolder copy(c.op.attrs, c.attrs);
    c.op.attrs->visit(const_cast<void*>(copy.get()), attributes);
  }
  Names in;
  for (size_t i = 0; i < c.in.size(); ++i)
    in.push_back(!c.has(i) ? ""
                           : c.x(i, c.in[i].is_number && c.in[i].number.kind == 2 ? DType::f64
                                    : c.in[i].is_number ? c.in[i].number.dtype()
                                                        : c.dtype(i)));
  c.result = c.b.add(c.op.name, in, c.out.size(), std::move(attributes.out), kOnnxTandem);
  c.b.custom.insert(c.op.name);
  c.b.random |= c.op.has(kRandom);
}

// ---- graphs

void OnnxBuilder::add_node(const Node& n, const std::vector<char>& wants, Values& values) {
  Names& out = values[n.index];
  if (n.op == &op::constant) {
    const auto& a = *static_cast<const ConstantAttrs*>(n.attrs.get());
    out = {constant(constant_value(a))};
    return;
  }
  OnnxExportCall c{*this, *n.op, n.attrs.get(), {}, {}, wants, Names(n.out.size())};
  for (const NodeInput& i : n.in) {
    OnnxExportCall::In v;
    if (i.is_scalar) {
      v.is_number = true;
      v.number = i.scalar;
    } else if (i.present) {
      v.name = values[i.from->index][i.from_index];
      const NodeOutput& from = i.from->out[i.from_index];
      v.spec = Spec(from.dtype, from.shape);
    }
    c.in.push_back(std::move(v));
  }
  for (const NodeOutput& o : n.out) c.out.emplace_back(o.dtype, o.shape);
  try {
    const OnnxExport own = find_onnx_export(*n.op);
    if (!(own && own(c)) && !export_direct(c) && !export_expression(c) && !export_body(c))
      export_custom(c);
  } catch (const Error& e) {
    if (!e.op().empty() && !e.layer().empty()) throw;
    throw Error(e.kind(), e.message(), e.hint(), std::string("export of ") + n.op->name, n.loc,
                scope_path(n.scope));
  }
  out = std::move(c.result);
}

void OnnxBuilder::add_nodes(const Graph& g, std::span<const Tensor> wanted, Values& values) {
  std::vector<std::vector<char>> wants(g.nodes.size());
  const auto want = [&](const Node* n, uint32_t output) {
    std::vector<char>& w = wants[n->index];
    if (w.empty()) w.resize(n->out.size());
    w[output] = 1;
  };
  for (const Tensor& t : wanted)
    if (t.defined()) want(node_of(t), t.impl()->out_index);
  for (size_t k = g.nodes.size(); k-- > 0;) {
    if (wants[k].empty() || !values[k].empty()) continue;
    for (const NodeInput& i : g.nodes[k]->in)
      if (i.from) want(i.from.get(), i.from_index);
  }
  // Nodes of a body that belong to no layer are in the op's layer.
  const std::string scope = scope_;
  for (const Ref<Node>& n : g.nodes) {
    if (wants[n->index].empty() || !values[n->index].empty()) continue;
    scope_ = n->scope ? scope_path(n->scope) : scope;
    add_node(*n, wants[n->index], values);
  }
  scope_ = scope;
}

Names OnnxBuilder::inline_graph(const Graph& g, const Names& inputs) {
  TD_ASSERT(inputs.size() == g.inputs.size() && g.cells.empty());
  Values values(g.nodes.size());
  for (size_t i = 0; i < inputs.size(); ++i) values[node_of(g.inputs[i])->index] = {inputs[i]};
  add_nodes(g, g.outputs, values);
  Names out;
  for (const Tensor& y : g.outputs) out.push_back(values[node_of(y)->index][y.impl()->out_index]);
  return out;
}

}  // namespace tandem::onnx
