// SPDX-License-Identifier: Apache-2.0
// A constant of one element that a pointwise instruction reads beside a whole tensor becomes a
// number: exporters write factors and bounds as tensors of shape [] or [1]. Layouts, epilogues and
// loops then need not care about its shape. The bits stay: the number is the element, and rows
// whose expression would become another one are left alone.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "tandem/compile/passes/passes.h"
#include "tandem/compile/passes/rewriter.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/expression/scalar_expr.h"

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

using Numbers = std::vector<std::optional<double>>;

// Whether the row's expression keeps its operations with these numbers for inputs. What depends on
// numbers alone would be folded in f64, and x + 0 would lose the sign of a zero.
bool keeps_operations(const OpDef& row, const Numbers& numbers) {
  if (!row.expr_fn) return false;
  const ScalarGraph& g = expr_of(row);
  ScalarGraph with(g.n_in);
  std::vector<E> copy(g.nodes.size());
  for (int k = 0; k < g.n_in; ++k) {
    const std::optional<double>& n = numbers[static_cast<size_t>(k)];
    copy[static_cast<size_t>(k)] = n ? with.constant(Scalar(*n)) : with.input(k);
  }
  for (int out : g.outputs) with.import(g, out, copy);
  const auto operands = [](int a, int b, int c) {
    std::array<int, 3> all = {a, b, c};
    std::sort(all.begin(), all.end());
    return all;
  };
  const auto copied = [&](int id) { return id < 0 ? -1 : copy[static_cast<size_t>(id)].id(); };
  for (size_t k = 0; k < g.nodes.size(); ++k) {
    const ScalarNode& n = g.nodes[k];
    if (n.op == ScalarOp::input || n.op == ScalarOp::constant || !copy[k].defined()) continue;
    const ScalarNode& m = with.nodes[static_cast<size_t>(copy[k].id())];
    if (m.op != n.op || operands(m.a, m.b, m.c) != operands(copied(n.a), copied(n.b), copied(n.c)))
      return false;
  }
  return true;
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
  Numbers numbers(i.in.size());
  bool changed = false;
  for (size_t k = 0; k < numbers.size(); ++k) {
    Arg& a = i.in[k];
    if (a.value == kNone && a.is_number) numbers[k] = a.number.to_double();
    if (!is_constant_number(r, p, a) || r.spec(a.value).dtype != tensor->dtype) continue;
    const double n = *number_of(p, a);
    if (std::isnan(n)) continue;
    a = {};
    a.is_number = true;
    a.number = Scalar(n);
    numbers[k] = n;
    changed = true;
  }
  if (changed && keeps_operations(*i.op, numbers)) r.become(std::move(i));
}

}  // namespace

void number_operands(Program& p) {
  Rewriter(p).run({{of_family(Family::pointwise), use_numbers}});
  p.drop_unread_constants();
}

}  // namespace tandem::compiler
