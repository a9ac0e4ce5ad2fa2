// SPDX-License-Identifier: Apache-2.0
// How one call runs a plan: interpreted, compiled, or, when the compiled form is new, by both with
// the results compared. Made on the calling thread before threads start; one use is shared by them.
#pragma once

#include "tandem/codegen/jit.h"

namespace tandem::codegen {

/// The compiled form as one call finds it.
class JitUse {
 public:
  explicit JitUse(const JitSlot& slot) {
    if (JitCode* jit = slot.code.load(std::memory_order_acquire)) choose(*jit);
  }
  JitUse(JitUse&& o) noexcept : code_(o.code_), check_(o.check_) { o.check_ = nullptr; }
  JitUse& operator=(JitUse&&) = delete;
  ~JitUse() {
    if (TD_UNLIKELY(check_ != nullptr)) end_check();
  }
  /// nullptr: interpret.
  TileCode code() const { return code_; }
  /// Both are to be run; then say what came of it.
  bool checks() const { return check_ != nullptr; }
  void compared(bool equal) const;

 private:
  void choose(JitCode& jit);
  void end_check();

  TileCode code_ = nullptr;
  JitCode* check_ = nullptr;
};

/// Equal bytes, or both NaN: what a NaN's payload is depends on the order of operands, which
/// compilers may choose.
bool equal_elements(const void* a, const void* b, int64_t n, DType t);

class PlanUse {
 public:
  /// `ask`: request the compiled form if this thread wants such.
  explicit PlanUse(const TilePlan& plan, bool ask = true)
      : plan_(&plan), use_((ask ? request(plan) : void(), plan.jit)) {}

  const TilePlan& plan() const { return *plan_; }
  /// Compiled alone: scratch tiles are not touched, and any number of elements is one loop.
  bool compiled() const { return use_.code() && !use_.checks(); }

  /// All steps on n elements.
  void run(void* const* slots, int64_t n, ErrorWord* error) const {
    if (!use_.code()) return run_steps(plan_->steps, slots, n, error);
    if (TD_UNLIKELY(use_.checks())) return run_both(slots, n, error);
    if (TD_UNLIKELY(use_.code()(slots, n) != 0) && error) report(error);
  }

 private:
  static void request(const TilePlan& plan) {
    if (jit_wanted() && !plan.jit.code.load(std::memory_order_relaxed)) request_jit(plan);
  }
  void run_both(void* const* slots, int64_t n, ErrorWord* error) const;
  static void report(ErrorWord* error);

  const TilePlan* plan_;
  JitUse use_;
};

}  // namespace tandem::codegen
