// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/find_batch.h"

#include <algorithm>
#include <fstream>

#include "tandem/base/clock.h"
#include "tandem/base/error.h"
#include "tandem/tensor/allocator.h"

namespace tandem::train {
namespace {

// What Linux says can be had without swapping; 0: it does not say.
int64_t free_memory() {
  std::ifstream in("/proc/meminfo");
  for (std::string name, unit; in >> name;) {
    int64_t kilobytes = 0;
    if (name == "MemAvailable:" && in >> kilobytes) return kilobytes * 1024;
    std::getline(in, unit);
  }
  return 0;
}

}  // namespace

FindBatchResult find_batch(const std::function<bool(int64_t size)>& step,
                           const FindBatchOptions& o) {
  TD_CHECK(o.start >= 1 && o.largest >= o.start && o.runs >= 1, Value,
           "find_batch() expects 1 <= start <= largest and runs >= 1, got {}, {} and {}", o.start,
           o.largest, o.runs);
  FindBatchResult r;
  const Clock::time_point begin = Clock::now();
  const int64_t held = allocator_stats().in_use;
  const int64_t limit = o.memory_limit > 0 ? o.memory_limit : held + free_memory() / 5 * 4;
  for (int64_t size = o.start;; size *= 2) {
    if (size > o.largest) {
      r.reason = "largest";
      break;
    }
    if (!r.tried.empty()) {
      const BatchFigures& last = r.tried.back();
      const int64_t guess = held + 2 * std::max<int64_t>(last.peak_bytes - held, 0);
      if (limit > 0 && guess > limit) {
        r.reason = "memory";
        break;
      }
      const double left = o.max_seconds - seconds_since(begin);
      if (2 * last.seconds * static_cast<double>(o.runs + 1) > left) {
        r.reason = "time";
        break;
      }
    }
    BatchFigures f{.size = size};
    try {
      reset_allocator_peak();
      if (!step(size)) {
        r.reason = "samples";
        break;
      }
      f.seconds = 1e300;
      for (int64_t k = 0; k < o.runs; ++k) {
        const Clock::time_point t = Clock::now();
        step(size);
        f.seconds = std::min(f.seconds, seconds_since(t));
      }
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Memory) throw;
      trim_allocator();
      r.reason = "memory";
      break;
    }
    f.peak_bytes = allocator_stats().peak;
    f.samples_per_second = static_cast<double>(size) / std::max(f.seconds, 1e-9);
    r.largest = size;
    r.tried.push_back(f);
  }
  double best = 0;
  for (const BatchFigures& f : r.tried)
    if (f.samples_per_second > best) {
      best = f.samples_per_second;
      r.fastest = f.size;
    }
  for (const BatchFigures& f : r.tried)
    if (f.samples_per_second >= 0.95 * best) {
      r.suggestion = f.size;
      break;
    }
  return r;
}

}  // namespace tandem::train
