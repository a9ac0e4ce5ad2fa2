// SPDX-License-Identifier: Apache-2.0
// In which order requests that wait are run: each has a level, 1 is the first, and one that has
// waited long enough passes those of the level above. Levels are Triton's parameter `priority`.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "tandem/base/clock.h"
#include "tandem/serve/model/settings.h"

namespace tandem::serve {

/// The level of a request that asks for `asked`; 0: the usual one. Throws Refusal for a level that
/// the model does not have; a model without levels takes any.
int64_t priority_of(const ModelSettings& settings, int64_t asked);

/// Throws Value where the default level is none of the model's.
void check_priorities(const std::string& name, const ModelSettings& settings);

/// What waits is in the order of its places: one that came at `since`, where a level counts as much
/// as `step` seconds of waiting (0: more than any waiting). Levels beyond 1,000 count as that one.
inline Clock::time_point place_of(Clock::time_point since, int64_t level, double step) {
  constexpr double kEver = 1e6;  // seconds; 1,000 times as many are far below what a clock counts
  const auto levels = static_cast<double>(std::clamp<int64_t>(level, -1000, 1000));
  const std::chrono::duration<double> later(levels * (step > 0 ? std::min(step, kEver) : kEver));
  return since + std::chrono::duration_cast<Clock::duration>(later);
}

/// Put it behind all that have the same or an earlier `place`; with `before`, ahead of the same.
template <class Queue, class Item>
void put_in_order(Queue& queue, Item item, bool before = false) {
  auto at = queue.end();
  while (at != queue.begin()) {
    const Clock::time_point other = std::prev(at)->place;
    if (before ? other < item.place : other <= item.place) break;
    --at;
  }
  queue.insert(at, std::move(item));
}

}  // namespace tandem::serve
