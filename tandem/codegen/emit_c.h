// SPDX-License-Identifier: Apache-2.0
// A tile plan as C text: one loop that does to every element what the steps of the plan do one
// after the other, with the same functions (math_prelude.h, scalar_ops.h), so with the same bits.
// Called by jit.cpp; the text of equal plans is equal.
#pragma once

#include <string>
#include <string_view>

#include "tandem/codegen/tile_plan.h"

namespace tandem::codegen {

struct RowKernel;

/// The compiled form of a plan's steps: 1 if an integer was divided by zero, else 0.
using TileCode = int32_t (*)(void* const* slots, int64_t n);

/// `int name(void* const* slots, tdm_i64 n)` for the steps of `plan`: inputs are read from their
/// slots, outputs written to theirs, scratch slots are not used.
std::string emit_c(const TilePlan& plan, std::string_view name);

/// The same type of function for all stages of one row of a row program whose matrices have
/// neighbouring elements: slots are the inputs (matrix, columns and row: where the row's elements
/// lie; number: its register), the outputs (columns: the sums so far) and the stored rows; n is the
/// row's length.
std::string emit_row_c(const RowKernel& kernel, std::string_view name);
/// Would a compiler make vector code of every stage?
bool worth_compiling(const RowKernel& kernel);

/// Where the steps of a block find what they read, and who is told what they give.
class BlockNames {
 public:
  virtual ~BlockNames() = default;
  /// The name of a variable (or a literal) of C type `type` that holds what `slot` holds before the
  /// steps: an input as stored, or, from plan.first_value() on and for inputs of class value or
  /// row, a register.
  virtual std::string input(int slot, const char* type) = 0;
  /// Output k is the variable `name`, as it is stored.
  virtual void output(int k, const char* type, const std::string& name) = 0;
};
struct BlockText {
  std::string row, body;  ///< the plan's row_steps and steps
  bool divides = false;   ///< they add to an `int bad` that stands before them
};
/// The steps of `plan` as definitions of variables whose names begin with `prefix`, for a loop or a
/// kernel around them. What they are: emit_c().
BlockText emit_block(const TilePlan& plan, std::string_view prefix, BlockNames& names);

/// What stands above emitted functions: the math prelude, scalar ops and loop marks.
std::string_view emit_preamble();

/// Is one loop faster than a step at a time? Not for a single step, and not with an op whose loop
/// no compiler makes vector code of.
bool worth_compiling(const TilePlan& plan);

}  // namespace tandem::codegen
