// SPDX-License-Identifier: Apache-2.0
// TilePlan: a ScalarProgram turned into a list of vector loops over slots. Whoever runs it sets the
// slots (inputs, outputs, scratch) and calls the steps tile by tile. What is the same for all
// elements is computed once, what is the same for a row once a row.
#pragma once

#include <atomic>
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

/// What a step of TilePlan::steps does, for whoever writes it as text.
struct StepMeaning {
  enum Kind : uint8_t { op, convert, wrap, load, store, fill, select_compare, mul_add };
  Kind kind = op;
  ScalarOp scalar = ScalarOp::constant;  ///< of op
  Reg type = Reg::f32;                   ///< register of the operands
  Reg result = Reg::f32;                 ///< of op, convert
  DType dtype = DType::f32;              ///< of wrap, load, store
  Compare compare = Compare::lt;         ///< of select_compare
  uint8_t values = 0;                    ///< bit j: operand j (a, b, c, d) is one value
};

class JitCode;

/// The compiled form of a plan once somebody asked for it. Set at most once; not copied.
struct JitSlot {
  JitSlot() = default;
  JitSlot(const JitSlot&) noexcept {}
  JitSlot& operator=(const JitSlot&) noexcept { return *this; }
  mutable std::atomic<JitCode*> code{nullptr};
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
  std::vector<StepMeaning> value_meanings, row_meanings, meanings;  ///< of the three lists
  std::vector<std::pair<int16_t, int64_t>> constants;               ///< value slot, register bits
  DType out_type[kMaxPlanOuts] = {};
  JitSlot jit;

  int first_tile() const { return n_in + n_out; }
  int first_value() const { return first_tile() + n_tiles; }
  int n_slots() const { return first_value() + n_values; }
  bool is_out(int slot) const { return slot >= n_in && slot < first_tile(); }
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
