// SPDX-License-Identifier: Apache-2.0
// ONNX control flow: If, Loop and Scan run graphs stored in attributes, which may read values of
// the enclosing graphs. In a trace they become cond, while_loop and scan where they can
// (control_traced.cpp); what is known and short is unrolled.
#include <algorithm>
#include <limits>

#include "tandem/grad/control_flow.h"
#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/operators/control_internal.h"
#include "tandem/onnx/import/run_internal.h"
#include "tandem/ops/check_numerics.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

void if_of(OnnxCall& c) {
  if (c.hidden(0) && if_as_cond(c)) return;
  const bool yes = c.flag(0);
  std::vector<OnnxValue> out = c.run_graph(c.graph(yes ? "then_branch" : "else_branch"), {});
  for (size_t i = 0; i < out.size(); ++i) c.set(i, std::move(out[i]));
}

/// The values of all steps as one: tensors are stacked, anything else cannot be.
OnnxValue stacked(const std::vector<OnnxValue>& steps, int64_t axis, const OnnxTypeSpec& spec) {
  if (steps.empty()) {  // no step has run: only the graph's declaration is known
    std::vector<int64_t> s{0};
    for (const int64_t d : spec.dims) s.push_back(std::max<int64_t>(d, 0));
    const OnnxType type = spec.elem == OnnxType::undefined ? OnnxType::f32 : spec.elem;
    return OnnxValue(zeros(onnx_shape(s), info_of(type).carrier), type);
  }
  std::vector<Tensor> ts;
  for (const OnnxValue& v : steps) ts.push_back(constant(v.tensor()));
  return OnnxValue(stack(ts, axis), steps[0].type());
}

void loop_by_steps(OnnxCall& c, const LoopCall& l) {
  const int64_t limit = c.has(0) ? c.int_at(0) : std::numeric_limits<int64_t>::max();
  bool go = !c.has(1) || c.flag(1);
  std::vector<OnnxValue> values = l.values;
  std::vector<std::vector<OnnxValue>> scans(l.outs);
  for (int64_t i = 0; go && i < limit; ++i) {
    std::vector<OnnxValue> out = c.run_graph(l.body, l.step(known_number(i), values));
    if (!out[0].is_none()) go = onnx_flag(out[0]);
    for (size_t k = 0; k < values.size(); ++k) values[k] = out[1 + k];
    for (size_t k = 0; k < l.outs; ++k) scans[k].push_back(out[1 + values.size() + k]);
  }
  for (size_t k = 0; k < values.size(); ++k) c.set(k, values[k]);
  for (size_t k = 0; k < l.outs; ++k)
    c.set(values.size() + k, stacked(scans[k], 0, l.body.outputs[1 + values.size() + k].type));
}

void loop_of(OnnxCall& c) {
  const OnnxGraph& body = c.graph("body");
  const size_t carried = c.in.size() < 2 ? 0 : c.in.size() - 2;
  TD_CHECK(body.outputs.size() >= 1 + carried, Format, "its body returns {} results for {} values",
           body.outputs.size(), carried);
  const LoopCall l{
      body,
      {c.in.begin() + static_cast<int64_t>(std::min<size_t>(2, c.in.size())), c.in.end()},
      body.outputs.size() - 1 - carried};
  if (!values_hidden() || !loop_in_trace(c, l, loop_by_steps)) loop_by_steps(c, l);
}

/// One run over sequences; `in` are the states, then the sequences.
std::vector<OnnxValue> run_scan(const OnnxCall& c, const ScanCall& s,
                                const std::vector<OnnxValue>& in, int64_t length) {
  std::vector<OnnxValue> values(in.begin(), in.begin() + static_cast<int64_t>(s.states));
  std::vector<std::vector<OnnxValue>> ys(s.outs);
  for (int64_t i = 0; i < length; ++i) {
    std::vector<OnnxValue> step = values;
    for (size_t k = 0; k < s.scans; ++k) {
      const OnnxValue& x = in[s.states + k];
      const int64_t at = s.in_reverse[k] ? length - 1 - i : i;
      step.push_back(OnnxValue(x.tensor().select(s.in_axes[k], at), x.type()));
    }
    std::vector<OnnxValue> out = c.run_graph(s.body, std::move(step));
    for (size_t k = 0; k < s.states; ++k) values[k] = out[k];
    for (size_t k = 0; k < s.outs; ++k) ys[k].push_back(out[s.states + k]);
  }
  for (size_t k = 0; k < s.outs; ++k) {
    if (s.out_reverse[k]) std::reverse(ys[k].begin(), ys[k].end());
    values.push_back(stacked(ys[k], s.out_axes[k], s.body.outputs[s.states + k].type));
  }
  return values;
}

std::vector<int64_t> list_or_zeros(const OnnxCall& c, const char* name, size_t n) {
  std::vector<int64_t> v = c.attr_ints(name);
  TD_CHECK(v.size() <= n, Value, "its attribute '{}' has {} entries for {}", name, v.size(), n);
  v.resize(n, 0);
  return v;
}

ScanCall scan_call(const OnnxCall& c, size_t inputs) {
  const OnnxGraph& body = c.graph("body");
  const auto scans = static_cast<size_t>(c.attr("num_scan_inputs", 0));
  TD_CHECK(scans >= 1 && scans <= inputs && body.outputs.size() >= inputs - scans, Format,
           "{} sequences among {} inputs", scans, inputs);
  ScanCall s{body, inputs - scans, scans, body.outputs.size() - (inputs - scans), {}, {}, {}, {}};
  s.in_axes = list_or_zeros(c, "scan_input_axes", scans);
  s.in_reverse = list_or_zeros(c, "scan_input_directions", scans);
  s.out_axes = list_or_zeros(c, "scan_output_axes", s.outs);
  s.out_reverse = list_or_zeros(c, "scan_output_directions", s.outs);
  return s;
}

void scan_of(OnnxCall& c) {
  const ScanCall s = scan_call(c, c.in.size());
  if (values_hidden() && scan_in_trace(c, s)) return;
  const int64_t length = c.x(s.states).size(s.in_axes[0]);
  std::vector<OnnxValue> out = run_scan(c, s, c.in, length);
  for (size_t i = 0; i < out.size(); ++i) c.set(i, std::move(out[i]));
}

// Opset 8 scans a batch: lengths come first, every input has a batch dimension.
void scan_of_batch(OnnxCall& c) {
  TD_CHECK(c.in.size() >= 2, Format, "expected lengths and a sequence, has {} inputs", c.in.size());
  ScanCall s = scan_call(c, c.in.size() - 1);
  s.in_reverse = list_or_zeros(c, "directions", s.scans);
  const std::vector<OnnxValue> in(c.in.begin() + 1, c.in.end());
  const int64_t batch = in[0].tensor().size(0), longest = in[s.states].tensor().size(1);
  const std::vector<int64_t> lengths =
      c.has(0) ? c.ints(0) : std::vector<int64_t>(static_cast<size_t>(batch), longest);
  TD_CHECK(static_cast<int64_t>(lengths.size()) == batch, Shape, "expected {} lengths, got {}",
           batch, lengths.size());
  std::vector<std::vector<OnnxValue>> results(s.states + s.outs);
  for (int64_t b = 0; b < batch; ++b) {
    std::vector<OnnxValue> one;
    for (const OnnxValue& v : in) one.push_back(OnnxValue(v.tensor().select(0, b), v.type()));
    const std::vector<OnnxValue> out = run_scan(c, s, one, lengths[static_cast<size_t>(b)]);
    for (size_t k = 0; k < out.size(); ++k) {
      Tensor t = out[k].tensor();
      if (k >= s.states && t.size(0) < longest)  // shorter sequences are padded
        t = cat({t, zeros(
                        [&] {
                          Shape shape = t.shape();
                          shape[0] = longest - t.size(0);
                          return shape;
                        }(),
                        t.dtype())},
                0);
      results[k].push_back(OnnxValue(t, out[k].type()));
    }
  }
  for (size_t k = 0; k < results.size(); ++k) c.set(k, stacked(results[k], 0, {}));
}

}  // namespace

std::span<const OnnxRow> onnx_control_rows() {
  static constexpr OnnxRow kRows[] = {
      {"", "If", 1, 0, if_of, {1, kOnnxAny, "else_branch then_branch"}, &op::cond, export_cond},
      {"", "Loop", 1, 0, loop_of, {kOnnxAny, kOnnxAny, "body"}, &op::while_loop, export_while},
      {"", "Scan", 8, 8, scan_of_batch, {kOnnxAny, kOnnxAny, "body directions num_scan_inputs"}},
      {"",
       "Scan",
       9,
       0,
       scan_of,
       {kOnnxAny, kOnnxAny,
        "body num_scan_inputs scan_input_axes scan_input_directions scan_output_axes "
        "scan_output_directions"},
       &op::scan,
       export_scan},
      exported(op::with_vjp, export_with_vjp),
      exported(op::debug_print, export_alias),
      exported(op::check_numerics, export_alias),
  };
  return kRows;
}

}  // namespace tandem::onnx
