// SPDX-License-Identifier: Apache-2.0
// Random scalar expressions for the tests of the tile interpreter and of emitted C.
#pragma once

#include <random>

#include "codegen_helper.h"
#include "tandem/graph/expression/scalar_expr.h"

namespace tandem {

/// The instruction of `op` over registers 0..arity-1 of type `t`.
inline ScalarInstr instruction(ScalarOp op, Reg t) {
  const int arity = arity_of(op);
  ScalarInstr i;
  i.op = op;
  i.type = t;
  const bool test = (op >= ScalarOp::eq && op <= ScalarOp::ge) ||
                    (op >= ScalarOp::isnan && op <= ScalarOp::isfinite);
  i.result = test ? Reg::b8 : t;
  i.a = 0;
  i.b = static_cast<int16_t>(arity > 1 ? 1 : -1);
  i.c = static_cast<int16_t>(arity > 2 ? 2 : -1);
  return i;
}

// A random expression over `n_in` inputs.
inline void random_graph(ScalarGraph& g, std::mt19937_64& gen, int n_ops) {
  static constexpr ScalarOp kOps[] = {
      ScalarOp::add,  ScalarOp::sub,   ScalarOp::mul,    ScalarOp::div,    ScalarOp::max,
      ScalarOp::min,  ScalarOp::neg,   ScalarOp::abs,    ScalarOp::sqrt,   ScalarOp::exp,
      ScalarOp::tanh, ScalarOp::floor, ScalarOp::select, ScalarOp::sigmoid};
  std::vector<E> pool;
  for (int k = 0; k < g.n_in; ++k) pool.push_back(g.input(k));
  const auto pick = [&]() -> E {
    if (gen() % 6 == 0) return E(static_cast<double>(gen() % 5) - 2);
    return pool[gen() % pool.size()];
  };
  for (int k = 0; k < n_ops; ++k) {
    const ScalarOp op = kOps[gen() % std::size(kOps)];
    const E a = pool[gen() % pool.size()];
    E r;
    switch (arity_of(op)) {
      case 1:
        r = g.make(op, a);
        break;
      case 2:
        r = g.make(op, gen() % 2 ? a : pick(), gen() % 2 ? a : pick());
        break;
      default: {
        static constexpr ScalarOp kTests[] = {ScalarOp::lt, ScalarOp::le, ScalarOp::gt,
                                              ScalarOp::ge};
        const E test = g.make(kTests[gen() % 4], gen() % 2 ? a : pick(), a);
        r = g.make(op, test, pick(), pick());
      }
    }
    if (!r.is_number()) pool.push_back(r);
  }
  g.add_output(pool.back());
  g.add_output(pool[pool.size() / 2]);
}

/// The 16-bit outputs of `p` in the form that a loop of several rows gives them: narrowed in a
/// register, then used in computation.
inline ScalarProgram narrowed(ScalarProgram p, DType compute) {
  if (compute != DType::f16 && compute != DType::bf16) return p;
  for (ScalarProgram::Out& out : p.out) {
    if (p.code[static_cast<size_t>(out.reg)].result != Reg::f32) continue;
    ScalarInstr wrap;
    wrap.op = ScalarOp::wrap;
    wrap.a = out.reg;
    wrap.narrow = compute;
    p.code.push_back(wrap);
    ScalarInstr square;
    square.op = ScalarOp::mul;
    square.a = square.b = static_cast<int16_t>(p.code.size() - 1);
    p.code.push_back(square);
    out.reg = static_cast<int16_t>(p.code.size() - 1);
  }
  return p;
}

}  // namespace tandem
