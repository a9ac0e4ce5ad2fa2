// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "tandem/base/budget.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/onnx/tensorflow/tensorflow_internal.h"
#include "tandem/onnx/tensorflow/tfjs_write_internal.h"
#include "tandem/onnx/tflite/builder_internal.h"
#include "tandem/onnx/tflite/codes_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

namespace {
constexpr int kMostCalls = 32;  ///< subgraphs inside subgraphs
}

void TfliteBuilder::fail(const std::string& reason) const {
  TD_FAIL(Format, "'{}': {}", what_, reason);
}

std::vector<std::span<const TfliteRow>> tflite_rows() {
  return {tflite_plain_rows(), tflite_layer_rows(),   tflite_recurrent_rows(),
          tflite_shape_rows(), tflite_control_rows(), tflite_custom_rows()};
}
const TfliteRow* find_tflite_row(const TfliteOp& op) {
  for (const auto& family : tflite_rows())
    for (const TfliteRow& r : family)
      if (r.code == op.code && (r.code != kTfliteCustom || r.name == op.custom)) return &r;
  return nullptr;
}
std::string tflite_name(const TfliteOp& op) {
  if (op.code == kTfliteCustom) return fmt::format("custom op '{}'", op.custom);
  const TfliteRow* row = find_tflite_row(op);
  return row ? row->name : fmt::format("operator {}", op.code);
}

// ---- what rows use

const TfliteTensor& TfliteCall::tensor(size_t i) const {
  if (!has(i)) b.fail(fmt::format("a {} has no input {}", row.name, i));
  return scope.graph.tensors[static_cast<size_t>(op.in[i])];
}
const TfliteTensor& TfliteCall::result(size_t i) const {
  if (i >= op.out.size() || op.out[i] < 0)
    b.fail(fmt::format("a {} has no output {}", row.name, i));
  return scope.graph.tensors[static_cast<size_t>(op.out[i])];
}
std::string TfliteCall::x(size_t i) const {
  tensor(i);
  return b.value(scope, op.in[i], as_numbers);
}
std::vector<std::string> TfliteCall::all() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < op.in.size(); ++i) names.push_back(has(i) ? x(i) : std::string());
  while (!names.empty() && names.back().empty()) names.pop_back();
  return names;
}
bool TfliteCall::is_constant(size_t i) const { return has(i) && b.constant_of(x(i)); }
OnnxValue TfliteCall::constant(size_t i) const {
  const OnnxValue* v = b.constant_of(x(i));
  if (!v) lacks(fmt::format("a computed input {}", i));
  if (v->is_strings()) b.fail(fmt::format("a {} takes '{}' of strings", row.name, tensor(i).name));
  return *v;
}
std::vector<int64_t> TfliteCall::ints(size_t i) const {
  const Tensor t = constant(i).tensor();
  if (is_floating(t.dtype()) || t.numel() > 64) lacks(fmt::format("such an input {}", i));
  return t.to(DType::i64).reshape({-1}).to_vector<int64_t>();
}

Names TfliteCall::many(const char* o, const char* domain, Names in, size_t out,
                       OnnxAttributes attributes) const {
  const std::string name = op.out.empty() || op.out[0] < 0 ? std::string(o) : result(0).name;
  return b.node(o, domain, std::move(in), out, std::move(attributes), name);
}
std::string TfliteCall::tf(const char* o, Names in, OnnxAttributes attributes) const {
  return many(o, kOnnxTf, std::move(in), 1, std::move(attributes))[0];
}
std::string TfliteCall::onnx(const char* o, Names in, OnnxAttributes attributes) const {
  return many(o, "", std::move(in), 1, std::move(attributes))[0];
}
std::string TfliteCall::own(const char* o, Names in, OnnxAttributes attributes) const {
  return many(o, kOnnxTflite, std::move(in), 1, std::move(attributes))[0];
}
std::string TfliteCall::number(double v, OnnxType type) const {
  return b.constant("number", OnnxValue(full(Shape(), v, info_of(type).carrier), type));
}
std::string TfliteCall::list(const std::vector<int64_t>& v) const {
  return b.constant("numbers", OnnxValue(tandem::tensor(v, Shape(static_cast<int64_t>(v.size())))));
}

std::string TfliteCall::activated(std::string name, int64_t activation) const {
  switch (activation) {
    case 0:
      return name;
    case 1:
      return tf("Relu", {name});
    case 2:
      return tf("ClipByValue", {name, number(-1), number(1)});
    case 3:
      return tf("Relu6", {name});
    case 4:
      return tf("Tanh", {name});
    default:
      lacks(fmt::format("the fused activation {}", activation));
  }
}
std::string TfliteCall::in_range(size_t i, std::string name) const {
  const TfliteTensor& t = result(i);
  if (t.scales.scale.size() != 1) return name;
  const TfliteRange r = tflite_range(*this, t, 0);
  const Tensor bounds =
      tflite_numbers(tandem::tensor(std::vector<int64_t>{r.low, r.high}), t.scales);
  const std::vector<float> v = bounds.to_vector<float>();
  return tf("ClipByValue", {std::move(name), number(v[0]), number(v[1])});
}
void TfliteCall::set(size_t i, std::string name) const {
  if (i >= op.out.size() || op.out[i] < 0) return;
  const int64_t activation = row.activation < 0 ? 0 : small(row.activation);
  if (activation != 0 && !as_numbers && result(i).is_quantised()) {
    const TfliteRange r = tflite_range(*this, result(i), activation);
    const auto bound = [&](int64_t v) { return number(static_cast<double>(v), result(i).type); };
    name = onnx("Clip", {name, bound(r.low), bound(r.high)});
  } else {
    name = activated(std::move(name), activation);
    if (b.for_graph() && row.codes == TfliteCodes::numbers && result(i).is_quantised())
      name = in_range(i, std::move(name));
  }
  b.set_value(scope, op.out[i], std::move(name), as_numbers);
}
void TfliteCall::set_codes(size_t i, std::string name) const {
  if (i < op.out.size() && op.out[i] >= 0) b.set_value(scope, op.out[i], std::move(name), false);
}
void TfliteCall::lacks(const std::string& what) const {
  TD_FAIL(Unsupported, "'{}': {} (version {}) in subgraph '{}': {} is not supported", b.what(),
          tflite_name(op), op.version, scope.graph.name, what);
}

// ---- nodes and values

std::string TfliteBuilder::unique(const std::string& wanted) {
  const std::string base = wanted.empty() ? "value" : wanted;
  std::string name = base;
  for (size_t i = 1; !used_.insert(name).second; ++i) name = fmt::format("{}#{}", base, i);
  return name;
}

Names TfliteBuilder::node(const char* op, const char* domain, Names in, size_t out,
                          OnnxAttributes attributes, const std::string& name) {
  Budget::count();
  Budget::take(sizeof(OnnxNode) + 64 * (in.size() + out));
  OnnxNode n;
  n.op = op;
  n.domain = domain;
  n.name = name;
  n.inputs = std::move(in);
  n.attributes = std::move(attributes);
  for (size_t i = 0; i < out; ++i) n.outputs.push_back(unique(name));
  const Names names = n.outputs;
  graph().nodes.push_back(std::move(n));
  return names;
}

std::string TfliteBuilder::constant(const std::string& wanted, OnnxValue v) {
  const std::string name = unique(wanted);
  constant_at_[name] = model_.graph.initializers.size();
  model_.graph.initializers.emplace_back(name, std::move(v));
  return name;
}
const OnnxValue* TfliteBuilder::constant_of(const std::string& name) const {
  const auto it = constant_at_.find(name);
  return it == constant_at_.end() ? nullptr : &model_.graph.initializers[it->second].second;
}

std::string TfliteBuilder::value(TfliteScope& s, int32_t tensor, bool as_numbers) {
  const auto i = static_cast<size_t>(tensor);
  const TfliteTensor& t = s.graph.tensors[i];
  std::string& name = s.values[i];
  if (name.empty() && t.is_variable) {
    if (!variables.count(t.name)) {
      Variable v;
      v.like = t;
      tflite_count(t, what_);
      const int64_t zero = t.is_quantised() ? t.scales.zero.at(0) : 0;  // what stands for 0
      v.first = OnnxValue(full(onnx_shape(t.shape), zero, info_of(t.type).carrier), t.type);
      variables[t.name] = std::move(v);
    }
    name = read(t.name);
  }
  if (name.empty()) {
    if (t.data.empty() && std::find(t.shape.begin(), t.shape.end(), 0) == t.shape.end())
      fail(fmt::format("tensor '{}' of subgraph '{}' is read and never computed", t.name,
                       s.graph.name));
    name = constant(t.name, tflite_constant(t, what_));
  }
  if (!as_numbers || !t.is_quantised() || (for_graph_ && !constant_of(name))) return name;
  const auto found = numbers_.find(name);
  if (found != numbers_.end()) return found->second;
  std::string real;
  if (const OnnxValue* v = constant_of(name))
    real = constant(t.name, OnnxValue(tflite_numbers(v->tensor(), t.scales)));
  else
    real = node("Dequantize", kOnnxTflite, {name}, 1, tflite_attributes(t.scales), t.name)[0];
  // What a branch computes is not there outside of it.
  if (stack_.size() == 1 || constant_of(real)) numbers_[name] = real;
  return real;
}

void TfliteBuilder::set_value(TfliteScope& s, int32_t tensor, std::string name, bool from_numbers) {
  const auto i = static_cast<size_t>(tensor);
  const TfliteTensor& t = s.graph.tensors[i];
  if (from_numbers && t.is_quantised() && !for_graph_) {
    if (std::find(t.scales.scale.begin(), t.scales.scale.end(), 0.0f) != t.scales.scale.end())
      fail(fmt::format(
          "tensor '{}' has the scale 0, by which its numbers cannot be rounded to codes", t.name));
    OnnxAttributes a = tflite_attributes(t.scales);
    a.push_back(onnx_int("to", static_cast<int64_t>(t.type)));
    name = node("Quantize", kOnnxTflite, {name}, 1, std::move(a), t.name)[0];
  }
  if (t.is_variable) write(t.name, name, t);
  s.values[i] = std::move(name);
}

std::string TfliteBuilder::read(const std::string& name) {
  const auto it = variables.find(name);
  if (it == variables.end()) fail(fmt::format("the variable '{}' is read before it is set", name));
  Variable& v = it->second;
  if (v.value.empty()) {
    if (v.first.is_none()) fail(fmt::format("the variable '{}' is read before it is set", name));
    v.input = v.value = unique(name);  // declared once it is known whether it is written
  }
  return v.value;
}
void TfliteBuilder::write(const std::string& name, const std::string& value,
                          const TfliteTensor& like) {
  Variable& v = variables[name];
  v.like = like;
  if (starting) {
    const OnnxValue* first = constant_of(value);
    TD_CHECK(first, Unsupported, "'{}': the first value of the variable '{}' is computed", what_,
             name);
    v.first = *first;
    return;
  }
  v.value = value;
  v.written = true;
}

OnnxPort TfliteBuilder::port(const std::string& name) const {
  OnnxPort p;
  p.name = name;
  p.type.kind = OnnxTypeSpec::Kind::tensor;
  return p;
}
OnnxPort TfliteBuilder::port_of(const TfliteTensor& t, const std::string& name) const {
  OnnxPort p = port(name);
  p.type.elem = for_graph_ && t.is_quantised() ? OnnxType::f32 : t.type;
  p.type.has_shape = t.has_shape;
  p.type.dims =
      t.signature.size() == t.shape.size() && !t.signature.empty() ? t.signature : t.shape;
  p.type.dim_names.resize(p.type.dims.size());
  return p;
}

std::shared_ptr<OnnxGraph> TfliteBuilder::subgraph(FunctionRef<Names(OnnxGraph&)> f) {
  auto g = std::make_shared<OnnxGraph>();
  stack_.push_back(g.get());
  for (const std::string& name : f(*g)) {
    // A value of an enclosing graph is not a result of this one by itself.
    g->outputs.push_back(port(node("Identity", "", {name}, 1, {}, name)[0]));
  }
  stack_.pop_back();
  return g;
}

// ---- graphs

Names TfliteBuilder::call(uint32_t index, const Names& inputs) {
  if (index >= file_.graphs.size()) fail(fmt::format("an operator calls the subgraph {}", index));
  const TfliteGraph& g = file_.graphs[index];
  if (inputs.size() != g.inputs.size())
    fail(fmt::format("subgraph '{}' takes {} inputs, got {}", g.name, g.inputs.size(),
                     inputs.size()));
  if (++depth_ > kMostCalls)
    fail(fmt::format("subgraphs call each other more than {} deep", kMostCalls));
  Budget::count(g.tensors.size());
  TfliteScope s{g, std::vector<std::string>(g.tensors.size()), {}};
  for (size_t i = 0; i < inputs.size(); ++i) s.values[static_cast<size_t>(g.inputs[i])] = inputs[i];
  run_ops(s);
  Names out;
  for (const int32_t i : g.outputs) out.push_back(value(s, i, false));
  --depth_;
  return out;
}

namespace {
/// Whether the operator's codes can be moved or compared as they are.
bool same_scales(const TfliteCall& c) {
  const TfliteTensor* first = nullptr;
  const auto fits = [&](int32_t i) {
    if (i < 0) return true;
    const TfliteTensor& t = c.scope.graph.tensors[static_cast<size_t>(i)];
    if (!t.is_quantised()) return true;
    if (!first) first = &t;
    return t.type == first->type && t.scales == first->scales && t.scales.scale.size() == 1;
  };
  return std::all_of(c.op.in.begin(), c.op.in.end(), fits) &&
         std::all_of(c.op.out.begin(), c.op.out.end(), fits);
}
}  // namespace

void TfliteBuilder::run_ops(TfliteScope& s) {
  for (const TfliteOp& op : s.graph.ops) {
    Budget::count();
    Budget::check_time();
    const TfliteRow* row = find_tflite_row(op);
    if (!row) continue;  // refused already
    TfliteCall c{*this, s, op, *row};
    const auto codes = [&](const std::vector<int32_t>& list) {
      return std::any_of(list.begin(), list.end(), [&](int32_t i) {
        return i >= 0 && s.graph.tensors[static_cast<size_t>(i)].is_quantised();
      });
    };
    if (codes(op.in) || codes(op.out)) {
      if (!for_graph_ && row->exact && row->exact(c)) continue;
      c.as_numbers = for_graph_ || row->codes == TfliteCodes::numbers;
      if (row->codes == TfliteCodes::moved) c.as_numbers = for_graph_ || !same_scales(c);
    }
    const size_t before = graph().nodes.size();
    (for_graph_ && row->graph ? row->graph : row->build)(c);
    if (for_graph_) check_nodes(op, before);
  }
}

// An operator is foreign if TensorFlow.js lacks the op of one of its nodes.
void TfliteBuilder::check_nodes(const TfliteOp& op, size_t from) {
  bool foreign = false;
  for (size_t i = from; i < graph().nodes.size(); ++i) {
    const OnnxNode& n = graph().nodes[i];
    const TfjsOp* row = find_tfjs_op(n);
    foreign |= row == nullptr;
    if (row && !fits_tfjs_op(n, *row))
      fail(fmt::format("a {} has {} inputs and {} outputs", tflite_name(op), op.in.size(),
                       op.out.size()));
  }
  if (foreign) ++foreign_[tflite_name(op)];
}

void TfliteBuilder::check_graph() const {
  std::string list;
  for (const auto& [op, n] : foreign_)
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", n, op);
  TD_CHECK(list.empty(), Unsupported, "{} of the model's operators {} no form in TensorFlow.js: {}",
           foreign_.size(), foreign_.size() == 1 ? "has" : "have", list);
  for (const auto& [name, v] : variables)
    TD_CHECK(v.input.empty(), Unsupported, "the variable '{}' has no form in TensorFlow.js", name);
}

void TfliteBuilder::count_unknown(uint32_t index, std::set<uint32_t>& seen,
                                  std::map<std::string, int64_t>& found) const {
  if (index >= file_.graphs.size() || !seen.insert(index).second) return;
  for (const TfliteOp& op : file_.graphs[index].ops)
    if (!find_tflite_row(op))
      ++found[fmt::format("{} (version {}, subgraph '{}')", tflite_name(op), op.version,
                          file_.graphs[index].name)];
}

// All subgraphs: whichever are called.
void TfliteBuilder::check_known() const {
  std::map<std::string, int64_t> found;
  std::set<uint32_t> seen;
  for (uint32_t i = 0; i < file_.graphs.size(); ++i) count_unknown(i, seen, found);
  if (found.empty()) return;
  std::string list;
  for (const auto& [op, n] : found) list += fmt::format("{}{} {}", list.empty() ? "" : ", ", n, op);
  TD_FAIL(Unsupported, "'{}': {} of its ops {} not supported: {}", what_, found.size(),
          found.size() == 1 ? "is" : "are", list);
}

// A variable that is read before it is written is a state; one that is only read is a constant.
void TfliteBuilder::add_states() {
  OnnxGraph& g = model_.graph;
  for (auto& [name, v] : variables) {
    if (v.input.empty()) continue;
    if (v.first.is_none()) fail(fmt::format("the variable '{}' has no first value", name));
    g.initializers.emplace_back(v.input, v.first);
    if (!v.written) continue;
    OnnxPort in = port(v.input);
    in.type.elem = v.first.type();
    in.type.has_shape = true;
    in.type.dims = v.first.shape();
    in.type.dim_names.resize(in.type.dims.size());
    OnnxPort out = in;
    out.name = node("Identity", "", {v.value}, 1, {}, v.input + "/after")[0];
    g.inputs.push_back(in);
    model_.metadata.emplace_back("tandem.state." + in.name, out.name);
    g.outputs.push_back(std::move(out));
  }
}

OnnxModelProto TfliteBuilder::run(uint32_t index, const TfliteSignature* signature) {
  check_known();
  model_.ir_version = 10;
  model_.producer = file_.description.empty() ? "TFLite" : "TFLite: " + file_.description;
  model_.opsets = {{"", 23}, {kOnnxTf, 1}, {kOnnxTflite, 1}};
  OnnxGraph& g = model_.graph;
  stack_ = {&g};
  const TfliteGraph& from = file_.graphs[index];
  g.name = from.name;
  const auto name_of = [&](int32_t i, bool input) {
    if (signature)
      for (const auto& [name, t] : input ? signature->inputs : signature->outputs)
        if (t == static_cast<uint32_t>(i)) return name;
    return from.tensors[static_cast<size_t>(i)].name;
  };
  Names in, out_names;
  for (const int32_t i : from.inputs) {
    const TfliteTensor& t = from.tensors[static_cast<size_t>(i)];
    in.push_back(unique(name_of(i, true)));
    g.inputs.push_back(port_of(t, in.back()));
  }
  for (const int32_t i : from.outputs) out_names.push_back(unique(name_of(i, false)));
  const Names out = call(index, in);
  if (for_graph_) check_graph();
  for (size_t i = 0; i < out.size(); ++i) {
    OnnxNode n;
    n.op = "Identity";
    n.name = out_names[i];
    n.inputs = {out[i]};
    n.outputs = {out_names[i]};
    g.nodes.push_back(std::move(n));
    g.outputs.push_back(port_of(from.tensors[static_cast<size_t>(from.outputs[i])], out_names[i]));
  }
  if (g.outputs.empty()) fail("the model has no outputs");
  add_states();
  remove_unused(g);
  return std::move(model_);
}

}  // namespace tandem::onnx
