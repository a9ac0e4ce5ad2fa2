// SPDX-License-Identifier: Apache-2.0
// QueuedEngine: calls wait in a queue, and one thread makes them in order. What an engine adds is
// how a call of all ranks is made while that thread waits. The first error ends the engine.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "tandem/dist/call_log_internal.h"
#include "tandem/dist/engine.h"

namespace tandem::distributed {

namespace detail {

struct WorkState {
  std::mutex lock;
  std::condition_variable changed;
  bool ended = false;
  std::exception_ptr error;
  std::shared_ptr<std::function<void()>> heard;  ///< called before the error is thrown
  std::shared_ptr<CallLog> log;
  int64_t number = 0;  ///< in the log

  bool done();
  void wait();
  /// The first end counts.
  void end(std::exception_ptr e = nullptr);
};

}  // namespace detail

class QueuedEngine : public Engine {
 protected:
  using Engine::Engine;
  /// Make one call; the queue's thread.
  virtual void run(const Call& call, int64_t number) = 0;

  Work submit(Call call) override;
  /// Calls throw this from now on; the first one counts.
  void fail(std::exception_ptr error);
  std::exception_ptr failure();
  /// Wait until nothing is queued or under way; false when that takes longer.
  bool drain(double seconds);
  /// End the thread. For destructors of derived classes, which run() needs.
  void finish();
  CallLog& log() { return *log_; }
  void note_step(int64_t step) { log_->set_step(step); }
  void note_last(int rank, double seconds) { log_->came_last(rank, seconds); }
  /// Called when a caller is thrown the engine's error.
  void on_heard(std::function<void()> f) { heard_ = std::make_shared<std::function<void()>>(f); }

 public:
  std::vector<CallRecord> recent_calls() const final { return log_->recent(); }
  std::vector<CallTotals> call_totals() const final { return log_->totals(); }
  std::vector<RankDelay> delays() const final { return log_->delays(size()); }

 private:
  struct Entry {
    Call call;
    std::shared_ptr<detail::WorkState> state;
  };
  void work();

  std::mutex lock_;
  std::condition_variable changed_;
  const std::shared_ptr<CallLog> log_ = std::make_shared<CallLog>();
  std::deque<Entry> queue_;
  std::exception_ptr failure_;
  bool ending_ = false, busy_ = false;
  int64_t made_ = 0;
  std::shared_ptr<std::function<void()>> heard_;
  std::thread thread_;
};

}  // namespace tandem::distributed
