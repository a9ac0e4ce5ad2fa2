// SPDX-License-Identifier: Apache-2.0
// TFLite's operators that run subgraphs, and its variables.
#include <fmt/format.h>

#include "tandem/onnx/tflite/builder_internal.h"

namespace tandem::onnx {
namespace {

using Codes = TfliteCodes;

uint32_t graph_option(const TfliteCall& c, int field) {
  return static_cast<uint32_t>(c.option(field));
}
Names inputs_from(const TfliteCall& c, size_t first) {
  Names in;
  for (size_t i = first; i < c.op.in.size(); ++i) in.push_back(c.x(i));
  return in;
}
/// Variables that a branch writes would need a value of each branch.
template <class F>
auto without_writes(TfliteCall& c, F f) {
  std::map<std::string, std::string> before;
  for (const auto& [name, v] : c.b.variables) before[name] = v.written ? v.value : "";
  auto result = f();
  for (const auto& [name, v] : c.b.variables)
    if (v.written && before[name] != v.value) c.lacks("a variable that is written inside");
  return result;
}

void tflite_call(TfliteCall& c) {
  const Names out = c.b.call(graph_option(c, 0), inputs_from(c, 0));
  for (size_t i = 0; i < out.size() && i < c.op.out.size(); ++i) c.set(i, out[i]);
}
// The first values of variables.
void tflite_call_once(TfliteCall& c) {
  const bool before = c.b.starting;
  c.b.starting = true;
  c.b.call(graph_option(c, 0), {});
  c.b.starting = before;
}

void tflite_if(TfliteCall& c) {
  const Names in = inputs_from(c, 1);
  const auto branch = [&](int field) {
    return without_writes(c, [&] {
      return c.b.subgraph([&](OnnxGraph&) { return c.b.call(graph_option(c, field), in); });
    });
  };
  const auto yes = branch(0), no = branch(1);
  if (yes->outputs.size() != no->outputs.size() || yes->outputs.size() < c.op.out.size())
    c.b.fail("the branches of an IF give different numbers of results");
  const Names out = c.many("If", "", {c.x(0)}, yes->outputs.size(),
                           {onnx_graph("then_branch", yes), onnx_graph("else_branch", no)});
  for (size_t i = 0; i < c.op.out.size(); ++i) c.set(i, out[i]);
}

void tflite_while(TfliteCall& c) {
  const Names in = inputs_from(c, 0);
  const uint32_t condition = graph_option(c, 0), body = graph_option(c, 1);
  const auto test = [&](const Names& values) {
    const Names r = c.b.call(condition, values);
    if (r.size() != 1) c.b.fail("the condition of a WHILE gives no single value");
    return r[0];
  };
  Names loop{"", without_writes(c, [&] { return test(in); })};
  loop.insert(loop.end(), in.begin(), in.end());
  const auto g = without_writes(c, [&] {
    return c.b.subgraph([&](OnnxGraph& g) {
      Names carried;
      g.inputs = {c.b.port(c.b.unique("step")), c.b.port(c.b.unique("go"))};
      for (size_t i = 0; i < in.size(); ++i) {
        carried.push_back(c.b.unique("carried"));
        g.inputs.push_back(c.b.port(carried.back()));
      }
      const Names results = c.b.call(body, carried);
      if (results.size() != in.size())
        c.b.fail("the body of a WHILE gives another number of values than it takes");
      Names out{test(results)};
      out.insert(out.end(), results.begin(), results.end());
      return out;
    });
  });
  const Names out = c.many("Loop", "", std::move(loop), in.size(), {onnx_graph("body", g)});
  for (size_t i = 0; i < out.size() && i < c.op.out.size(); ++i) c.set(i, out[i]);
}

// ---- variables

/// The variable of a handle; a subgraph may also name it by itself.
std::string variable_of(const TfliteCall& c, size_t i) {
  c.tensor(i);
  const auto it = c.scope.resource.find(static_cast<size_t>(c.op.in[i]));
  if (it == c.scope.resource.end()) c.lacks("a variable that another subgraph hands over");
  return it->second;
}
void tflite_var_handle(TfliteCall& c) {
  c.result(0);
  const std::string container = c.op.options.text(0), name = c.op.options.text(1);
  c.scope.resource[static_cast<size_t>(c.op.out[0])] =
      container.empty() ? name : container + "/" + name;
}
void tflite_read_variable(TfliteCall& c) { c.set(0, c.b.read(variable_of(c, 0))); }
void tflite_assign_variable(TfliteCall& c) { c.b.write(variable_of(c, 0), c.x(1), c.tensor(1)); }

}  // namespace

std::span<const TfliteRow> tflite_control_rows() {
  static constexpr TfliteRow kRows[] = {
      {31, "CALL", tflite_call, nullptr, -1, Codes::any},
      {129, "CALL_ONCE", tflite_call_once, nullptr, -1, Codes::any},
      {118, "IF", tflite_if, nullptr, -1, Codes::any},
      {119, "WHILE", tflite_while, nullptr, -1, Codes::any},
      {142, "VAR_HANDLE", tflite_var_handle, nullptr, -1, Codes::any},
      {143, "READ_VARIABLE", tflite_read_variable, nullptr, -1, Codes::any},
      {144, "ASSIGN_VARIABLE", tflite_assign_variable, nullptr, -1, Codes::any},
  };
  return kRows;
}

}  // namespace tandem::onnx
