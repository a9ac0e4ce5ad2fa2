// SPDX-License-Identifier: Apache-2.0
// The check of a new loop: the compiled form writes to a place of its own, then the interpreter
// writes the real outputs (which may be the inputs' memory), then bytes are compared.
#include "tandem/codegen/plan_use.h"

#include <cstring>
#include <memory>

#include "tandem/graph/expression/scalar_eval.h"

namespace tandem::codegen {

bool equal_elements(const void* pa, const void* pb, int64_t n, DType t) {
  const char *a = static_cast<const char*>(pa), *b = static_cast<const char*>(pb);
  const size_t size = size_of(t);
  if (std::memcmp(a, b, static_cast<size_t>(n) * size) == 0) return true;
  if (!is_floating(t)) return false;
  for (int64_t i = 0; i < n; ++i, a += size, b += size) {
    if (std::memcmp(a, b, size) == 0) continue;
    const Value x = load_value(a, t, 0), y = load_value(b, t, 0);
    const bool nans =
        t == DType::f64 ? x.f64 != x.f64 && y.f64 != y.f64 : x.f32 != x.f32 && y.f32 != y.f32;
    if (!nans) return false;
  }
  return true;
}

void JitUse::choose(JitCode& jit) {
  if (!jit_in_use()) return;
  int state = jit.state.load(std::memory_order_acquire);
  if (state == JitCode::ready) {
    code_ = jit.code;
  } else if (state == JitCode::candidate &&
             jit.state.compare_exchange_strong(state, JitCode::checking)) {
    jit.differs = false;
    jit.ran = false;
    code_ = jit.code;
    check_ = &jit;
  }
}

void JitUse::compared(bool equal) const {
  if (!equal) check_->differs = true;
  check_->ran = true;
}

void JitUse::end_check() {
  if (!check_->ran) {
    check_->state = JitCode::candidate;  // a call without elements
    return;
  }
  const bool equal = !check_->differs;
  check_->state.store(equal ? JitCode::ready : JitCode::dropped, std::memory_order_release);
  jit_checked(*check_, equal);
}

void PlanUse::run_both(void* const* slots, int64_t n, ErrorWord* error) const {
  const TilePlan& p = *plan_;
  std::vector<void*> own(slots, slots + p.n_slots());
  std::unique_ptr<char[]> memory[kMaxPlanOuts];
  for (int k = 0; k < p.n_out; ++k) {
    memory[k] = std::make_unique<char[]>(static_cast<size_t>(n) * size_of(p.out_type[k]) + 64);
    own[static_cast<size_t>(p.n_in + k)] = memory[k].get();
  }
  const bool divided = use_.code()(own.data(), n) != 0;
  ErrorWord local;
  run_steps(p.steps, slots, n, &local);
  bool equal = divided == (local.code.load() != 0);
  for (int k = 0; k < p.n_out; ++k) {
    equal = equal && equal_elements(memory[k].get(), slots[p.n_in + k], n, p.out_type[k]);
  }
  if (local.code.load() && error) report(error);
  use_.compared(equal);
}

void PlanUse::report(ErrorWord* error) { error->report(kDivisionByZero, 0); }

}  // namespace tandem::codegen
