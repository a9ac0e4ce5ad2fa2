// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/gpu/kernel_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tandem/backend/gpu/engine_internal.h"

namespace tandem::gpu {

void LaunchTimes::begin(Engine& e, const char* name, StreamRef stream) {
  if (!begun_.from) begun_ = {name, event(e), event(e)};  // else a launch that threw began it
  begun_.name = name;
  e.check(e.context().record(begun_.from, stream));
}
void LaunchTimes::end(Engine& e, StreamRef stream) {
  e.check(e.context().record(begun_.to, stream));
  calls_.push_back(std::exchange(begun_, {}));
}

EventRef LaunchTimes::event(Engine& e) {
  if (!free_.empty()) {
    const EventRef last = free_.back();
    free_.pop_back();
    return last;
  }
  EventRef made = nullptr;
  e.check(e.context().create_event(made));
  return made;
}

std::vector<KernelTime> LaunchTimes::take(Engine& e) {
  e.synchronize();
  std::map<std::string, KernelTime> by_name;
  for (const Call& c : calls_) {
    KernelTime& t = by_name[c.name];
    double seconds = 0;
    e.check(e.context().elapsed(c.from, c.to, seconds));
    t.seconds += seconds;
    ++t.calls;
    free_.push_back(c.from);
    free_.push_back(c.to);
  }
  calls_.clear();
  std::vector<KernelTime> all;
  for (auto& [name, t] : by_name) all.push_back({name, t.calls, t.seconds});
  std::sort(all.begin(), all.end(),
            [](const KernelTime& a, const KernelTime& b) { return a.seconds > b.seconds; });
  return all;
}

void LaunchTimes::forget(Engine& e) {
  (void)take(e);
  for (EventRef event : free_) (void)e.context().destroy_event(event);
  free_.clear();
}

void record_kernel_times(Device device, bool on) { engine_of(device).time_launches(on); }

std::vector<KernelTime> take_kernel_times(Device device) {
  return engine_of(device).take_launch_times();
}

std::string kernel_times_text(const std::vector<KernelTime>& times, size_t most) {
  double all = 0;
  for (const KernelTime& t : times) all += t.seconds;
  std::string text;
  for (size_t i = 0; i < std::min(most, times.size()); ++i) {
    const KernelTime& t = times[i];
    text += fmt::format("{:5.1f} % {:10.3f} ms {:7} x  {}\n", 100 * t.seconds / all,
                        t.seconds * 1e3, t.calls, t.name);
  }
  return text + fmt::format("        {:10.3f} ms in all\n", all * 1e3);
}

}  // namespace tandem::gpu
