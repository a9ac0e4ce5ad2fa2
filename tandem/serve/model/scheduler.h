// SPDX-License-Identifier: Apache-2.0
// Scheduler: the queue before one version of a model. An idle instance takes what waits, up to the
// largest batch, and never waits for more unless `delay_us` asks for it: a lone client pays nothing
// for batching. What waits is in the order of its priority, and of its arrival within one; where
// the queue is full, a job takes the place of one of a lower priority. Jobs of a fast model
// run on the thread that serves all connections, those that came in one of its turns together.
// Every job is answered once: accepted = ok + failed + expired + cancelled + displaced.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tandem/base/clock.h"
#include "tandem/serve/histogram.h"
#include "tandem/serve/model/servable.h"
#include "tandem/serve/model/step_run.h"

namespace tandem::serve {

struct SchedulerOptions {
  size_t queue = 256;        ///< jobs that may wait
  double delay_us = 0;       ///< how long the first job waits for company
  double priority_step = 0;  ///< seconds of waiting that count as much as a level; 0: none do
};

struct JobResult {
  int status = 200;  ///< as HTTP has them: 429 the queue is full, 499 the client went away,
                     ///< 503 the model is being unloaded, 504 too late, 400 and 500 it failed
  std::string error = "";
  std::vector<Tensor> outputs = {};
  double queue_seconds = 0, compute_seconds = 0;
  Clock::time_point began = {};     ///< its run; none of what did not run
  int64_t batch = 0;                ///< rows that ran together
  bool kept = false;                ///< it is the answer to an earlier request with the same inputs
  std::vector<StepRun> steps = {};  ///< of an ensemble
};

struct Job {
  std::vector<Tensor> inputs;
  int64_t rows = 1;
  double timeout = 0;                   ///< seconds until it is too late to begin; 0: never
  int64_t priority = 0;                 ///< less is earlier
  bool stays = false;                   ///< no other takes its place in a full queue
  std::function<bool()> gone = {};      ///< nobody waits for the answer any more
  std::function<void(JobResult)> done;  ///< called once, on any thread
  /// Keeps the scheduler until it is answered, where nothing else does.
  std::shared_ptr<const void> owner = {};
};

/// Counts of a version since it was loaded.
struct JobCounts {
  std::atomic<uint64_t> accepted{0}, ok{0}, failed{0}, expired{0}, cancelled{0};
  std::atomic<uint64_t> rejected{0};   ///< never accepted: the queue was full
  std::atomic<uint64_t> displaced{0};  ///< accepted, and given up for one of a higher priority
  std::atomic<uint64_t> rows{0}, runs{0};
  Histogram queue, compute, total;
};

class TD_API Scheduler {
 public:
  Scheduler(std::shared_ptr<Servable> model, const SchedulerOptions& options);
  /// Answers what still waits with 503.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// With `here` the job may run on this thread, if the model is fast and free: at once, or on a
  /// loop's thread at the end of its turn; jobs with an owner may outlive this call then.
  void submit(Job job, bool here = false);
  size_t waiting() const;
  JobCounts& counts() { return counts_; }
  Servable& model() { return *model_; }

 private:
  struct Waiting {
    Job job;
    Clock::time_point since;
    Clock::time_point place;  ///< in the queue: what waits is in its order
    std::string key;          ///< of what may be put together: dtypes and sizes of a row
  };
  /// Jobs that run on the thread on which they were submitted. The loop holds it, too, which may
  /// outlive the scheduler when there is nothing in it.
  struct Turn {
    explicit Turn(Scheduler& owner) : scheduler(owner) {}
    Scheduler& scheduler;  ///< of the jobs that are there
    std::mutex lock;
    std::vector<Waiting> jobs;
    int64_t rows = 0;
  };
  static void run_turn(Turn& turn);
  void work(int instance);
  void submit_here(Waiting w);
  bool run_here(std::vector<Waiting>& batch);
  template <class Queue>
  std::vector<Waiting> take(Queue& from) const;
  void run(int instance, std::vector<Waiting> batch);
  bool run_together(int instance, std::vector<Waiting>& batch, int64_t rows);
  void run_alone(int instance, Waiting& w);
  void finish(Waiting& w, JobResult r);
  bool too_late(Waiting& w);
  std::vector<Waiting> take_hopeless();
  int64_t most_rows() const;

  std::shared_ptr<Servable> model_;
  SchedulerOptions options_;
  JobCounts counts_;
  bool keyed_ = false;  ///< sizes after the batch's differ between requests
  mutable std::mutex lock_;
  std::condition_variable ready_;
  std::deque<Waiting> queue_;
  bool levels_ = false;            ///< jobs came with several priorities
  Clock::time_point looked_ = {};  ///< when those of `queue_` were last looked at
  std::shared_ptr<Turn> turn_ = std::make_shared<Turn>(*this);
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tandem::serve
