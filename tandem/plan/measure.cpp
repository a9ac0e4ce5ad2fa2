// SPDX-License-Identifier: Apache-2.0
// Real steps of a job: their memory, their time, and their kernels' times.
#include <algorithm>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/parallel.h"
#include "tandem/codegen/jit.h"
#include "tandem/graph/profiler.h"
#include "tandem/graph/profiler_clock.h"
#include "tandem/plan/kernel_work_internal.h"
#include "tandem/plan/stepper_internal.h"
#include "tandem/tensor/allocator.h"

namespace tandem::plan {
namespace {

double smallest(const std::vector<double>& v) {
  return v.empty() ? 0 : *std::min_element(v.begin(), v.end());
}

// Gives each kernel the shortest of its times, scaled so that they and `out.outside` add up to
// `out.seconds`.
void scale_times(const std::vector<std::vector<Work>>& runs, ProfiledStep& out) {
  double sum = out.outside;
  for (size_t k = 0; k < out.work.size(); ++k) {
    std::vector<double> t;
    for (const auto& run : runs)
      if (k < run.size()) t.push_back(run[k].seconds);
    sum += out.work[k].seconds = smallest(t);
  }
  // What recording costs is about as much for each kernel: a constant share of small ones.
  const double over =
      std::max(0.0, sum - out.seconds) / static_cast<double>(std::max<size_t>(1, out.work.size()));
  double left = out.outside;
  for (Work& k : out.work) left += k.seconds = std::max(0.3 * k.seconds, k.seconds - over);
  for (Work& k : out.work) k.seconds *= out.seconds / left;
}

}  // namespace

Measured measure(const Job& job, const WorkOptions& o, int steps) {
  trim_allocator();
  reset_allocator_peak();
  const int64_t before = allocator_stats().in_use;
  Stepper s(job, o, nullptr);
  s.step();
  s.step();
  wait_for_jit();
  Measured m;
  const ProcessorTimeGuard clock(num_threads() == 1);
  std::vector<double> times;
  for (int i = 0; i < steps; ++i) {
    const double t = profiler_seconds();
    s.step();
    times.push_back(profiler_seconds() - t);
  }
  std::sort(times.begin(), times.end());
  if (!times.empty()) {
    m.seconds = times[0];
    m.median = times[times.size() / 2];
  }
  m.peak_bytes = static_cast<double>(allocator_stats().peak - before);
  return m;
}

ProfiledStep profile_steps(const Job& job, const WorkOptions& o, int steps) {
  Stepper s(job, o, nullptr);
  for (int i = 0; i < 2; ++i) s.step();
  wait_for_jit();
  for (int i = 0; i < 2; ++i) s.step();
  const ProcessorTimeGuard clock(num_threads() == 1);
  std::vector<std::vector<Work>> all;
  std::vector<double> plain, outside;
  for (int i = 0; i < steps; ++i) {
    const double t = profiler_seconds();
    s.step();
    plain.push_back(profiler_seconds() - t);
    ProfilerGuard profiler;
    OpRecorder recorder(profiler.profile(), nullptr, s.phase());
    std::optional<HookGuard> watch;
    if (!o.compiled) watch.emplace(recorder);
    s.step();
    const int64_t end = profiler.now();
    const std::vector<ProfileEvent>& events = profiler.profile().events;
    TD_CHECK(!events.empty(), Value, "a step of {} runs no kernel", job.name);
    outside.push_back(1e-9 *
                      static_cast<double>(events.front().start_ns + end - events.back().end_ns));
    all.push_back(work_of(profiler.profile(), recorder, s.executable().get()));
  }
  ProfiledStep out;
  out.work = all[0];
  out.outside = smallest(outside);
  out.seconds = smallest(plain);
  scale_times(all, out);
  return out;
}

}  // namespace tandem::plan
