// SPDX-License-Identifier: Apache-2.0
// Files with channels last read as they were meant: a permutation moves past elementwise ops, and
// one that undoes another goes with it.
#include <algorithm>

#include "tandem/edge/module/layers_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::edge {
namespace {

const IntList& dims_of(const ModuleStep& s) { return StepGraph::attrs<PermuteAttrs>(s).dims; }

bool undoes(const IntList& second, const IntList& first) {
  for (int i = 0; i < second.rank(); ++i)
    if (first.rank() != second.rank() || !(first[static_cast<int>(second[i].value())] == Dim(i)))
      return false;
  return true;
}

class PermuteMover {
 public:
  explicit PermuteMover(TracedModel& m) : m_(m) {}

  void run() {
    while (move_one() || cancel_one()) {}
  }

 private:
  // f(permute(x)) is permute(f(x)), also for f of several tensors that are permuted alike.
  bool move_one() {
    const StepGraph g(m_);
    for (ModuleStep& s : m_.steps) {
      if (!s.node || s.node->op->family != Family::pointwise || s.out.size() != 1) continue;
      std::vector<ModuleStep*> all;
      const IntList* dims = nullptr;
      bool alike = true;
      for (size_t i = 0; i < s.in.size() && alike; ++i) {
        if (s.in[i].value == kNoValue) continue;
        const Weight* w = g.weight(s, i);
        if (w && w->value.dim() == 0) continue;
        ModuleStep* p = g.maker(s.in[i].value);
        alike = g.is_op(p, "permute") && p->path == s.path && g.only_reader(p->out[0]) == &s &&
                (!dims || *dims == dims_of(*p)) &&
                std::find(all.begin(), all.end(), p) == all.end();
        if (!alike) break;
        dims = &dims_of(*p);
        all.push_back(p);
      }
      if (!alike || all.empty()) continue;
      move(s, all);
      return true;
    }
    return false;
  }

  void move(ModuleStep& s, const std::vector<ModuleStep*>& all) {
    for (StepInput& x : s.in)
      for (const ModuleStep* p : all)
        if (x.value == p->out[0]) x = p->in[0];
    // The last permutation takes the result; its value is that of the op now.
    ModuleStep moved = *all.back();
    const ValueId between = moved.out[0];
    const DType dtype = m_.values[static_cast<size_t>(s.out[0])].spec.dtype;
    m_.values[static_cast<size_t>(between)].spec =
        Spec(dtype, m_.values[static_cast<size_t>(moved.in[0].value)].spec.shape);
    moved.out[0] = s.out[0];
    moved.in[0].value = between;
    s.out[0] = between;
    std::vector<ModuleStep> steps;
    for (ModuleStep& one : m_.steps) {
      if (std::find(all.begin(), all.end(), &one) != all.end()) continue;
      const bool here = &one == &s;
      steps.push_back(std::move(one));
      if (here) steps.push_back(moved);
    }
    m_.steps = std::move(steps);
  }

  bool cancel_one() {
    const StepGraph g(m_);
    for (ModuleStep& s : m_.steps) {
      if (!g.is_op(&s, "permute")) continue;
      const ModuleStep* first = g.maker(s.in[0].value);
      if (!g.is_op(first, "permute") || !undoes(dims_of(s), dims_of(*first))) continue;
      const ValueId x = first->in[0].value, y = s.out[0];
      for (ModuleStep& r : m_.steps)
        for (StepInput& in : r.in)
          if (in.value == y) in.value = x;
      std::replace(m_.outputs.begin(), m_.outputs.end(), y, x);
      const bool alone = g.only_reader(first->out[0]) == &s;
      std::vector<ModuleStep> steps;
      for (ModuleStep& one : m_.steps)
        if (&one != &s && (!alone || &one != first)) steps.push_back(std::move(one));
      m_.steps = std::move(steps);
      return true;
    }
    return false;
  }

  TracedModel& m_;
};

}  // namespace

void move_permutes(TracedModel& m) { PermuteMover(m).run(); }

}  // namespace tandem::edge
