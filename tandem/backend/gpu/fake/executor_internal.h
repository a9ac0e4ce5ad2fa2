// SPDX-License-Identifier: Apache-2.0
// The streams of a fake device: queues of work and the one thread that runs them, which takes the
// next piece from any stream that may continue, at random, and rests now and then while nobody
// waits.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tandem/backend/gpu/fake/happens_before_internal.h"
#include "tandem/backend/gpu/fake/random_internal.h"

namespace tandem::gpu {

/// One record of an event; the executor's lock guards it.
struct Occurrence {
  bool happened = false;
  double seconds = 0;  ///< when
};
/// What an event stands for since it was recorded last. Who waits keeps the occurrence, so the
/// event may be recorded again, in another stream too.
struct FakeEvent {
  std::shared_ptr<Occurrence> last;  ///< nullptr: never recorded
  HappensBefore::Clock clock;
};

class Executor {
 public:
  /// "" or what went wrong.
  using Run = std::function<std::string()>;

  Executor(uint64_t seed, bool delays) : random_(seed), delays_(delays) {}
  /// What is queued still runs.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Before anything is queued; nothing the second time. Throws Memory where the system refuses a
  /// thread.
  void start();
  /// Streams are numbers from 0.
  void run(int stream, Run work);
  std::shared_ptr<Occurrence> record(int stream);
  void wait(int stream, const std::shared_ptr<Occurrence>& occurrence);

  // The host's questions.
  bool has_happened(const Occurrence& occurrence);
  void wait_for(const Occurrence& occurrence);
  void wait_for_stream(int stream);
  void wait_for_all();
  /// Seconds between two; false unless both have happened.
  bool elapsed(const Occurrence& from, const Occurrence& to, double& seconds);
  /// The first thing that went wrong since it was asked last, or "".
  std::string take_error();
  /// Something did, beside what work has returned.
  void report(std::string problem);

 private:
  struct Work {
    Run run;                                 // or
    std::shared_ptr<Occurrence> occurrence;  // that it is, or that it waits for
    bool records = false;
  };
  struct Stream {
    std::deque<Work> queue;
    bool busy = false;
  };
  void add(int stream, Work work);
  void loop();
  Stream* choose();
  void rest(std::unique_lock<std::mutex>& hold);
  bool idle() const;
  template <class Condition>
  void host_waits(std::unique_lock<std::mutex>& hold, Condition done);

  std::mutex lock_;
  std::condition_variable more_, done_;
  std::deque<Stream> streams_;
  Random random_;
  const bool delays_;
  int waiting_ = 0;  // threads of the host
  bool ending_ = false;
  std::string error_;
  std::thread thread_;
};

}  // namespace tandem::gpu
