// SPDX-License-Identifier: Apache-2.0
#include "tandem/onnx/import/build_internal.h"

#include <algorithm>
#include <cstring>

#include "tandem/onnx/import/tensor_internal.h"
#include "tandem/ops/ops.h"
#include "tandem/tensor/dim_parts.h"

namespace tandem::onnx {

namespace {
OnnxAttribute attribute(const char* name, OnnxAttribute::Kind kind) {
  OnnxAttribute a;
  a.name = name;
  a.kind = kind;
  return a;
}
}  // namespace

OnnxAttribute onnx_int(const char* name, int64_t v) {
  OnnxAttribute a = attribute(name, OnnxAttribute::i);
  a.int_value = v;
  return a;
}
OnnxAttribute onnx_float(const char* name, double v) {
  OnnxAttribute a = attribute(name, OnnxAttribute::f);
  a.float_value = static_cast<float>(v);
  return a;
}
OnnxAttribute onnx_text(const char* name, std::string v) {
  OnnxAttribute a = attribute(name, OnnxAttribute::s);
  a.text = std::move(v);
  return a;
}
OnnxAttribute onnx_ints(const char* name, std::vector<int64_t> v) {
  OnnxAttribute a = attribute(name, OnnxAttribute::ints);
  a.int_list = std::move(v);
  return a;
}
OnnxAttribute onnx_tensor(const char* name, const Tensor& v) {
  OnnxAttribute a = attribute(name, OnnxAttribute::t);
  a.tensor = OnnxValue(v);
  return a;
}
OnnxAttribute onnx_graph(const char* name, std::shared_ptr<OnnxGraph> g) {
  OnnxAttribute a = attribute(name, OnnxAttribute::g);
  a.graph_list.push_back(std::move(g));
  return a;
}

std::vector<int64_t> onnx_numbers(const IntList& list, const char* what) {
  TD_CHECK(!list.is_symbolic(), Unsupported,
           "{} is {}: ONNX expects numbers there\nExport with a number for that dimension.", what,
           list.to_string());
  return list.to_vector();
}

OnnxBuilder::OnnxBuilder(int opset) : opset_(opset) { stack_.push_back(&model.graph); }

std::string OnnxBuilder::unique(const std::string& wanted) {
  if (used_.insert(wanted).second) return wanted;
  for (int& n = counts_[wanted];;) {
    std::string name = wanted + "_" + std::to_string(++n);
    if (used_.insert(name).second) return name;
  }
}

Names OnnxBuilder::add(const char* op, Names in, size_t n_out, OnnxAttributes attributes,
                       const char* domain) {
  OnnxNode n;
  n.op = op;
  n.domain = domain;
  n.inputs = std::move(in);
  while (!n.inputs.empty() && n.inputs.back().empty()) n.inputs.pop_back();
  n.attributes = std::move(attributes);
  const std::string base = scope_.empty() ? op : scope_ + "/" + op;
  for (size_t i = 0; i < n_out; ++i) n.outputs.push_back(unique(base));
  n.name = n.outputs[0];
  Names out = n.outputs;
  graph().nodes.push_back(std::move(n));
  return out;
}

std::string OnnxBuilder::cast(const std::string& x, DType from, DType to) {
  if (from == to) return x;
  return node("Cast", {x}, {onnx_int("to", static_cast<int64_t>(onnx_type_of(to)))});
}

std::string OnnxBuilder::reshape(const std::string& x, const Shape& to) {
  int symbolic = 0;
  bool empty = false;
  std::vector<int64_t> sizes;
  for (const Dim d : to) {
    symbolic += d.is_symbolic();
    empty |= d == Dim(0);
    sizes.push_back(d.is_symbolic() ? -1 : d.value());
  }
  if (symbolic <= 1 && !empty) return node("Reshape", {x, ints(sizes)});
  OnnxAttributes zero;
  if (empty) zero.push_back(onnx_int("allowzero", 1));
  return node("Reshape", {x, dims(to)}, zero);
}

std::string OnnxBuilder::expand(const std::string& x, const Shape& to) {
  return node("Expand", {x, dims(to)});
}

std::string OnnxBuilder::permute(const std::string& x, const std::vector<int64_t>& perm) {
  if (std::is_sorted(perm.begin(), perm.end())) return x;
  return node("Transpose", {x}, {onnx_ints("perm", perm)});
}

std::string OnnxBuilder::reduce(const char* op, const std::string& x,
                                const std::vector<int64_t>& dims, bool keepdim) {
  OnnxAttributes a = {onnx_int("keepdims", keepdim)};
  const bool as_input = opset_ >= 18 || std::strcmp(op, "ReduceSum") == 0;
  Names in{x};
  if (!dims.empty() && as_input) in.push_back(ints(dims));
  if (!dims.empty() && !as_input) a.push_back(onnx_ints("axes", dims));
  return node(op, std::move(in), std::move(a));
}

std::string OnnxBuilder::slice(const std::string& x, int64_t axis, Dim start, Dim end,
                               int64_t step) {
  return node("Slice", {x, dim(start), dim(end), ints({axis}), ints({step})});
}

// ---- constants

const OnnxValue* OnnxBuilder::constant_named(const std::string& name) const {
  for (const auto& [own, value] : model.graph.initializers)
    if (own == name) return &value;
  return nullptr;
}

std::string OnnxBuilder::constant(const OnnxValue& value) {
  std::string key = value.tensor().shape().to_string() + to_string(value.type()) + raw_bytes(value);
  if (const auto at = constants_.find(key); at != constants_.end()) return at->second;
  const std::string name = unique("constant");
  model.graph.initializers.emplace_back(name, value);
  return constants_.emplace(std::move(key), name).first->second;
}

std::string OnnxBuilder::ints(const std::vector<int64_t>& v) {
  return constant(tensor(v, Shape(static_cast<int64_t>(v.size()))));
}

std::string OnnxBuilder::number(const Scalar& v, DType dtype) {
  return constant(full(Shape{}, v, dtype));
}

void OnnxBuilder::define_symbol(Dim d, const std::string& name, int axis) {
  for (const DimTerm& t : terms_of(d))
    if (t.factor == 1 && t.atoms.size() == 1 && t.atoms[0].kind == 's')
      symbols_.emplace(t.atoms[0].name, std::pair(name, axis));
}

// A vector of one element. Such nodes go into the outermost graph, where all others can refer to
// them.
std::string OnnxBuilder::dim_value(Dim d) {
  if (!d.is_symbolic()) return ints({d.value()});
  if (const auto at = dim_values_.find(d.raw()); at != dim_values_.end()) return at->second;
  std::vector<OnnxGraph*> inner = std::move(stack_);
  stack_ = {&model.graph};
  const std::string scope = std::exchange(scope_, "sizes");
  std::string sum;
  for (const DimTerm& t : terms_of(d)) {
    std::string product;
    for (const DimAtom& a : t.atoms) {
      std::string v;
      if (a.kind == 's') {
        const auto at = symbols_.find(a.name);
        TD_CHECK(at != symbols_.end(), Unsupported,
                 "the size {} cannot be derived from the sizes of the inputs", a.name);
        const auto& [name, axis] = at->second;
        v = node("Shape", {name}, {onnx_int("start", axis), onnx_int("end", axis + 1)});
      } else if (a.kind == '/' || a.kind == '%') {
        const std::string x = dim_value(a.args[0]), y = dim_value(a.args[1]);
        const std::string rest = node("Mod", {x, y});
        v = a.kind == '%' ? rest : node("Div", {node("Sub", {x, rest}), y});
      } else {
        Names all;
        for (const Dim e : a.args) all.push_back(dim_value(e));
        v = node(a.kind == '<' ? "Min" : "Max", all);
      }
      product = product.empty() ? v : node("Mul", {product, v});
    }
    if (product.empty())
      product = ints({t.factor});
    else if (t.factor != 1)
      product = node("Mul", {product, ints({t.factor})});
    sum = sum.empty() ? product : node("Add", {sum, product});
  }
  stack_ = std::move(inner);
  scope_ = scope;
  return dim_values_[d.raw()] = sum;
}

std::string OnnxBuilder::dims(const Shape& sizes) {
  if (!sizes.is_symbolic()) return ints(sizes.to_vector());
  if (sizes.rank() == 1) return dim_value(sizes[0]);
  std::string key;
  for (const Dim d : sizes) key += std::to_string(d.raw()) + ",";
  if (const auto at = dims_.find(key); at != dims_.end()) return at->second;
  Names parts;
  std::vector<int64_t> run;
  for (const Dim d : sizes) {
    if (!d.is_symbolic()) {
      run.push_back(d.value());
      continue;
    }
    if (!run.empty()) parts.push_back(ints(run));
    run.clear();
    parts.push_back(dim_value(d));
  }
  if (!run.empty()) parts.push_back(ints(run));
  std::vector<OnnxGraph*> inner = std::move(stack_);
  stack_ = {&model.graph};
  const std::string scope = std::exchange(scope_, "sizes");
  const std::string name = node("Concat", parts, {onnx_int("axis", 0)});
  stack_ = std::move(inner);
  scope_ = scope;
  return dims_[key] = name;
}

// ---- graphs

std::shared_ptr<OnnxGraph> OnnxBuilder::subgraph(FunctionRef<void(OnnxGraph&)> f) {
  auto g = std::make_shared<OnnxGraph>();
  g->name = unique("body");
  stack_.push_back(g.get());
  f(*g);
  stack_.pop_back();
  return g;
}

OnnxPort OnnxBuilder::port(const std::string& name, const Spec& spec) const {
  OnnxPort p;
  p.name = name;
  p.type.kind = OnnxTypeSpec::Kind::tensor;
  p.type.elem = onnx_type_of(spec.dtype);
  p.type.has_shape = true;
  for (const Dim d : spec.shape) {
    p.type.dims.push_back(d.is_symbolic() ? -1 : d.value());
    p.type.dim_names.push_back(d.is_symbolic() ? d.to_string() : "");
  }
  return p;
}

namespace {
void rename_in(OnnxGraph& g, const std::string& from, const std::string& to) {
  for (OnnxNode& n : g.nodes) {
    for (std::string& s : n.inputs)
      if (s == from) s = to;
    for (std::string& s : n.outputs)
      if (s == from) s = to;
    for (OnnxAttribute& a : n.attributes)
      for (const auto& inner : a.graph_list) rename_in(*inner, from, to);
  }
  for (OnnxPort& p : g.outputs)
    if (p.name == from) p.name = to;
}
}  // namespace

void OnnxBuilder::rename(const std::string& from, const std::string& to) {
  rename_in(model.graph, from, to);
}

}  // namespace tandem::onnx
