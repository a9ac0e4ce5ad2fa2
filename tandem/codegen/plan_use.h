// SPDX-License-Identifier: Apache-2.0
// PlanUse: how one call runs the steps of a plan: interpreted, compiled, or, when the compiled loop
// is new, by both with the results compared. Made on the calling thread before threads start; one
// use is shared by them.
#pragma once

#include "tandem/codegen/jit.h"

namespace tandem::codegen {

class PlanUse {
 public:
  explicit PlanUse(const TilePlan& plan) : plan_(&plan) {
    if (jit_wanted() && !plan.jit.code.load(std::memory_order_relaxed)) request_jit(plan);
    if (JitCode* jit = plan.jit.code.load(std::memory_order_acquire)) choose(*jit);
  }
  PlanUse(PlanUse&& o) noexcept : plan_(o.plan_), code_(o.code_), check_(o.check_) {
    o.check_ = nullptr;
  }
  PlanUse& operator=(PlanUse&&) = delete;
  ~PlanUse() {
    if (TD_UNLIKELY(check_ != nullptr)) end_check();
  }

  const TilePlan& plan() const { return *plan_; }
  /// Compiled alone: scratch tiles are not touched, and any number of elements is one loop.
  bool compiled() const { return code_ && !check_; }

  /// All steps on n elements.
  void run(void* const* slots, int64_t n, ErrorWord* error) const {
    if (!code_) return run_steps(plan_->steps, slots, n, error);
    if (TD_UNLIKELY(check_ != nullptr)) return run_both(slots, n, error);
    if (TD_UNLIKELY(code_(slots, n) != 0) && error) report(error);
  }

 private:
  void choose(JitCode& jit);
  void run_both(void* const* slots, int64_t n, ErrorWord* error) const;
  void end_check();
  static void report(ErrorWord* error);

  const TilePlan* plan_;
  TileCode code_ = nullptr;
  JitCode* check_ = nullptr;
};

}  // namespace tandem::codegen
