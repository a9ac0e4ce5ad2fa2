// SPDX-License-Identifier: Apache-2.0
#include "tandem/codegen/reduce_plans.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "tandem/base/per_thread.h"

namespace tandem::codegen {
namespace {

std::unique_ptr<ReducePlans> make_plans(const ReduceProgram& p, const TileTable& t) {
  auto plans = std::make_unique<ReducePlans>();
  TileOptions alias;  // states are stepped in place
  for (int k = 0; k < p.n_states; ++k) alias.alias[k] = 1u << k;
  Access access[kMaxPlanIns];
  std::fill(access, access + kMaxPlanIns, Access::dense);
  const int n = p.n_states;
  plans->step_rows = make_tile_plan(p.step, access, alias, t);
  plans->combine = make_tile_plan(p.combine, access, alias, t);
  if (p.is_fold) plans->map_rows = make_tile_plan(p.map, access, {}, t);
  access[n + 1] = Access::value;
  plans->step_columns = make_tile_plan(p.step, access, alias, t);
  std::fill(access, access + kMaxPlanIns, Access::dense);
  access[1] = Access::value;
  if (p.is_fold) plans->map_columns = make_tile_plan(p.map, access, {}, t);
  for (size_t k = static_cast<size_t>(n); k < p.finish.in.size(); ++k) access[k] = Access::value;
  access[1] = n > 1 ? Access::dense : Access::value;
  plans->finish = make_tile_plan(p.finish, access, {}, t);
  return plans;
}

}  // namespace

const ReducePlans& plans_of(const ReduceProgram& p) {
  struct Slot {
    const ReduceProgram* program = nullptr;
    const TileTable* table = nullptr;
    const ReducePlans* plans = nullptr;
  };
  const TileTable* table = &tiles();
  struct Table {
    Slot slots[16];
  };
  Slot(&recent)[16] = detail::PerThread<Table>::get().slots;
  Slot& slot = recent[reinterpret_cast<uintptr_t>(&p) / sizeof(ReduceProgram) % 16];
  if (slot.program == &p && slot.table == table) return *slot.plans;
  static std::mutex* lock = new std::mutex;
  static auto* all = new std::unordered_map<uint64_t, std::unique_ptr<ReducePlans>>;
  std::lock_guard hold(*lock);
  const uint64_t key = reinterpret_cast<uintptr_t>(&p) * 31 + reinterpret_cast<uintptr_t>(table);
  std::unique_ptr<ReducePlans>& plans = (*all)[key];
  if (!plans) plans = make_plans(p, *table);
  slot = {&p, table, plans.get()};
  return *plans;
}

}  // namespace tandem::codegen
