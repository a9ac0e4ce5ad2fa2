// SPDX-License-Identifier: Apache-2.0
// Evaluates rows on a few numbers with the reference evaluator: used by the tests of expressions,
// programs and derivatives.
#pragma once

#include <vector>

#include "tandem/graph/expression/scalar_eval.h"
#include "tandem/graph/expression/scalar_expr.h"
#include "tandem/graph/op_def.h"

namespace tandem::testing {

/// Whether input i of `op` is a number.
inline bool is_number_input(const OpDef& op, int i) {
  return OpDef::last_char(op.in_names[i]) == '$';
}

/// The row's first output at `x`, in f64; inputs marked $ are given as numbers.
inline double value_of(const OpDef& op, const std::vector<double>& x) {
  std::vector<OperandType> in;
  for (int i = 0; i < op.n_in; ++i)
    in.push_back({is_number_input(op, i) ? OperandType::number : OperandType::tensor, DType::f64});
  std::vector<DType> out(op.n_out, DType::f64);
  if (op.types == Types::compare || op.types == Types::logical) out[0] = DType::b8;
  const ScalarProgram& p = program_of(op, in, out);
  std::vector<Value> regs(p.code.size()), v(x.size());
  for (size_t i = 0; i < x.size(); ++i) v[i] = to_value(Scalar(x[i]), reg_of(p.in[i]));
  evaluate(p, v.data(), regs.data(), nullptr);
  const Value y = regs[p.out[0].reg];
  return out[0] == DType::b8 ? y.b8 : y.f64;
}

/// A function over E as a row, for tests.
inline OpDef row_of(const char* name, Types types, std::initializer_list<const char*> ins,
                    ExprFn f) {
  return make_row(name, Family::pointwise, types, ins, nullptr).expr(f);
}

}  // namespace tandem::testing
