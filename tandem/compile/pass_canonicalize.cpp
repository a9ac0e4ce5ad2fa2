// SPDX-License-Identifier: Apache-2.0
// Instructions that hand a value through are dropped: identities, with_vjp (its derivative is
// traced by now), casts, views and sums that change nothing. A view of a fill is a fill.
#include "tandem/compile/passes.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/control.h"

namespace tandem::compiler {
namespace {

// The operand that output `o` is, or kNone.
int passed_through(const Program& p, const Instr& i, int o) {
  if (!i.op || i.op->has(kEffect) || i.in.empty()) return kNone;
  if (i.op == &op::with_vjp) {
    const auto& a = *static_cast<const WithVjpAttrs*>(i.attrs.get());
    size_t k = static_cast<size_t>(a.n) + static_cast<size_t>(o);
    return k < i.in.size() ? i.in[k].value : kNone;
  }
  if (o != 0 || i.in[0].value == kNone || i.out[0] == kNone) return kNone;
  const Value &x = p.values[static_cast<size_t>(i.in[0].value)],
              &y = p.values[static_cast<size_t>(i.out[0])];
  if (!(x.spec == y.spec)) return kNone;
  if (i.op == &op::identity || i.op == &op::cast || i.op == &op::view || i.op == &op::sum_to ||
      i.op == &op::copy)
    return i.in[0].value;
  return kNone;
}

// Whatever a view does to equal elements, they stay equal.
void fill_views(Program& p) {
  std::vector<const Instr*> maker(p.values.size());
  for (Instr& i : p.instrs) {
    if (i.op && i.op->family == Family::view && i.in[0].value != kNone) {
      const Instr* from = maker[static_cast<size_t>(i.in[0].value)];
      if (from && from->op == &op::fill) {
        FillAttrs a = *static_cast<const FillAttrs*>(from->attrs.get());
        a.shape = p.values[static_cast<size_t>(i.out[0])].spec.shape;
        i.op = &op::fill;
        i.attrs = AttrsHolder(op::fill.attrs, &a);
        i.in.clear();
      }
    }
    for (int v : i.out)
      if (v != kNone) maker[static_cast<size_t>(v)] = &i;
  }
}

}  // namespace

void canonicalize(Program& p) {
  fill_views(p);
  std::vector<int> now(p.values.size());
  for (size_t v = 0; v < now.size(); ++v) now[v] = static_cast<int>(v);
  for (Instr& i : p.instrs) {
    for (Arg& a : i.in)
      if (a.value != kNone) a.value = now[static_cast<size_t>(a.value)];
    for (size_t o = 0; o < i.out.size(); ++o) {
      int from = passed_through(p, i, static_cast<int>(o));
      if (from != kNone && i.out[o] != kNone) now[static_cast<size_t>(i.out[o])] = from;
    }
  }
  p.replace_uses(now);
  remove_dead(p);
}

}  // namespace tandem::compiler
