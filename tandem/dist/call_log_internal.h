// SPDX-License-Identifier: Apache-2.0
// CallLog: what an engine remembers of its calls. The last ones one by one, as a flight recorder
// for after a fault, and sums for each label, for reports. From any thread.
#pragma once

#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "tandem/base/clock.h"
#include "tandem/dist/engine.h"

namespace tandem::distributed {

class CallLog {
 public:
  /// A call was given to the engine; gives its number, from 1.
  int64_t given(const Call& call);
  void begun(int64_t number);
  void ended(int64_t number, const std::string& error);
  /// Somebody has stood still for it.
  void waited(int64_t number, double seconds);
  /// A send or recv has ended well: it counts in the totals alone.
  void pair_ended(const std::string& label, size_t bytes);
  void set_step(int64_t step);
  /// Of the ranks of a call, this one came last, so many seconds after this process.
  void came_last(int rank, double seconds);

  std::vector<CallRecord> recent() const;
  std::vector<CallTotals> totals() const;
  std::vector<RankDelay> delays(int ranks) const;
  /// A line of JSON for each of recent(), into a file of its own in the folder
  /// $TANDEM_DIST_RECORDS, if that is set. Failures are logged.
  void write(const Engine& engine) const noexcept;

 private:
  static constexpr size_t kKept = 1000;
  struct Entry {
    CallRecord record;
    size_t totals = 0;
  };
  Entry* entry(int64_t number);  // null: it was too long ago
  size_t totals_of(const std::string& label);
  double now() const { return seconds_since(start_); }

  mutable std::mutex lock_;
  const Clock::time_point start_ = Clock::now();
  int64_t step_ = 0, last_ = 0;
  std::deque<Entry> kept_;
  std::vector<CallTotals> totals_;
  std::vector<RankDelay> delays_;
};

}  // namespace tandem::distributed
