// SPDX-License-Identifier: Apache-2.0
// PlanRunner: one thread's slots for a TilePlan whose operands are plain pointers (states, tiles,
// values). Reductions, scans and row programs are made of several of these over one scratch.
#pragma once

#include <cstring>

#include "tandem/base/small_vec.h"
#include "tandem/codegen/plan_use.h"
#include "tandem/codegen/tile_loop.h"

namespace tandem::codegen {

class PlanRunner {
 public:
  /// Bytes of scratch that a runner of `plan` takes for tiles of `tile` elements.
  static int64_t scratch_bytes(const TilePlan& plan, int64_t tile) {
    return plan.n_tiles * (tile * plan.tile_width + 64) +
           (plan.n_in + plan.n_values) * static_cast<int64_t>(sizeof(int64_t)) + 64;
  }

  PlanRunner(const PlanUse& use, int64_t tile, TileScratch& scratch)
      : use_(use), plan_(use.plan()) {
    const TilePlan& plan = plan_;
    slots_.resize(static_cast<size_t>(plan.n_slots()));
    for (int k = 0; k < plan.n_tiles; ++k) {
      slots_[plan.first_tile() + k] = scratch.take(tile * plan.tile_width);
    }
    values_ = static_cast<int64_t*>(
        scratch.take((plan.n_in + plan.n_values) * static_cast<int64_t>(sizeof(int64_t))));
    for (int k = 0; k < plan.n_in; ++k) slots_[k] = &values_[k];
    for (int k = 0; k < plan.n_values; ++k) {
      slots_[plan.first_value() + k] = &values_[plan.n_in + k];
    }
    for (const auto& c : plan.constants) {
      std::memcpy(slots_[c.first], &c.second, sizeof c.second);
    }
  }

  void set_in(int k, const void* p) { slots_[k] = const_cast<void*>(p); }
  void set_out(int k, void* p) { slots_[plan_.n_in + k] = p; }
  /// Input k is of class value or row: its register.
  void set_value(int k, int64_t bits) { values_[k] = bits; }
  /// After the values were set.
  void compute_values(ErrorWord* error) { run_steps(plan_.value_steps, slots_.data(), 1, error); }
  void compute_row(ErrorWord* error) { run_steps(plan_.row_steps, slots_.data(), 1, error); }
  void run(int64_t n, ErrorWord* error) { use_.run(slots_.data(), n, error); }
  const TilePlan& plan() const { return plan_; }

 private:
  const PlanUse& use_;
  const TilePlan& plan_;
  SmallVec<void*, 40> slots_;
  int64_t* values_ = nullptr;
};

}  // namespace tandem::codegen
