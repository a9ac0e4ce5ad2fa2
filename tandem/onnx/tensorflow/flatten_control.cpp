// SPDX-License-Identifier: Apache-2.0
// If, Case and While with functions (control flow v2) as ONNX's If and Loop. What a branch or a
// body writes into variables comes out of the node beside its results.
#include <fmt/format.h>

#include <memory>

#include "tandem/onnx/tensorflow/flatten_internal.h"
#include "tandem/onnx/tensorflow/tensorflow_internal.h"

namespace tandem::onnx {
namespace {

OnnxAttribute graph_attribute(const char* name, std::shared_ptr<OnnxGraph> g) {
  OnnxAttribute a;
  a.name = name;
  a.kind = OnnxAttribute::g;
  a.graph_list = {std::move(g)};
  return a;
}

OnnxPort bare_port(std::string name) {
  OnnxPort p;
  p.name = std::move(name);
  p.type.kind = OnnxTypeSpec::Kind::tensor;
  return p;
}

}  // namespace

std::vector<std::string> TfFlattener::variable_values() const {
  std::vector<std::string> out;
  // One that nobody has read yet holds its first value.
  for (const Variable& v : variables_)
    out.push_back(v.value.empty() && !v.tensor.empty() ? v.name : v.value);
  return out;
}

void TfFlattener::set_values(const std::vector<std::string>& values) {
  for (size_t i = 0; i < variables_.size(); ++i) {
    Variable& v = variables_[i];
    const std::string before = i < values.size() ? values[i] : "";
    v.value = before == v.name && !v.is_initial ? "" : before;
  }
}

std::vector<TfValue> TfFlattener::choose(const TfNode& n, const std::string& scope,
                                         const std::string& condition, Branch yes, Branch no) {
  const std::vector<std::string> before = variable_values();
  std::shared_ptr<OnnxGraph> graphs[2];
  std::vector<TfValue> results[2];
  std::vector<std::string> after[2];
  for (int k = 0; k < 2; ++k) {
    graphs[k] = std::make_shared<OnnxGraph>();
    graphs[k]->name = scope + (k == 0 ? "/then" : "/else");
    stack_.push_back(graphs[k].get());
    results[k] = k == 0 ? yes() : no();
    after[k] = variable_values();
    stack_.pop_back();
    set_values(before);
  }
  if (results[0].size() != results[1].size())
    fail(fmt::format("the branches of '{}' give {} and {} results", n.name, results[0].size(),
                     results[1].size()));
  OnnxNode node;
  node.op = "If";
  node.name = scope;
  node.inputs = {condition};
  const auto add_output = [&](const std::string& a, const std::string& b) {
    graphs[0]->outputs.push_back(bare_port(a));
    graphs[1]->outputs.push_back(bare_port(b));
    node.outputs.push_back(unique(fmt::format("{}:{}", scope, node.outputs.size())));
    return node.outputs.back();
  };
  std::vector<TfValue> out;
  for (size_t i = 0; i < results[0].size(); ++i) {
    const TfValue &a = results[0][i], &b = results[1][i];
    if (a.variable != b.variable)
      fail(fmt::format("the branches of '{}' return different variables", n.name));
    out.push_back(a.variable >= 0 ? a : TfValue{add_output(use(a, n.name), use(b, n.name))});
  }
  for (size_t i = 0; i < variables_.size(); ++i) {
    const auto value = [&](const std::vector<std::string>& all) {
      return i < all.size() ? all[i] : std::string();
    };
    const std::string was = value(before), a = value(after[0]), b = value(after[1]);
    if ((a == was || a.empty()) && (b == was || b.empty())) continue;
    if (!was.empty() && (a == was || b == was)) read(variables_[i]);
    variables_[i].value = add_output(a.empty() ? was : a, b.empty() ? was : b);
    variables_[i].written = true;
  }
  node.attributes = {graph_attribute("then_branch", graphs[0]),
                     graph_attribute("else_branch", graphs[1])};
  graph().nodes.push_back(std::move(node));
  return out;
}

void TfFlattener::if_node(TfBody& b, const TfNode& n, std::vector<TfValue>& in,
                          std::vector<TfValue>& out) {
  if (in.empty()) fail(fmt::format("node '{}' ({}) has no input", n.name, n.op));
  const std::vector<TfValue> arguments(in.begin() + 1, in.end());
  const std::string scope = b.scope + n.name, condition = use(in[0], n.name);
  const auto branch = [&](const char* attribute) {
    return call(function_of(n, attribute), arguments, scope);
  };
  const auto yes = [&] { return branch("then_branch"); };
  const auto no = [&] { return branch("else_branch"); };
  out = choose(n, scope, condition, yes, no);
}

// Case: a chain of If, whose last branch also takes what is out of range.
std::vector<TfValue> TfFlattener::case_from(const TfNode& n, const std::string& scope,
                                            const std::string& index, size_t k,
                                            const std::vector<TfValue>& arguments) {
  const std::vector<std::string>& functions = n.find("branches")->text_list;
  if (k + 1 >= functions.size()) return call(functions.back(), arguments, scope);
  const auto number = static_cast<int32_t>(k);
  const std::string at = constant(
      scope + "/index", OnnxValue(io::tensor_of_tf_bytes(
                            *io::find_tf_type(3), Shape(),
                            {reinterpret_cast<const char*>(&number), sizeof number}, what_)));
  const std::string condition = add("Equal", "", {index, at}, scope + "/is");
  const auto yes = [&] { return call(functions[k], arguments, scope); };
  const auto no = [&] { return case_from(n, scope, index, k + 1, arguments); };
  return choose(n, scope, condition, yes, no);
}

void TfFlattener::case_node(TfBody& b, const TfNode& n, std::vector<TfValue>& in,
                            std::vector<TfValue>& out) {
  const OnnxAttribute* functions = n.find("branches");
  if (in.empty() || !functions || functions->text_list.empty())
    fail(fmt::format("node '{}' ({}) has no branches", n.name, n.op));
  if (functions->text_list.size() > 48)
    fail(fmt::format("node '{}' has {} branches", n.name, functions->text_list.size()));
  out = case_from(n, b.scope + n.name, use(in[0], n.name), 0, {in.begin() + 1, in.end()});
}

bool TfFlattener::writes(const std::string& name) {
  const auto [it, fresh] = writes_.emplace(name, false);
  if (!fresh) return it->second;
  const auto f = graph_.functions.find(name);
  if (f == graph_.functions.end() || depth_ > 64) return false;
  ++depth_;
  bool any = false;
  for (const TfNode& n : f->second.nodes) {
    Budget::count();
    any |= n.op.starts_with("Assign") || n.op.starts_with("ResourceScatter");
    any |= graph_.functions.count(n.op) && writes(n.op);
    for (const OnnxAttribute& a : n.attributes) {
      if (a.kind == OnnxAttribute::s) any |= writes(a.text);
      for (const std::string& t : a.text_list) any |= writes(t);
    }
  }
  --depth_;
  return writes_[name] = any;
}

void TfFlattener::while_node(TfBody& b, const TfNode& n, std::vector<TfValue>& in,
                             std::vector<TfValue>& out) {
  const std::string condition = function_of(n, "cond"), body = function_of(n, "body"),
                    scope = b.scope + n.name;
  std::set<int> written;  // variables that may change with every step
  if (writes(body) || writes(condition))
    for (const TfValue& v : in)
      if (v.variable >= 0) written.insert(v.variable);
  OnnxNode node;
  node.op = "Loop";
  node.name = scope;
  const auto test = [&](const std::vector<TfValue>& values) {
    const std::vector<TfValue> r = call(condition, values, scope + "/cond");
    if (r.size() != 1) fail(fmt::format("the condition of '{}' gives {} values", n.name, r.size()));
    return use(r[0], n.name);
  };
  node.inputs = {"", test(in)};
  for (const TfValue& v : in)
    if (v.variable < 0) node.inputs.push_back(use(v, n.name));
  for (const int v : written) node.inputs.push_back(read(variables_[static_cast<size_t>(v)]));

  auto g = std::make_shared<OnnxGraph>();
  g->name = scope + "/body";
  g->inputs = {bare_port(unique(scope + "/step")), bare_port(unique(scope + "/go"))};
  const auto input = [&] {
    g->inputs.push_back(bare_port(unique(scope + "/carried")));
    return g->inputs.back().name;
  };
  stack_.push_back(g.get());
  std::vector<TfValue> carried = in;
  for (TfValue& v : carried)
    if (v.variable < 0) v.name = input();
  for (const int v : written) variables_[static_cast<size_t>(v)].value = input();
  const std::vector<TfValue> results = call(body, carried, scope + "/body");
  if (results.size() != in.size())
    fail(fmt::format("the body of '{}' gives {} values for {}", n.name, results.size(), in.size()));
  g->outputs = {bare_port(test(results))};
  for (size_t i = 0; i < in.size(); ++i) {
    if (results[i].variable != in[i].variable)
      fail(fmt::format("the body of '{}' exchanges its variables", n.name));
    if (in[i].variable < 0) g->outputs.push_back(bare_port(use(results[i], n.name)));
  }
  for (const int v : written)
    g->outputs.push_back(bare_port(variables_[static_cast<size_t>(v)].value));
  stack_.pop_back();

  const auto output = [&] {
    node.outputs.push_back(unique(fmt::format("{}:{}", scope, node.outputs.size())));
    return node.outputs.back();
  };
  for (const TfValue& v : in) out.push_back(v.variable >= 0 ? v : TfValue{output()});
  for (const int v : written) {
    variables_[static_cast<size_t>(v)].value = output();
    variables_[static_cast<size_t>(v)].written = true;
  }
  node.attributes = {graph_attribute("body", std::move(g))};
  graph().nodes.push_back(std::move(node));
}

}  // namespace tandem::onnx
