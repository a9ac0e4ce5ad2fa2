// SPDX-License-Identifier: Apache-2.0
// The reference semantics of ScalarProgram: one element at a time, in instruction order, with the
// math prelude. Every other executor gives the same bits. Also folds constants.
#pragma once

#include "tandem/graph/expression/scalar_program.h"
#include "tandem/graph/kernel.h"

namespace tandem {

/// A register; the instruction tells which member is active.
union Value {
  int64_t i64 = 0;
  double f64;
  float f32;
  bool b8;
};

/// Code reported for an integer division by zero (the result is 0).
inline constexpr int32_t kDivisionByZero = 1;

/// Whether `op` is defined on integers; otherwise it is computed in floating point.
TD_API bool has_integer_form(ScalarOp op);

/// The result of one instruction (not input, not constant) on given operands.
TD_API Value evaluate_one(const ScalarInstr& instr, Value a, Value b, Value c, ErrorWord* error);

/// Run all instructions: `in[k]` is input k as a register of reg_of(program.in[k]); `regs` has room
/// for program.code.size() values and holds every register afterwards.
TD_API void evaluate(const ScalarProgram& program, const Value* in, Value* regs, ErrorWord* error);

/// Element `index` of storage of dtype `t` as a register, and back (rounded once, wrapped).
TD_API Value load_value(const void* data, DType t, int64_t index);
TD_API void store_value(void* data, DType t, int64_t index, Value v);
/// A number as a register of type `r`.
TD_API Value to_value(const Scalar& s, Reg r);

/// `reference` of every pointwise row: any dtypes and strides, numbers as operands. An integer
/// division by zero gives 0 and reports kDivisionByZero.
TD_API void pointwise_reference(const KernelCall& call);

}  // namespace tandem
