// SPDX-License-Identifier: Apache-2.0
// OrderedRun: computes elements first .. last-1 of a pure function ahead of their use, on several
// threads, and returns them in order. The passes of DataLoader and Pipeline are OrderedRuns. An
// exception thrown for an element is rethrown when that element is reached.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "tandem/base/clock.h"
#include "tandem/data/run_stats.h"
#include "tandem/tensor/tensor.h"

namespace tandem::data::detail {

using Fields = std::vector<Tensor>;

/// Fields of several samples stacked along a new first dimension. Throws Shape when the samples
/// differ. With `pad`, shorter ones are padded with that number at their ends.
Fields stack_samples(std::vector<Fields> samples, std::optional<double> pad = {});

/// The same for samples that arrive one by one: each is copied immediately and released, so that
/// the next one reuses its memory while it is still in cache.
class Stack {
 public:
  explicit Stack(size_t samples) : samples_(samples) {}
  /// Throws Shape when `sample` differs from the first.
  void add(Fields sample);
  /// No samples give no fields. Throws Internal when fewer were added than announced.
  Fields take();

 private:
  size_t samples_, added_ = 0;
  Fields out_;
};

class OrderedRun {
 public:
  using Make = std::function<Fields(int64_t)>;
  struct Options {
    int64_t first = 0, last = 0;
    int64_t workers = 1;  ///< 0: computed in next() itself; negative: as many as the consumer needs
    int64_t depth = 2;    ///< elements kept ready per worker
  };
  OrderedRun(Make make, Options options);
  ~OrderedRun();
  OrderedRun(const OrderedRun&) = delete;
  OrderedRun& operator=(const OrderedRun&) = delete;

  /// The next element; false at the end.
  bool next(Fields& fields);
  RunStats stats() const;

 private:
  struct Slot {
    bool ready = false;
    Fields fields;
    std::exception_ptr error;
  };
  void work();
  void add_worker();
  void tune();
  int64_t window() const { return static_cast<int64_t>(threads_.size()) * depth_; }

  Make make_;
  Options options_;
  int64_t depth_, consumed_, claimed_;
  int64_t most_workers_ = 1;
  bool stop_ = false;
  std::vector<std::thread> threads_;
  mutable std::mutex lock_;
  std::condition_variable ready_, room_;
  std::deque<Slot> slots_;  ///< for elements consumed_ .. claimed_-1
  double busy_ = 0, waited_ = 0;
  Clock::time_point start_;
  bool started_ = false;
  // since the last change of the number of threads
  int64_t tuned_at_ = 0;
  double tuned_waited_ = 0;
  Clock::time_point tuned_time_;
};

}  // namespace tandem::data::detail
