// SPDX-License-Identifier: Apache-2.0
// Steps of a compiled program that a device repeats as one piece of work: what a backend records of
// them (Backend::record), the switch, and what replays have saved.
#pragma once

#include <cstdint>
#include <string>

#include "tandem/tensor/device.h"

namespace tandem {

/// Work for a backend to record.
class RecordableWork {
 public:
  /// Put it into that queue, without allocating memory of the device or waiting for anything.
  virtual void put(Stream queue) = 0;

 protected:
  ~RecordableWork() = default;
};

/// Recorded work of one device.
class TD_API StepGraph {
 public:
  explicit StepGraph(int64_t launches) : launches_(launches) {}
  virtual ~StepGraph() = default;
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  /// False while somebody wants to see every launch, to measure it, say.
  virtual bool ready() const = 0;
  /// Put all of it into the queue. Throws Device.
  virtual void replay(Stream stream) = 0;
  /// Kernels and calls of libraries in it.
  int64_t launches() const { return launches_; }

 private:
  int64_t launches_;
};

/// What programs have recorded and replayed, all since the start or the last reset.
struct StepGraphCounts {
  int64_t recorded = 0;
  int64_t replays = 0;
  int64_t launches = 0;      ///< that replays stood for
  int64_t given_up = 0;      ///< programs that are not recorded any more
  std::string last_problem;  ///< why a recording was not made, or was of no use
};
TD_API StepGraphCounts step_graph_counts();
TD_API void reset_step_graph_counts();
/// May programs be replayed? TANDEM_STEP_GRAPHS=0 in the environment forbids it from the start.
/// Gives what was set before.
TD_API bool allow_step_graphs(bool allow);

namespace detail {
bool step_graphs_allowed();
void count_recording();
void count_replay(const StepGraph& graph);
/// A program is recorded no more; the first one is a line in the debug log.
void count_given_up(const std::string& why);
void count_problem(const std::string& why);
}  // namespace detail

}  // namespace tandem
