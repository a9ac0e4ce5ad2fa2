// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/gpu/capture_internal.h"

#include <algorithm>
#include <utility>

namespace tandem::gpu {

Status Capture::begin(StreamRef stream) {
  if (running()) return {Code::bad_argument, "begin_capture: another capture runs on this device"};
  origin_ = stream;
  streams_ = {{stream, {}}};
  return {};
}

void Capture::add(StreamRef stream, GraphStep step) {
  Steps& last = streams_[stream];
  step.after = last;
  last = {static_cast<int>(steps_.size())};
  steps_.push_back(std::move(step));
}

bool Capture::record(EventRef event, StreamRef stream) {
  const auto it = streams_.find(stream);
  if (it == streams_.end()) {
    events_.erase(event);
    return false;
  }
  events_[event] = it->second;
  return true;
}

bool Capture::wait(StreamRef stream, EventRef event, Status& status) {
  if (!running()) return false;
  const auto it = events_.find(event);
  if (it == events_.end()) {
    if (!takes(stream)) return false;
    status = {Code::bad_argument,
              "wait: a stream that is captured cannot wait for an event from outside the capture"};
    return true;
  }
  Steps& last = streams_[stream];
  Steps both;
  std::set_union(last.begin(), last.end(), it->second.begin(), it->second.end(),
                 std::back_inserter(both));
  last = std::move(both);
  return true;
}

Status Capture::host_waits(StreamRef stream) const {
  if (!takes(stream)) return {};
  return {Code::bad_argument, "the host cannot wait for a stream while it is captured"};
}

Status Capture::end(StreamRef stream, GraphSteps& steps) {
  if (!running() || stream != origin_) {
    if (takes(stream)) *this = {};
    return {Code::bad_argument, "end_capture: no capture began on this stream"};
  }
  // Every step must come before the end of the stream on which the capture began.
  std::vector<char> reached(steps_.size());
  Steps open = streams_[stream];
  while (!open.empty()) {
    const auto i = static_cast<size_t>(open.back());
    open.pop_back();
    if (std::exchange(reached[i], 1)) continue;
    open.insert(open.end(), steps_[i].after.begin(), steps_[i].after.end());
  }
  const auto missed = std::find(reached.begin(), reached.end(), 0);
  Status status;
  if (missed != reached.end()) {
    status = {Code::bad_argument, "end_capture: the stream has not waited for " +
                                      steps_[static_cast<size_t>(missed - reached.begin())].name +
                                      ", which was captured in another"};
  } else {
    steps = std::move(steps_);
  }
  *this = {};
  return status;
}

}  // namespace tandem::gpu
