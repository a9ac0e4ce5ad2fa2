// SPDX-License-Identifier: Apache-2.0
#include "tandem/codegen/plan_values.h"

#include <cstring>

namespace tandem::codegen {

PlanValues::PlanValues(const TilePlan& plan)
    : plan_(plan), bits_(static_cast<size_t>(plan.n_slots())) {}

void PlanValues::compute() {
  for (const auto& c : plan_.constants) set(c.first, c.second);
  std::vector<void*> slots;
  for (int64_t& b : bits_) slots.push_back(&b);
  run_steps(plan_.value_steps, slots.data(), 1, nullptr);
}

Reg register_named(const char* type) {
  if (std::strcmp(type, "float") == 0) return Reg::f32;
  if (std::strcmp(type, "double") == 0) return Reg::f64;
  return std::strcmp(type, "tdm_i64") == 0 ? Reg::i64 : Reg::b8;
}

}  // namespace tandem::codegen
