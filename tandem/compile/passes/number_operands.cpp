// SPDX-License-Identifier: Apache-2.0
// A constant of one element that a pointwise instruction reads beside a whole tensor becomes a
// number: exporters write factors and bounds as tensors of shape [] or [1]. Layouts, epilogues and
// loops then need not care about its shape. The bits stay: the number is the element.
#include <cmath>

#include "tandem/compile/passes/passes.h"
#include "tandem/compile/passes/rewriter.h"
#include "tandem/graph/apply.h"

namespace tandem::compiler {
namespace {

bool takes_numbers(const Instr& i) {
  const Types t = i.op->types;
  return (t == Types::arith || t == Types::floating || t == Types::compare) && i.out.size() == 1 &&
         i.out[0] != kNone;
}

bool is_constant_number(const Rewrite& r, const Program& p, const Arg& a) {
  if (a.value == kNone || p.values[a.value].origin != Origin::constant) return false;
  const Spec& s = r.spec(a.value);
  return s.shape.numel() == Dim(1) && (s.dtype == DType::f32 || s.dtype == DType::f64);
}

void use_numbers(Rewrite& r) {
  const Program& p = r.program();
  if (!takes_numbers(r.root())) return;
  // What is not a number gives the result its shape and dtype by itself.
  Shape shape;
  const Spec* tensor = nullptr;
  bool any = false;
  for (const Arg& a : r.root().in) {
    if (a.value == kNone) continue;
    if (is_constant_number(r, p, a)) {
      any = true;
      continue;
    }
    if (tensor && tensor->dtype != r.spec(a.value).dtype) return;
    tensor = &r.spec(a.value);
    shape = broadcast_shapes(shape, tensor->shape);
  }
  if (!any || !tensor || !(shape == r.spec(r.root().out[0]).shape)) return;
  Instr i = r.root();
  bool changed = false;
  for (Arg& a : i.in) {
    if (!is_constant_number(r, p, a) || r.spec(a.value).dtype != tensor->dtype) continue;
    const double n = *number_of(p, a);
    if (std::isnan(n)) continue;
    a = {};
    a.is_number = true;
    a.number = Scalar(n);
    changed = true;
  }
  if (changed) r.become(std::move(i));
}

}  // namespace

void number_operands(Program& p) {
  Rewriter(p).run({{of_family(Family::pointwise), use_numbers}});
  p.drop_unread_constants();
}

}  // namespace tandem::compiler
