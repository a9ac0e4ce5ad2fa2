// SPDX-License-Identifier: Apache-2.0
// Recording of streams for drivers that have no graphs of their own (opencl, fake): which streams
// take part, what is recorded, and what each step waits for. A stream joins by waiting for an event
// that was recorded in one that takes part.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tandem/backend/gpu/driver.h"

namespace tandem::gpu {

struct GraphStep {
  std::string name;
  std::function<Status(StreamRef)> run;  ///< put it into that stream, or do it
  std::vector<int> after;                ///< steps that come first, all with lower numbers
};
using GraphSteps = std::vector<GraphStep>;

class Capture {
 public:
  bool running() const { return origin_ != nullptr; }
  /// bad_argument while another runs.
  Status begin(StreamRef stream);
  bool takes(StreamRef stream) const { return streams_.count(stream) != 0; }
  /// Of a stream that takes part.
  void add(StreamRef stream, GraphStep step);
  /// Each is true where it belongs to this capture, so that the driver leaves it alone.
  bool record(EventRef event, StreamRef stream);
  /// bad_argument where a stream that takes part waits for an event from outside.
  bool wait(StreamRef stream, EventRef event, Status& status);
  /// bad_argument for the host's waits, which a recording has none of.
  Status host_waits(StreamRef stream) const;
  /// Ends in every case.
  Status end(StreamRef stream, GraphSteps& steps);

 private:
  using Steps = std::vector<int>;  // sorted
  StreamRef origin_ = nullptr;
  std::map<StreamRef, Steps> streams_;  // what the next step of each comes after
  std::map<EventRef, Steps> events_;
  GraphSteps steps_;
};

}  // namespace tandem::gpu
