// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <optional>

#include "tandem/grad/control_flow.h"
#include "tandem/onnx/import/operators/control_internal.h"
#include "tandem/onnx/import/reads_internal.h"
#include "tandem/onnx/import/run_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

// Steps times nodes that are unrolled rather than scanned: what a step knows about its number then
// folds, and loops fuse across steps. Beyond the second bound a trace takes too long.
constexpr int64_t kUnrolled = 1024, kMostUnrolled = 32768;
// Elements of an input that selects a branch.
constexpr int64_t kMostOfChoice = 4;

int64_t nodes_of(const OnnxGraph& g) {
  int64_t n = 1;
  for (const OnnxNode& node : g.nodes) {
    ++n;
    for (const OnnxAttribute& a : node.attributes)
      for (const auto& inner : a.graph_list) n += nodes_of(*inner);
  }
  return n;
}

/// Tensors of a body with their element types, which every run of it must repeat.
class TypedTensors {
 public:
  /// Throws Unsupported for what is not a tensor, DType where types differ from those of the first
  /// run.
  std::vector<Tensor> from(const std::vector<OnnxValue>& values) {
    std::vector<Tensor> out;
    std::vector<OnnxType> types;
    for (const OnnxValue& v : values) {
      TD_CHECK(v.is_tensor(), Unsupported, "a result is {}, not a tensor", v.describe());
      out.push_back(constant(v.tensor()));
      types.push_back(v.type());
    }
    if (!types_) types_ = types;
    TD_CHECK(*types_ == types, DType, "results have different element types");
    return out;
  }
  OnnxValue value(size_t i, Tensor t) const { return OnnxValue(std::move(t), types_->at(i)); }
  std::vector<OnnxValue> values(std::span<const Tensor> ts, size_t from = 0) const {
    std::vector<OnnxValue> out;
    for (size_t i = 0; i < ts.size(); ++i) out.push_back(value(from + i, ts[i]));
    return out;
  }

 private:
  std::optional<std::vector<OnnxType>> types_;
};

/// Runs `f`; false where it fails in a way that another form of the node may avoid.
template <class F>
bool succeeds(F f) {
  ReadProbe::Attempt attempt;
  try {
    f();
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Internal || e.kind() == ErrorKind::Format) throw;
    attempt.forget();
    return false;
  }
  return true;
}

// ---- Loop

bool is_true(const OnnxValue& v) {
  return v.is_none() || (v.is_tensor() && !is_hidden(v.tensor()) && onnx_flag(v));
}

// `steps` are known and every step runs: a scan over their numbers.
void loop_as_scan(OnnxCall& c, const LoopCall& l, int64_t steps) {
  const size_t n = l.values.size();
  TypedTensors carry, outs;
  const std::vector<Tensor> first = carry.from(l.values);
  const std::vector<Tensor> numbers{arange(0, steps, 1, DType::i64)};
  const auto step = [&](std::span<const Tensor> x) {
    const std::vector<OnnxValue> out =
        c.run_graph(l.body, l.step(OnnxValue(x[n]), carry.values(x.first(n))));
    TD_CHECK(is_true(out[0]), Unsupported, "its condition depends on values");
    std::vector<Tensor> all =
        carry.from({out.begin() + 1, out.begin() + 1 + static_cast<std::ptrdiff_t>(n)});
    for (Tensor& t : outs.from({out.begin() + 1 + static_cast<std::ptrdiff_t>(n), out.end()}))
      all.push_back(std::move(t));
    return all;
  };
  const std::vector<Tensor> y = detail::scan_call(step, first, numbers, {}, SourceLocation::here());
  for (size_t k = 0; k < y.size(); ++k)
    c.set(k, k < n ? carry.value(k, y[k]) : outs.value(k - n, y[k]));
}

// The step's number and the condition are carried before the values.
void loop_as_while(OnnxCall& c, const LoopCall& l) {
  TypedTensors carry;
  std::vector<Tensor> first{constant(known_number(0).tensor()),
                            c.has(1) ? c.x(1).reshape({}) : constant(tensor(true))};
  for (Tensor& t : carry.from(l.values)) first.push_back(std::move(t));
  const Tensor limit = c.has(0) ? c.x(0).to(DType::i64).reshape({}) : Tensor();
  const auto goes_on = [&](std::span<const Tensor> x) {
    return std::vector<Tensor>{limit.defined() ? logical_and(x[1], x[0] < limit) : x[1]};
  };
  const auto step = [&](std::span<const Tensor> x) {
    const std::vector<OnnxValue> out =
        c.run_graph(l.body, l.step(OnnxValue(x[0]), carry.values(x.subspan(2))));
    std::vector<Tensor> all{x[0] + 1, out[0].is_none() ? constant(tensor(true))
                                                       : constant(out[0].tensor()).reshape({})};
    for (Tensor& t : carry.from({out.begin() + 1, out.end()})) all.push_back(std::move(t));
    return all;
  };
  const std::vector<Tensor> y =
      detail::while_call(goes_on, step, first, {}, SourceLocation::here());
  for (size_t k = 2; k < y.size(); ++k) c.set(k - 2, carry.value(k - 2, y[k]));
}

// ---- Scan

Tensor sequence_of(const OnnxCall& c, const ScanCall& s, size_t k) {
  Tensor x = c.x(s.states + k);
  const int axis = normalize_dim(s.in_axes[k], x.dim());
  if (axis != 0) x = movedim(x, {axis}, {0});
  return s.in_reverse[k] ? flip(x, {0}) : x;
}

void scan_as_scan(OnnxCall& c, const ScanCall& s) {
  TypedTensors carry, slices, outs;
  const std::vector<Tensor> first =
      carry.from({c.in.begin(), c.in.begin() + static_cast<std::ptrdiff_t>(s.states)});
  slices.from({c.in.begin() + static_cast<std::ptrdiff_t>(s.states), c.in.end()});
  std::vector<Tensor> xs;
  for (size_t k = 0; k < s.scans; ++k) xs.push_back(sequence_of(c, s, k));
  const auto step = [&](std::span<const Tensor> x) {
    std::vector<OnnxValue> in = carry.values(x.first(s.states));
    for (OnnxValue& v : slices.values(x.subspan(s.states))) in.push_back(std::move(v));
    const std::vector<OnnxValue> out = c.run_graph(s.body, std::move(in));
    const auto n = static_cast<std::ptrdiff_t>(s.states);
    std::vector<Tensor> all = carry.from({out.begin(), out.begin() + n});
    for (Tensor& t : outs.from({out.begin() + n, out.end()})) all.push_back(std::move(t));
    return all;
  };
  const std::vector<Tensor> y = detail::scan_call(step, first, xs, {}, SourceLocation::here());
  for (size_t k = 0; k < s.states; ++k) c.set(k, carry.value(k, y[k]));
  for (size_t k = 0; k < s.outs; ++k) {
    Tensor t = y[s.states + k];
    if (s.out_reverse[k]) t = flip(t, {0});
    const int axis = normalize_dim(s.out_axes[k], t.dim());
    c.set(s.states + k, outs.value(k, axis == 0 ? t : movedim(t, {0}, {axis})));
  }
}

}  // namespace

OnnxValue known_number(int64_t v) {
  const OutsideTrace outside;
  return OnnxValue(tensor(v, DType::i64));
}

std::vector<OnnxValue> LoopCall::step(OnnxValue i, const std::vector<OnnxValue>& now) const {
  const OutsideTrace outside;
  std::vector<OnnxValue> in{std::move(i), OnnxValue(tensor(true))};
  in.insert(in.end(), now.begin(), now.end());
  in.resize(std::min(in.size(), body.input_slots.size()));
  return in;
}

bool if_as_cond(OnnxCall& c) {
  // A choice that follows from a few whole numbers of the call is better made known: each branch
  // then becomes a program of its own, without a cond and with its own fused loops.
  if (const ReadProbe* p = ReadProbe::current(); p && p->is_choice(c.in[0].tensor(), kMostOfChoice))
    return false;
  TypedTensors results;
  std::vector<Tensor> y;
  const auto branch = [&](const char* name) {
    return
        [&, name](std::span<const Tensor>) { return results.from(c.run_graph(c.graph(name), {})); };
  };
  const auto yes = branch("then_branch"), no = branch("else_branch");
  if (!succeeds([&] { y = detail::cond_call(c.x(0), yes, no, {}, SourceLocation::here()); }))
    return false;
  for (size_t i = 0; i < y.size(); ++i) c.set(i, results.value(i, y[i]));
  return true;
}

bool loop_in_trace(OnnxCall& c, const LoopCall& l, void (*by_steps)(OnnxCall&, const LoopCall&)) {
  const bool counted = c.has(0) && !c.hidden(0) && !c.hidden(1) && (!c.has(1) || c.flag(1));
  const int64_t nodes = nodes_of(l.body);
  const int64_t steps = counted ? std::max<int64_t>(c.int_at(0), 0) : 0;
  if (counted && steps <= kUnrolled / nodes && succeeds([&] { by_steps(c, l); })) return true;
  if (counted && steps > 0 && succeeds([&] { loop_as_scan(c, l, steps); })) return true;
  if (counted && steps > kUnrolled / nodes && steps <= kMostUnrolled / nodes &&
      succeeds([&] { by_steps(c, l); }))
    return true;
  if (l.outs > 0) return false;
  // A number of steps that follows from a few numbers of the call is better made known.
  const ReadProbe* p = ReadProbe::current();
  const auto is_choice = [&](size_t i) {
    return !c.hidden(i) || (p && p->is_choice(c.in[i].tensor(), 1));
  };
  if (!counted && is_choice(0) && is_choice(1) && (c.hidden(0) || c.hidden(1))) return false;
  return succeeds([&] { loop_as_while(c, l); });
}

bool scan_in_trace(OnnxCall& c, const ScanCall& s) {
  const OnnxValue& x = c.value(s.states);
  const Dim length = x.tensor().shape(normalize_dim(s.in_axes[0], x.tensor().dim()));
  const bool is_short =
      !length.is_symbolic() && length.value() <= std::max<int64_t>(kUnrolled / nodes_of(s.body), 1);
  return !is_short && succeeds([&] { scan_as_scan(c, s); });
}

}  // namespace tandem::onnx
