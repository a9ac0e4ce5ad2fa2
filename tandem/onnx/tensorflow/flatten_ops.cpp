// SPDX-License-Identifier: Apache-2.0
// Nodes that are not ops of their own: constants, variables, calls, and what passes its input on.
#include <fmt/format.h>

#include "tandem/onnx/tensorflow/flatten_internal.h"
#include "tandem/onnx/tensorflow/tensorflow_internal.h"

namespace tandem::onnx {

namespace {

/// Nodes that change a variable, and what computes its new value from the old one.
constexpr std::pair<std::string_view, const char*> kUpdates[] = {
    {"AssignAddVariableOp", "AddV2"},
    {"AssignSubVariableOp", "Sub"},
    {"AssignAdd", "AddV2"},
    {"AssignSub", "Sub"},
    {"ResourceScatterUpdate", "ScatterRows"},
    {"ResourceScatterAdd", "ScatterRowsAdd"},
    {"ResourceScatterNdUpdate", "TensorScatterUpdate"},
    {"ResourceScatterNdAdd", "TensorScatterAdd"},
    {"ResourceScatterNdSub", "TensorScatterSub"},
};
const std::pair<std::string_view, const char*>* find_update(std::string_view op) {
  for (const auto& u : kUpdates)
    if (u.first == op) return &u;
  return nullptr;
}

}  // namespace

TfFlattener::Handler TfFlattener::find_handler(std::string_view op) {
  using F = TfFlattener;
  static const std::unordered_map<std::string_view, Handler> all = {
      {"NoOp", &F::no_value},
      {"Assert", &F::no_value},
      {"PrintV2", &F::no_value},
      {"DisableCopyOnRead", &F::no_value},
      {"Identity", &F::pass},
      {"IdentityN", &F::pass},
      {"StopGradient", &F::pass},
      {"PreventGradient", &F::pass},
      {"Snapshot", &F::pass},
      {"CheckNumerics", &F::pass},
      {"EnsureShape", &F::pass},
      {"PlaceholderWithDefault", &F::pass},
      {"Const", &F::constant_node},
      {"Placeholder", &F::placeholder},
      {"VarHandleOp", &F::handle},
      {"VariableV2", &F::handle},
      {"Variable", &F::handle},
      {"ReadVariableOp", &F::read_variable},
      {"AssignVariableOp", &F::assign},
      {"Assign", &F::assign},
      {"ResourceGather", &F::gather_variable},
      {"ResourceGatherNd", &F::gather_variable},
      {"VariableShape", &F::gather_variable},
      {"RestoreV2", &F::restored},
      {"VarIsInitializedOp", &F::is_initialized},
      {"PartitionedCall", &F::call_function},
      {"StatefulPartitionedCall", &F::call_function},
      {"If", &F::if_node},
      {"StatelessIf", &F::if_node},
      {"Case", &F::case_node},
      {"StatelessCase", &F::case_node},
      {"While", &F::while_node},
      {"StatelessWhile", &F::while_node},
  };
  if (find_update(op)) return &F::update;
  const auto it = all.find(op);
  return it == all.end() ? nullptr : it->second;
}

void TfFlattener::no_value(TfBody& b, const TfNode& n, std::vector<TfValue>&,
                           std::vector<TfValue>& out) {
  out.resize(b.outputs[static_cast<size_t>(&n - b.nodes.data())]);
}

void TfFlattener::pass(TfBody&, const TfNode& n, std::vector<TfValue>& in,
                       std::vector<TfValue>& out) {
  if (in.empty()) fail(fmt::format("node '{}' ({}) has no input", n.name, n.op));
  out = std::move(in);
  for (TfValue& v : out)
    if (v.variable >= 0 && variables_[static_cast<size_t>(v.variable)].is_reference && !restoring_)
      v = {read(variables_[static_cast<size_t>(v.variable)])};
}

void TfFlattener::constant_node(TfBody& b, const TfNode& n, std::vector<TfValue>&,
                                std::vector<TfValue>& out) {
  const OnnxAttribute* v = n.find("value");
  if (!v || v->kind != OnnxAttribute::t)
    fail(fmt::format("the constant '{}' has no value", n.name));
  if (v->tensor.is_none()) {
    out.push_back({});
    return;
  }
  out.push_back({constant(b.scope + n.name, v->tensor)});
}

void TfFlattener::placeholder(TfBody&, const TfNode& n, std::vector<TfValue>&,
                              std::vector<TfValue>& out) {
  if (restoring_) {
    out.push_back({"a placeholder"});
    return;
  }
  fail(fmt::format("the placeholder '{}' is needed, but is not an input of the signature", n.name));
}

int TfFlattener::variable(const std::string& key, const TfNode& n) {
  const auto [it, fresh] = variable_at_.emplace(key, static_cast<int>(variables_.size()));
  if (!fresh) return it->second;
  const OnnxAttribute *shared = n.find("shared_name"), *type = n.find("dtype"),
                      *shape = n.find("shape");
  Variable v;
  v.is_reference = n.op != "VarHandleOp";
  v.name = unique(shared && !shared->text.empty() ? shared->text : n.name);
  v.type.kind = OnnxTypeSpec::Kind::tensor;
  if (type) v.type.elem = static_cast<OnnxType>(type->int_value);
  v.type.has_shape = shape && shape->kind == OnnxAttribute::ints;
  if (v.type.has_shape) v.type.dims = shape->int_list;
  v.type.dim_names.resize(v.type.dims.size());
  variables_.push_back(std::move(v));
  return it->second;
}

// A node of the outermost graph is a variable; in functions the shared name tells which.
void TfFlattener::handle(TfBody& b, const TfNode& n, std::vector<TfValue>&,
                         std::vector<TfValue>& out) {
  const OnnxAttribute* shared = n.find("shared_name");
  const bool outermost = &b.nodes == &graph_.nodes;
  out.push_back({"", variable(outermost || !shared ? n.name : "shared " + shared->text, n)});
}

TfFlattener::Variable& TfFlattener::at(const TfValue& handle, const TfNode& n) {
  if (handle.variable < 0) fail(fmt::format("node '{}' ({}) expects a variable", n.name, n.op));
  return variables_[static_cast<size_t>(handle.variable)];
}

std::string TfFlattener::read(Variable& v) {
  if (v.value.empty() && !v.tensor.empty()) {  // the first read of what was restored
    const io::TensorBundle::Entry* e = bundle_->find(v.tensor);
    if (!e) fail(fmt::format("the checkpoint has no tensor '{}'", v.tensor));
    OnnxValue value;
    if (e->type->number == 7)
      value = OnnxValue(OnnxStrings{e->shape.to_vector(), bundle_->strings(v.tensor)});
    else
      value = OnnxValue(bundle_->tensor(v.tensor), static_cast<OnnxType>(e->type->onnx));
    v.type.elem = value.type();
    v.type.has_shape = true;
    v.type.dims = value.shape();
    v.type.dim_names.assign(v.type.dims.size(), "");
    constant_at_[v.name] = model_.graph.initializers.size();
    model_.graph.initializers.emplace_back(v.name, std::move(value));
    v.value = v.first = v.name;
    v.is_initial = true;
  }
  if (v.value.empty()) fail(fmt::format("the variable '{}' has no value", v.name));
  return v.value;
}

void TfFlattener::read_variable(TfBody&, const TfNode& n, std::vector<TfValue>& in,
                                std::vector<TfValue>& out) {
  if (in.empty()) fail(fmt::format("node '{}' ({}) has no input", n.name, n.op));
  out.push_back({read(at(in[0], n))});
}

constexpr std::string_view kRestored = "restored: ";

void TfFlattener::restored(TfBody& b, const TfNode& n, std::vector<TfValue>& in,
                           std::vector<TfValue>& out) {
  const size_t count = b.outputs[static_cast<size_t>(&n - b.nodes.data())];
  const auto names = in.size() < 2 ? constant_at_.end() : constant_at_.find(in[1].name);
  if (!restoring_ || names == constant_at_.end() ||
      !model_.graph.initializers[names->second].second.is_strings())
    fail(fmt::format("node '{}' (RestoreV2) does not name its tensors", n.name));
  const std::vector<std::string>& all =
      model_.graph.initializers[names->second].second.strings().values;
  for (size_t i = 0; i < count; ++i) {
    if (i >= all.size()) fail(fmt::format("node '{}' restores {} tensors", n.name, all.size()));
    out.push_back({std::string(kRestored) + all[i]});
  }
}

void TfFlattener::assign(TfBody&, const TfNode& n, std::vector<TfValue>& in,
                         std::vector<TfValue>& out) {
  if (in.size() < 2) fail(fmt::format("node '{}' ({}) has too few inputs", n.name, n.op));
  Variable& v = at(in[0], n);
  if (restoring_) {
    if (in[1].name.starts_with(kRestored)) v.tensor = in[1].name.substr(kRestored.size());
  } else {
    if (v.value.empty() && !v.tensor.empty()) read(v);  // its first value, for the state
    v.value = use(in[1], n.name);
    v.written = true;
  }
  out.push_back(in[0]);
}

// Additions are nodes of their own, so that a state's every value has a name.
void TfFlattener::update(TfBody& b, const TfNode& n, std::vector<TfValue>& in,
                         std::vector<TfValue>& out) {
  if (in.size() < 2) fail(fmt::format("node '{}' ({}) has too few inputs", n.name, n.op));
  Variable& v = at(in[0], n);
  std::vector<std::string> inputs{read(v)};
  for (size_t i = 1; i < in.size(); ++i) inputs.push_back(use(in[i], n.name));
  const char* op = find_update(n.op)->second;
  v.value = add(op, kOnnxTf, std::move(inputs), b.scope + n.name);
  v.written = true;
  out.push_back(in[0]);
}

void TfFlattener::gather_variable(TfBody& b, const TfNode& n, std::vector<TfValue>& in,
                                  std::vector<TfValue>& out) {
  if (in.empty()) fail(fmt::format("node '{}' ({}) has no input", n.name, n.op));
  std::vector<std::string> inputs{read(at(in[0], n))};
  for (size_t i = 1; i < in.size(); ++i) inputs.push_back(use(in[i], n.name));
  const char* op = n.op == "ResourceGather"     ? "Gather"
                   : n.op == "ResourceGatherNd" ? "GatherNd"
                                                : "Shape";
  OnnxAttributes kept;  // others tell of the variable
  for (const char* name : {"batch_dims", "out_type"})
    if (const OnnxAttribute* a = n.find(name)) kept.push_back(*a);
  out.push_back({add(op, kOnnxTf, std::move(inputs), b.scope + n.name, std::move(kept))});
}

void TfFlattener::is_initialized(TfBody& b, const TfNode& n, std::vector<TfValue>&,
                                 std::vector<TfValue>& out) {
  const bool yes = true;
  out.push_back(
      {constant(b.scope + n.name, OnnxValue(io::tensor_of_tf_bytes(
                                      *io::find_tf_type(10), Shape(),
                                      {reinterpret_cast<const char*>(&yes), sizeof yes}, what_)))});
}

void TfFlattener::call_function(TfBody& b, const TfNode& n, std::vector<TfValue>& in,
                                std::vector<TfValue>& out) {
  out = call(function_of(n, "f"), std::move(in), b.scope + n.name);
}

}  // namespace tandem::onnx
