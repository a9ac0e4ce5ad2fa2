// SPDX-License-Identifier: Apache-2.0
// PairLane: send and recv. A thread moves the messages of all pairs at once, in both directions, so
// that no order of calls on different ranks blocks them.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "tandem/dist/call_log_internal.h"
#include "tandem/dist/monitor_internal.h"
#include "tandem/dist/queued_engine_internal.h"
#include "tandem/dist/wire_internal.h"

namespace tandem::distributed {

class PairLane {
 public:
  /// `failed` is told the first error, `log` what has ended well.
  PairLane(Mesh& mesh, Monitor& monitor, CallLog& log, double timeout,
           std::function<void(std::exception_ptr)> failed);
  ~PairLane();
  PairLane(const PairLane&) = delete;
  PairLane& operator=(const PairLane&) = delete;

  std::shared_ptr<detail::WorkState> post(const Call& call);
  bool idle();

 private:
  struct Item {
    Transfer transfer;
    std::shared_ptr<detail::WorkState> state;
    Deadline end;
    double timeout;
    std::string call;
    Deadline posted;
    std::string label;
    size_t bytes;
  };
  struct Pair {
    std::deque<Item> queue[2];  ///< received, sent
    int64_t posted[2] = {0, 0};
  };
  void work();
  void wait_for_sockets(std::vector<std::pair<Pair*, int>>& ready);
  void move(Pair& pair, int direction);
  void tell_whom_it_awaits();
  struct Late {
    int peer;
    std::string text;  ///< "rank 0 has waited 4.0 s in recv ... for "
  };
  std::optional<Late> find_late();
  void check_times();
  bool is_idle() const;
  void end_all(std::exception_ptr error);

  Mesh& mesh_;
  Monitor& monitor_;
  CallLog& log_;
  double timeout_;
  std::function<void(std::exception_ptr)> failed_;
  std::mutex lock_;
  std::vector<Pair> pairs_;
  std::exception_ptr error_;
  bool ending_ = false;
  Fd wake_;
  std::thread thread_;
};

}  // namespace tandem::distributed
