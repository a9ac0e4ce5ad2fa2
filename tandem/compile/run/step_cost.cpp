// SPDX-License-Identifier: Apache-2.0
// What the steps of a compiled program cost: for the profiler, and for the budget of a file.
#include <algorithm>

#include "tandem/base/budget.h"
#include "tandem/compile/run/executable.h"
#include "tandem/graph/profiler.h"

namespace tandem {
namespace {
constinit const OpDef kLoop = composite("loop", {}, nullptr, nullptr);
}  // namespace

const OpDef& Executable::loop_row() { return kLoop; }

InferCall Executable::infer_call(const compiler::Step& s) const {
  const OpDef& op = s.op ? *s.op : loop_row();
  InferCall c(op, s.attrs.get());
  c.out.clear();
  const auto spec = [&](int place) {
    const compiler::Place& q = lowered_.places[place];
    return Spec(q.dtype, q.shape);
  };
  for (const compiler::StepInput& x : s.in) {
    c.in.push_back(x.place == compiler::kNone ? Spec() : spec(x.place));
    c.present.push_back(x.is_number ? 2 : x.place == compiler::kNone ? 0 : 1);
    c.scalars.push_back(x.number);
  }
  for (int o : s.out) c.out.push_back(o == compiler::kNone ? Spec(DType::f32, Shape(0)) : spec(o));
  return c;
}

Executable::StepCost Executable::cost_of(const compiler::Step& s) const {
  if (s.op) {
    const InferCall c = infer_call(s);
    return {flops_of(c), bytes_of(c)};
  }
  StepCost cost;
  const auto elements = [&](int place) {
    return static_cast<double>(lowered_.places[place].shape.numel().value());
  };
  cost.flops =
      elements(s.out[0]) * static_cast<double>(s.program->code.size() - s.program->in.size());
  const auto moved = [&](int place) {
    if (place < 0) return;
    cost.bytes += elements(place) * static_cast<double>(size_of(lowered_.places[place].dtype));
  };
  for (const compiler::StepInput& x : s.in) moved(x.place);
  for (const int o : s.out) moved(o);
  return cost;
}

// What is only moved or drawn takes time, too: at least an operation for each element.
double Executable::operations() const {
  double sum = 0;
  for (const compiler::Step& s : lowered_.steps) {
    double elements = 0;
    for (const int o : s.out)
      if (o >= 0) elements += static_cast<double>(lowered_.places[o].shape.numel().value());
    sum += std::max(elements, cost_of(s).flops);
  }
  return sum;
}

// To the open budget: a model from a file is running. The body of a loop comes here once for each
// of its iterations.
void Executable::charge() const {
  std::call_once(operations_once_, [this] { operations_ = operations(); });
  Budget::count(std::max<size_t>(lowered_.steps.size(), 1));
  Budget::work(operations_);
  Budget::check_time();
}

}  // namespace tandem
