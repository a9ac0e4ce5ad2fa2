// SPDX-License-Identifier: Apache-2.0
// cond, while_loop and scan as If, Loop and Scan. Results of one dtype are concatenated in one flat
// output of the row; the same is done here. A body refers to captured values by name.
#include "tandem/grad/control_flow_internal.h"
#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

const ControlAttrs& attrs_of(const OnnxExportCall& c) { return c.get_attrs<ControlAttrs>(); }

control::Layout layout(const OnnxExportCall& c) {
  std::vector<Shape> shapes;
  for (const auto& i : c.in) shapes.push_back(i.spec.shape);
  return control::layout_of(control::results_of(c.op, attrs_of(c), shapes));
}

// The results by group, each flat.
Names flat(OnnxBuilder& b, const control::Layout& l, const Names& results) {
  std::vector<Names> parts(l.groups.size());
  const std::string all = b.ints({-1});
  for (size_t k = 0; k < results.size(); ++k)
    parts[static_cast<size_t>(l.pieces[k].group)].push_back(b.node("Reshape", {results[k], all}));
  Names out;
  for (const Names& p : parts)
    out.push_back(p.size() == 1 ? p[0] : b.node("Concat", p, {onnx_int("axis", 0)}));
  return out;
}

std::string scalar(OnnxBuilder& b, const std::string& x, const Shape& shape) {
  return shape.rank() == 0 ? x : b.reshape(x, Shape{});
}
// A result of a body must be computed inside it.
void give(OnnxBuilder& b, OnnxGraph& g, const std::string& x, const Spec& spec) {
  g.outputs.push_back(b.port(b.node("Identity", {x}), spec));
}
std::string take(OnnxBuilder& b, OnnxGraph& g, const char* name, const Spec& spec) {
  g.inputs.push_back(b.port(b.unique(name), spec));
  return g.inputs.back().name;
}
Names names_of(const OnnxExportCall& c, size_t from, size_t to) {
  Names out;
  for (size_t i = from; i < to; ++i) out.push_back(c.x(i));
  return out;
}
Names concatenated(Names a, const Names& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

bool export_cond(OnnxExportCall& c) {
  const auto& a = attrs_of(c);
  const control::Layout l = layout(c);
  const auto operands = 1 + static_cast<size_t>(a.carries),
             captured = operands + static_cast<size_t>(a.sequences);
  const Names shared = names_of(c, 1, operands);
  const auto branch = [&](const Ref<RefCounted>& body, const Names& own) {
    return c.b.subgraph([&](OnnxGraph& g) {
      const Names y =
          flat(c.b, l, c.b.inline_graph(control::graph_of(body), concatenated(shared, own)));
      for (size_t k = 0; k < y.size(); ++k) g.outputs.push_back(c.b.port(y[k], l.groups[k]));
    });
  };
  const auto yes = branch(a.body, names_of(c, operands, captured));
  const auto no = branch(a.other, names_of(c, captured, c.in.size()));
  const Names y = c.b.add("If", {scalar(c.b, c.x(0), c.shape(0))}, l.groups.size(),
                          {onnx_graph("then_branch", yes), onnx_graph("else_branch", no)});
  for (size_t k = 0; k < y.size() && k < c.result.size(); ++k) c.set(k, y[k]);
  return true;
}

bool export_while(OnnxExportCall& c) {
  const auto& a = attrs_of(c);
  const control::Layout l = layout(c);
  const auto carries = static_cast<size_t>(a.carries),
             captured = carries + static_cast<size_t>(a.sequences);
  const Names of_body = names_of(c, carries, captured),
              of_cond = names_of(c, captured, c.in.size());
  const Graph& cond = control::graph_of(a.other);
  const auto holds = [&](const Names& state) {
    return scalar(c.b, c.b.inline_graph(cond, concatenated(state, of_cond))[0],
                  cond.outputs[0].shape());
  };
  Names in = {a.max_steps ? c.b.number(a.max_steps, DType::i64) : "",
              holds(names_of(c, 0, carries))};
  in = concatenated(std::move(in), names_of(c, 0, carries));
  const auto body = c.b.subgraph([&](OnnxGraph& g) {
    take(c.b, g, "step", Spec(DType::i64, Shape{}));
    take(c.b, g, "on", Spec(DType::b8, Shape{}));
    Names state;
    for (size_t i = 0; i < carries; ++i) state.push_back(take(c.b, g, "state", c.in[i].spec));
    const Names next = c.b.inline_graph(control::graph_of(a.body), concatenated(state, of_body));
    give(c.b, g, holds(next), Spec(DType::b8, Shape{}));
    for (size_t i = 0; i < carries; ++i) give(c.b, g, next[i], c.in[i].spec);
  });
  const Names y = flat(c.b, l, c.b.add("Loop", in, carries, {onnx_graph("body", body)}));
  for (size_t k = 0; k < y.size() && k < c.result.size(); ++k) c.set(k, y[k]);
  return true;
}

bool export_scan(OnnxExportCall& c) {
  const auto& a = attrs_of(c);
  const control::Layout l = layout(c);
  const Graph& step = control::graph_of(a.body);
  const auto carries = static_cast<size_t>(a.carries), xs = static_cast<size_t>(a.sequences);
  const size_t ys = l.pieces.size() - carries;
  const Names around = names_of(c, carries + xs, c.in.size());
  const auto body = c.b.subgraph([&](OnnxGraph& g) {
    Names in;
    if (xs == 0) {  // a Loop
      take(c.b, g, "step", Spec(DType::i64, Shape{}));
      const std::string on = take(c.b, g, "on", Spec(DType::b8, Shape{}));
      give(c.b, g, on, Spec(DType::b8, Shape{}));
    }
    for (size_t i = 0; i < carries + xs; ++i) {
      Spec s = c.in[i].spec;
      if (i >= carries) s.shape.erase(0);
      in.push_back(take(c.b, g, i < carries ? "state" : "slice", s));
    }
    const Names y = c.b.inline_graph(step, concatenated(in, around));
    for (size_t i = 0; i < y.size(); ++i)
      give(c.b, g, y[i], i < carries ? c.in[i].spec : spec_of(step.outputs[i]));
  });
  Names y;
  if (xs > 0) {
    OnnxAttributes all = {onnx_graph("body", body),
                          onnx_int("num_scan_inputs", static_cast<int64_t>(xs))};
    if (a.reverse) {
      all.push_back(onnx_ints("scan_input_directions", std::vector<int64_t>(xs, 1)));
      if (ys) all.push_back(onnx_ints("scan_output_directions", std::vector<int64_t>(ys, 1)));
    }
    y = c.b.add("Scan", names_of(c, 0, carries + xs), carries + ys, all);
  } else {
    const std::string steps = c.b.reshape(c.b.dim(a.length[0]), Shape{});
    const Names in = concatenated({steps, c.b.number(true, DType::b8)}, names_of(c, 0, carries));
    y = c.b.add("Loop", in, carries + ys, {onnx_graph("body", body)});
    for (size_t i = carries; a.reverse && i < y.size(); ++i)
      y[i] = c.b.slice(y[i], 0, -1, std::numeric_limits<int64_t>::min() / 4, -1);
  }
  const Names groups = flat(c.b, l, y);
  for (size_t k = 0; k < groups.size() && k < c.result.size(); ++k) c.set(k, groups[k]);
  return true;
}

}  // namespace tandem::onnx
