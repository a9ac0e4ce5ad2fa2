// SPDX-License-Identifier: Apache-2.0
// What the steps of a plan read that is the same for all elements: numbers among the operands,
// constants, and what is computed from them alone, in the precision that the row asks for. For
// whoever writes a plan as text (emit_block) and needs these values as literals or arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "tandem/codegen/tile_plan.h"

namespace tandem::codegen {

/// The registers of class value of one plan; bits by slot.
class PlanValues {
 public:
  explicit PlanValues(const TilePlan& plan);
  /// Input `slot` is the number whose register this is.
  void set(int slot, int64_t bits) { bits_[static_cast<size_t>(slot)] = bits; }
  /// After the inputs were set.
  void compute();
  int64_t bits(int slot) const { return bits_[static_cast<size_t>(slot)]; }

 private:
  const TilePlan& plan_;
  std::vector<int64_t> bits_;
};

/// The register of C type `type` (the names of emit_c).
Reg register_named(const char* type);

}  // namespace tandem::codegen
