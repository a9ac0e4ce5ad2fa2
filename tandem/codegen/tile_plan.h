// SPDX-License-Identifier: Apache-2.0
// TilePlan: a ScalarProgram turned into a list of vector loops over slots. Whoever runs it sets the
// slots (inputs, outputs, scratch) and calls the steps tile by tile. What is the same for all
// elements is computed once, what is the same for a row once a row.
#pragma once

#include <vector>

#include "tandem/codegen/tile_kernels.h"
#include "tandem/graph/kernel.h"

namespace tandem::codegen {

/// How an input is read. Ordered: an instruction belongs to the highest class of its operands.
enum class Access : uint8_t {
  value,   ///< one value for the whole run, in its slot as a register
  row,     ///< one value per row, in its slot as a register
  dense,   ///< contiguous storage
  gather,  ///< brought into a scratch tile (as storage) before the steps run
};

inline constexpr int64_t kTileMax = 1024;  ///< most elements of a tile
inline constexpr int kMaxPlanIns = 24, kMaxPlanOuts = 8;

struct TileStep {
  TileFn fn = nullptr;
  int16_t out = 0, a = 0, b = 0, c = 0, d = 0;  ///< slots
  bool divides = false;                         ///< integer division: b is checked for zero
  bool divisor_is_value = false;
};

struct TileOptions {
  static constexpr uint32_t kAnyInput = ~uint32_t{0};
  /// Bit i of alias[k]: output k may be the very memory of input i.
  uint32_t alias[kMaxPlanOuts] = {};
};

/// Slots are numbered: inputs, outputs, tiles (scratch), values (8 bytes each).
struct TilePlan {
  int n_in = 0, n_out = 0, n_tiles = 0, n_values = 0;
  int tile_width = 4;  ///< bytes of the widest element in a scratch tile
  double cost = 1;     ///< rough work per element, 1 is an add
  std::vector<TileStep> value_steps, row_steps, steps;
  std::vector<std::pair<int16_t, int64_t>> constants;  ///< value slot, register bits

  int first_tile() const { return n_in + n_out; }
  int first_value() const { return first_tile() + n_tiles; }
  int n_slots() const { return first_value() + n_values; }
};

/// Plan `program` for inputs that are read as `access` says. Throws Internal on an instruction
/// that no kernel has.
TilePlan make_tile_plan(const ScalarProgram& program, const Access* access,
                        const TileOptions& options, const TileTable& table);

/// Run steps on n elements.
void run_steps(const std::vector<TileStep>& steps, void* const* slots, int64_t n, ErrorWord* error);

/// `s` as a register of type `r`.
int64_t register_bits(const Scalar& s, Reg r);

}  // namespace tandem::codegen
