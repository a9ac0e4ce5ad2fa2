// SPDX-License-Identifier: Apache-2.0
// Instructions that hand a value through are eliminated: identities, with_vjp (its derivative is
// traced by now), casts, there and back as well, views, sums and paddings that change nothing. A
// view of a fill is a fill: whatever a view does to equal elements, they stay equal.
#include "tandem/compile/passes/passes.h"
#include "tandem/compile/passes/rewriter.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/control.h"
#include "tandem/ops/view/view.h"

namespace tandem::compiler {
namespace {

void become_fill(Rewrite& r) {
  FillAttrs a = *static_cast<const FillAttrs*>(r.instr("fill").attrs.get());
  a.shape = r.spec(r.root().out[0]).shape;
  r.become(op::fill, &a, {});
}

void pass_same_spec(Rewrite& r) {
  const ValueId x = r.value("x"), y = r.root().out[0];
  if (y != kNone && r.spec(x) == r.spec(y)) r.replace(x);
}

void pass_unpadded(Rewrite& r) {
  const auto& a = *static_cast<const PadAttrs*>(r.root().attrs.get());
  for (const IntList* side : {&a.before, &a.after})
    for (const Dim d : *side)
      if (d != Dim(0)) return;
  pass_same_spec(r);
}

// From a 16-bit float to a wider one and back.
void pass_there_and_back(Rewrite& r) {
  const DType narrow = r.spec(r.value("x")).dtype, wide = r.spec(r.root().in[0].value).dtype;
  if (is_short_float(narrow) && is_floating(wide) && !is_short_float(wide)) pass_same_spec(r);
}

// Its operands are the n arguments of the derivative and then a value per output.
void pass_values(Rewrite& r) {
  const Instr& i = r.root();
  const size_t n = static_cast<size_t>(static_cast<const WithVjpAttrs*>(i.attrs.get())->n);
  for (size_t o = 0; o < i.out.size() && n + o < i.in.size(); ++o)
    if (i.out[o] != kNone && i.in[n + o].value != kNone) r.replace(i.in[n + o].value, o);
}

}  // namespace

void canonicalize(Program& p) {
  static const std::vector<Rule> kRules = {
      {of_family(Family::view, {row(op::fill).as("fill")}), become_fill},
      {with_flag(kPassesSame, {any("x")}), pass_same_spec},
      {row(op::pad, {any("x")}), pass_unpadded},
      {row(op::cast, {row(op::cast, {any("x")})}), pass_there_and_back},
      {row(op::with_vjp), pass_values},
  };
  Rewriter(p).run(kRules);
  remove_dead(p);
}

}  // namespace tandem::compiler
