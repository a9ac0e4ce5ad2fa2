// SPDX-License-Identifier: Apache-2.0
#include "tandem/graph/cells/live_cells.h"

#include <atomic>
#include <map>
#include <mutex>
#include <unordered_set>

namespace tandem::detail {
namespace {

struct LiveCells {
  std::mutex lock;
  std::map<Moment, const Cell*> by_moment;
  std::unordered_set<const void*> addresses;
};
LiveCells& live_cells() {
  static LiveCells* all = new LiveCells;  // outlives every static Param
  return *all;
}

}  // namespace

Moment next_moment() {
  static std::atomic<uint32_t> threads{0};
  thread_local Moment last{++threads, 0};
  ++last.count;
  return last;
}

void enter_cell(const Cell& cell, Moment made) {
  LiveCells& all = live_cells();
  const std::lock_guard hold(all.lock);
  all.by_moment.emplace(made, &cell);
  all.addresses.insert(&cell);
}

void leave_cell(const Cell& cell, Moment made) noexcept {
  LiveCells& all = live_cells();
  const std::lock_guard hold(all.lock);
  all.by_moment.erase(made);
  all.addresses.erase(&cell);
}

bool is_cell(const void* p) {
  LiveCells& all = live_cells();
  const std::lock_guard hold(all.lock);
  return all.addresses.count(p) > 0;
}

void for_cells_made(Moment begin, uint64_t end, FunctionRef<void(const Cell&)> see) {
  LiveCells& all = live_cells();
  const std::lock_guard hold(all.lock);
  for (auto at = all.by_moment.lower_bound(begin);
       at != all.by_moment.end() && at->first <= Moment{begin.thread, end}; ++at)
    see(*at->second);
}

}  // namespace tandem::detail
