// SPDX-License-Identifier: Apache-2.0
// Arrivals: the end of any of several calls, each from another rank. A thread for each rank waits
// for the call that is expected of it.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "tandem/dist/engine.h"

namespace tandem::distributed {

class Arrivals {
 public:
  explicit Arrivals(int ranks);
  /// All calls that are expected must have ended, or end by themselves.
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  /// One call at a time for each rank.
  void expect(int rank, Work call);
  /// Wait until one of them has ended: its rank. Throws its error.
  int next();

 private:
  struct Awaited {
    std::optional<Work> call;
    std::thread thread;
  };
  void wait_for(int rank);

  std::mutex lock_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::vector<Awaited> awaited_;
  std::deque<std::pair<int, std::exception_ptr>> ended_;
};

}  // namespace tandem::distributed
