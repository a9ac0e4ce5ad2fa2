// SPDX-License-Identifier: Apache-2.0
// Times on the machine itself: kernels between those that were measured on it.
#include "tandem/plan/hardware/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "tandem/base/error.h"
#include "tandem/plan/plan_internal.h"

namespace tandem::plan {
namespace {

double roofline(const Work& k, const MachineProfile& m) {
  const double peak =
      is_short_float(k.dtype) && k.matrix && m.bf16_flops > 0 ? m.bf16_flops : m.f32_flops;
  const double bandwidth = k.bytes < m.cache_bytes ? m.cache_bandwidth : m.bandwidth;
  return std::max(k.flops / peak, k.bytes / bandwidth);
}

// Where a kernel stands among those of its kind: logarithms of its work and of its tensors' sizes.
constexpr size_t kAxes = 5;
// How much a step along each axis counts.
constexpr double kAxisWeight[kAxes] = {1, 1, 0.5, 0.5, 0.5};
std::array<double, kAxes> place_of(double flops, double bytes, const double (&sizes)[3]) {
  std::array<double, kAxes> at{flops, bytes, sizes[0], sizes[1], sizes[2]};
  for (double& x : at) x = std::log(x + 1);
  return at;
}

double overhead_of(const MachineProfile& m, bool compiled) {
  return compiled ? m.step_seconds : m.launch_seconds;
}

}  // namespace

std::string point_kind(const Work& k, bool compiled) {
  static const char* const kPhases[] = {"", "", "forward ", "backward ", "update "};
  return fmt::format("{} {}{} {}{}", compiled ? "compiled" : "eager",
                     compiled ? "" : kPhases[k.phase], to_string(k.dtype),
                     k.depthwise ? "depthwise " : "", k.kind);
}

double kernel_seconds(const Work& k, const MachineProfile& m, bool compiled) {
  const double base = roofline(k, m) + overhead_of(m, compiled);
  const auto at = place_of(k.flops, k.bytes, k.sizes);
  const auto nearest = [&](const std::string& kind) {
    std::vector<std::pair<double, const MachineProfile::Point*>> near;
    for (const MachineProfile::Point& p : m.points) {
      if (p.kind != kind) continue;
      const auto there = place_of(p.flops, p.bytes, p.sizes);
      double d = 0;
      for (size_t i = 0; i < kAxes; ++i)
        d += kAxisWeight[i] * (at[i] - there[i]) * (at[i] - there[i]);
      near.emplace_back(d, &p);
    }
    const size_t n = std::min<size_t>(4, near.size());
    std::partial_sort(near.begin(), near.begin() + static_cast<ptrdiff_t>(n), near.end(),
                      [](const auto& x, const auto& y) { return x.first < y.first; });
    near.resize(n);
    return near;
  };
  auto near = nearest(point_kind(k, compiled));
  for (uint8_t phase = 2; near.empty() && !compiled && phase <= 4; ++phase) {
    Work other = k;
    other.phase = phase;
    near = nearest(point_kind(other, compiled));
  }
  if (near.empty()) return base;
  // What they took over what the roofline says of them.
  double weights = 0, log_ratio = 0;
  for (const auto& [d, p] : near) {
    Work q = k;
    q.flops = p->flops;
    q.bytes = p->bytes;
    const double weight = 1 / (d + 0.02);
    weights += weight;
    log_ratio += weight * std::log(p->seconds / (roofline(q, m) + overhead_of(m, compiled)));
  }
  return base * std::exp(log_ratio / weights);
}

Quantity machine_step(const Workload& w, const MachineProfile& m) {
  struct Sum {
    double seconds = 0;
    int64_t kernels = 0;
  };
  std::map<std::string, Sum> kinds;
  for (const Work& k : w.work) {
    Sum& s = kinds[k.kind];
    s.seconds += kernel_seconds(k, m, w.options.compiled);
    ++s.kernels;
  }
  std::vector<std::pair<double, Quantity>> parts;
  for (const auto& [kind, s] : kinds)
    parts.emplace_back(
        s.seconds,
        given("time.kind." + kind, kind, s.seconds, "s",
              fmt::format("{} kernels, between points measured on this machine", s.kernels)));
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Quantity> list;
  for (auto& [t, q] : parts) list.push_back(std::move(q));
  if (list.empty()) list.push_back(given("time.kind.none", "nothing", 0, "s", "no kernels"));
  list.push_back(
      product("time.outside", "around the kernels", "s", "",
              {given("time.host.kernels", "kernels", static_cast<double>(w.work.size()), "",
                     "of the dry run"),
               given("time.outside.each", "each",
                     w.options.compiled ? m.compiled_call_seconds : m.eager_call_seconds, "s",
                     "starting and ending a step, shared out over its kernels; measured")}));
  return sum("time.step", "one step", "s", "", std::move(list));
}

Plan machine_plan(const PlanRequest& r, const MachineProfile& m) {
  PlanRequest free = r;
  free.term = "hourly";  // nothing is rented
  check_request(free, Catalog::built_in());
  Plan p;
  p.model = r.job.name;
  p.gpu.name = m.cpu;
  p.gpu.memory = m.memory;
  p.batch = r.batch > 0 ? r.batch : kUsualBatch;
  p.compiled = r.compiled;
  const auto work = [&](bool compiled) {
    return dry_run(r.job, {.batch = p.batch,
                           .compiled = compiled,
                           .precision = r.precision.value_or(Precision::f32),
                           .optimizer = r.optimizer,
                           .clip_norm = r.clip_norm,
                           .this_backend = true});
  };
  p.eager_work = work(false);
  p.compiled_work = work(true);
  const Workload& w = r.compiled ? p.compiled_work : p.eager_work;
  static const char* const kKeys[] = {"weights",     "gradients", "optimizer",
                                      "activations", "workspace", "input"};
  std::vector<Quantity> parts;
  for (size_t c = 0; c < kMemoryCategories; ++c)
    if (w.memory.peak.bytes[c] > 0)
      parts.push_back(given(fmt::format("memory.{}", kKeys[c]),
                            to_string(static_cast<MemoryCategory>(c)), w.memory.peak.bytes[c], "B",
                            "alive at the highest moment of the step"));
  parts.push_back(given("memory.rounding", "rounding and headers", w.rounding, "B",
                        "whole blocks of the allocator, and the moment of its own peak"));
  p.figures.push_back(sum("memory", "memory", "B", "", std::move(parts)));
  p.fits = w.host_peak <= m.memory;
  const Quantity batch = given("batch", "batch of a step", static_cast<double>(p.batch), "",
                               r.batch > 0 ? "asked for" : "none was asked for");
  const Quantity units = product("units.step", w.unit + " per step", "", "",
                                 {batch, given("units.sample", w.unit + " per sample",
                                               r.job.units_per_sample, "", "the job's")});
  const Quantity step = machine_step(w, m);
  p.figures.push_back(quotient("rate", w.unit + " per second", w.unit + "/s", "", units, step));
  const std::optional<Quantity> all = units_of(r);
  if (all) {
    p.figures.push_back(
        product("time", "time to the end", "s", "",
                {quotient("steps", "steps", "", "", *all, again(units)), again(step)}));
    const double seconds = p.figures.back().value;
    if (r.deadline > 0) {
      p.figures.push_back(given("deadline", "deadline", r.deadline, "s", "asked for"));
      if (seconds > r.deadline) {
        p.within_limits = false;
        p.notes.push_back(fmt::format("It takes {}, the deadline is {}.", show(seconds, "s"),
                                      show(p.figures.back())));
      }
    }
  }
  if (r.job.decode_seconds > 0 && m.decode_seconds > 0)
    p.figures.push_back(product(
        "data.cores", "CPU cores for decoding", "", "",
        {quotient("data.samples_rate", "samples per second", "1/s", "", again(batch), again(step)),
         given("data.decode", "seconds per sample", m.decode_seconds, "s",
               "measured on this machine")}));
  return p;
}

}  // namespace tandem::plan
