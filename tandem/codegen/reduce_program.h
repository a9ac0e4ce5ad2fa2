// SPDX-License-Identifier: Apache-2.0
// A reduction or scan row with types put in: its four expressions as ScalarPrograms over registers,
// and, where the row is that simple, as a fold (sum, product, extreme) of a mapped element.
#pragma once

#include <memory>

#include "tandem/codegen/tile_kernels.h"
#include "tandem/graph/op_def.h"

namespace tandem::codegen {

inline constexpr int kMaxStates = 4;

struct ReduceProgram {
  int n_states = 0;
  Reg state[kMaxStates] = {};
  int64_t init[kMaxStates] = {};  ///< register bits
  /// Inputs: states, x (as stored), index. Outputs: states.
  ScalarProgram step;
  /// Inputs: states of the earlier elements, states of the later ones. Outputs: states.
  ScalarProgram combine;
  /// Inputs: states, number of elements (i64), scalars. Outputs: the row's, as stored.
  ScalarProgram finish;
  bool uses_index = false;
  bool finish_is_state = false;  ///< output 0 is state 0, stored

  /// The row as state = fold(state, map(x)).
  bool is_fold = false;
  Fold fold = Fold::add;
  bool map_is_x = false;  ///< and x's bytes are its register
  bool widens = false;    ///< x and the output are f32, the state is f64, and nothing else happens
  ScalarProgram map;      ///< inputs: x (as stored), index; output: one register
};

/// The register that a row computes in for elements of dtype `x`.
Reg compute_reg(const OpDef& op, DType x);

/// The program of `op` for x and output dtypes; made once and kept. Scalars after x are f64 slots.
const ReduceProgram& reduce_program_of(const OpDef& op, DType x, const DType* outs, int n_outs,
                                       int n_scalars);

/// The dtype whose bytes are a register.
constexpr DType dtype_of_reg(Reg r) {
  return r == Reg::f32   ? DType::f32
         : r == Reg::f64 ? DType::f64
         : r == Reg::i64 ? DType::i64
                         : DType::b8;
}

}  // namespace tandem::codegen
