// SPDX-License-Identifier: Apache-2.0
#include "tandem/plan/advise.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "tandem/base/error.h"

namespace tandem::plan {

const char* to_string(Limit l) {
  static const char* const kNames[] = {"arithmetic",
                                       "memory bandwidth",
                                       "launch overhead",
                                       "CPU decoding",
                                       "disk",
                                       "link",
                                       "CPU cores",
                                       "RAM"};
  return kNames[static_cast<int>(l)];
}

RunFacts run_facts(const std::string& folder) {
  const std::string path = folder + "/metrics.jsonl";
  TD_CHECK(file_exists(path), Io, "{} is not there\nGive a run folder (tandem train leaves it).",
           path);
  std::istringstream in(read_file(path, size_t{1} << 30));
  std::vector<RunFacts> all;
  size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find("system/") == line.npos) continue;
    const io::Json j = io::parse_json(line, fmt::format("{}:{}", path, number));
    const auto get = [&](const char* key) {
      const io::Json* v = j.find(key);
      return !v               ? 0.0
             : v->as_int()    ? static_cast<double>(*v->as_int())
             : v->as_double() ? *v->as_double()
                              : 0.0;
    };
    RunFacts f;
    f.samples_per_second = get("system/samples_per_s");
    f.waiting = std::clamp(get("system/waiting"), 0.0, 1.0);
    f.resident_bytes = get("system/memory_mb") * 1e6;
    f.queued = get("system/queued");
    f.loaders = get("system/loaders");
    f.loader_busy = get("system/loader_busy");
    f.loader_cores = get("system/loader_cores");
    f.loader_queued = get("system/loader_queued");
    f.read = get("system/read_mb_s") * 1e6;
    f.received = get("system/received_mb_s") * 1e6;
    f.memory_share = get("system/memory_share");
    f.memory_stall = get("system/memory_stall");
    if (f.samples_per_second > 0) all.push_back(f);
  }
  TD_CHECK(!all.empty(), Value,
           "{} has no line with system/samples_per_s\nLet the run log some steps.", path);
  RunFacts mean;
  const size_t from = all.size() / 2;  // the first ones compile and warm up
  const auto n = static_cast<double>(all.size() - from);
  for (size_t k = from; k < all.size(); ++k) {
    mean.samples_per_second += all[k].samples_per_second / n;
    mean.resident_bytes = std::max(mean.resident_bytes, all[k].resident_bytes);
    mean.memory_share = std::max(mean.memory_share, all[k].memory_share);
    for (double RunFacts::*field :
         {&RunFacts::waiting, &RunFacts::queued, &RunFacts::loaders, &RunFacts::loader_busy,
          &RunFacts::loader_cores, &RunFacts::loader_queued, &RunFacts::read, &RunFacts::received,
          &RunFacts::memory_stall})
      mean.*field += all[k].*field / n;
  }
  return mean;
}

namespace {

struct Kernels {
  double arithmetic = 0, bandwidth = 0, launch = 0;  ///< shares
};
// The step's kernels by what holds each back.
Kernels shares_of(const Workload& w, const MachineProfile& m) {
  Kernels k;
  const double overhead = w.options.compiled ? m.step_seconds : m.launch_seconds;
  for (const Work& one : w.work) {
    const double t = kernel_seconds(one, m, w.options.compiled);
    const bool low = is_short_float(one.dtype) && one.matrix;
    const double compute = one.flops / (low && m.bf16_flops > 0 ? m.bf16_flops : m.f32_flops);
    const double move = one.bytes / (one.bytes < m.cache_bytes ? m.cache_bandwidth : m.bandwidth);
    // What a tiny kernel takes above its roofline is the cost of starting it.
    const double work = std::max(compute, move);
    if (t > 3 * work || work < overhead)
      k.launch += t;
    else
      (compute > move ? k.arithmetic : k.bandwidth) += t;
  }
  k.launch += machine_step(w, m).value - (k.arithmetic + k.bandwidth + k.launch);
  const double all = std::max(k.arithmetic + k.bandwidth + k.launch, 1e-12);
  return {k.arithmetic / all, k.bandwidth / all, k.launch / all};
}

// What would help and the run does not have yet: it may be compiled, or compute in 16 bits, and a
// machine may be no faster in bf16.
std::string upgrade_of(Limit l, const WorkOptions& run, const MachineProfile& m) {
  const bool eager = !run.compiled;
  const bool wide = run.precision == Precision::f32 || run.precision == Precision::tf32;
  switch (l) {
    case Limit::arithmetic:
      return std::string("a processor with twice the arithmetic") +
             (wide && m.bf16_flops > m.f32_flops ? ", or matmuls in bf16" : "");
    case Limit::bandwidth:
      return std::string("twice the memory bandwidth") +
             (eager ? ", or the compiled mode, which fuses what moves bytes" : "");
    case Limit::launch:
      return std::string("a larger batch") + (eager ? ", or the compiled mode" : "");
    case Limit::decode:
      return "half the decoding (more loader threads with cores for them, a cache(), smaller "
             "images)";
    case Limit::disk:
      return "a faster disk, or data that fits into RAM";
    case Limit::link:
      return "a faster link, or data that lies on this machine";
    case Limit::cores:
      return "a core for each thread that computes or loads";
    case Limit::memory:
      return "more RAM, a smaller batch or a smaller cache";
  }
  return "";
}

// Seconds of one step of a run.
struct StepTimes {
  double step, wait, busy;         // of the training thread: waiting for data, and busy
  double queued, kernels;          // parts of `busy`: ready without a processor, running kernels
  double threads, load;            // loader threads, and what all of them spend on the data:
  double compute, unserved, held;  // computing, without a processor, waiting for its source
};
StepTimes times_of(const RunFacts& run, double batch) {
  StepTimes t{};
  t.step = batch / run.samples_per_second;
  t.wait = t.step * run.waiting;
  t.busy = t.step - t.wait;
  t.threads = std::max(1.0, run.loaders);
  t.load = t.step * std::max(run.loader_busy, run.loader_cores);
  t.compute = std::min(t.load, t.step * run.loader_cores);
  t.unserved = std::min(t.load - t.compute, t.step * run.loader_queued);
  t.held = t.load - t.compute - t.unserved;
  // Only the time for which the training thread is queued while it works; waiting for data is
  // counted elsewhere.
  t.queued = std::min(t.busy, t.step * run.queued);
  t.kernels = t.busy - t.queued;
  return t;
}

struct Part {
  Limit limit;
  double seconds;
  std::string why;
};
// The step by what limits it.
std::vector<Part> parts_of(const RunFacts& run, const StepTimes& t, const Kernels& k) {
  const bool network = run.received > run.read;
  const double whole = std::max(t.load, 1e-12);
  return {{Limit::arithmetic, t.kernels * k.arithmetic, "kernels whose arithmetic takes longest"},
          {Limit::bandwidth, t.kernels * k.bandwidth, "kernels whose bytes take longest"},
          {Limit::launch, t.kernels * k.launch, "kernels smaller than the cost of starting them"},
          {Limit::decode, t.load > 0 ? t.wait * t.compute / whole : t.wait,
           "waiting for data that is being computed"},
          {network ? Limit::link : Limit::disk, t.load > 0 ? t.wait * t.held / whole : 0,
           fmt::format("waiting for data that has not come: {} from files, {} from the network",
                       show(run.read, "B/s"), show(run.received, "B/s"))},
          {Limit::cores, t.queued + (t.load > 0 ? t.wait * t.unserved / whole : 0),
           "threads that are ready and have no processor"}};
}

// Seconds of a step after the upgrade.
double step_after(Limit limit, const RunFacts& run, const StepTimes& t, const Kernels& k,
                  const Workload& w, const MachineProfile& m, const Workload* larger) {
  // Training and loading overlap; the slower one counts.
  const auto after = [&](double train, double data) { return std::max(train, data / t.threads); };
  switch (limit) {
    case Limit::arithmetic:
      return after(t.busy - 0.5 * t.kernels * k.arithmetic, t.load);
    case Limit::bandwidth:
      return after(t.busy - 0.5 * t.kernels * k.bandwidth, t.load);
    case Limit::launch: {
      if (!larger || larger->options.batch <= 0)
        return after(t.busy - t.kernels * k.launch * 0.999, t.load);
      const double now = machine_step(w, m).value / static_cast<double>(w.options.batch);
      const double one =
          machine_step(*larger, m).value / static_cast<double>(larger->options.batch);
      return after(t.busy * std::min(1.0, one / now), t.load);
    }
    case Limit::decode:
      return t.load == 0 ? t.step - 0.5 * t.wait : after(t.busy, t.load - 0.5 * t.compute);
    case Limit::disk:
    case Limit::link: {
      // A thread that waits much finds its caches cold; without waiting its steps come nearer to
      // the plan, by 15 % at most (measured by advise_check).
      const double warm = std::min(t.kernels, std::max(machine_step(w, m).value, 0.85 * t.kernels));
      return after(warm, t.compute + t.unserved);
    }
    case Limit::cores:
      return after(t.busy - t.queued, t.compute + t.held);
    case Limit::memory:
      return t.step * (1 - std::min(0.99, run.memory_stall));
  }
  return t.step;
}

std::string text_of(const Advice& a, const RunFacts& run) {
  if (a.limit == Limit::memory && run.memory_stall < 0.05)
    return fmt::format(
        "RAM: {:.0f} % of what the run may have is used; a little more and it ends or swaps. It "
        "expects {}.",
        100 * std::min(1.0, a.share), a.upgrade);
  return fmt::format(
      "{} holds this run back: {:.0f} % of its time. With {}, it would be {:.2f} times as fast.",
      to_string(a.limit), 100 * std::min(1.0, a.share), a.upgrade, a.gain);
}

}  // namespace

Advice advise(const RunFacts& run, const Workload& w, const MachineProfile& m,
              const Workload* larger) {
  TD_CHECK(run.samples_per_second > 0 && run.waiting >= 0 && run.waiting <= 1, Value,
           "{} samples a second and {} of the time waiting are not a run", run.samples_per_second,
           run.waiting);
  const StepTimes t = times_of(run, static_cast<double>(w.options.batch));
  const Kernels k = shares_of(w, m);
  Advice a;
  std::vector<Quantity> list;
  for (const Part& p : parts_of(run, t, k)) {
    list.push_back(given(fmt::format("time.{}", to_string(p.limit)), to_string(p.limit), p.seconds,
                         "s", p.why));
    if (p.seconds / t.step > a.share) {
      a.share = p.seconds / t.step;
      a.limit = p.limit;
    }
  }
  a.time = sum("time", "a step of the run", "s", "the batch over the logged rate", std::move(list));
  if (run.memory_stall > a.share || run.memory_share > 0.92 ||
      (m.memory > 0 && run.resident_bytes > 0.92 * m.memory)) {
    a.limit = Limit::memory;
    a.share = std::max(run.memory_stall, run.memory_share);
  }
  const double then = step_after(a.limit, run, t, k, w, m, larger);
  a.gain = std::max(1.0, t.step / std::max(then, 1e-9));
  a.upgrade = upgrade_of(a.limit, w.options, m);
  a.text = text_of(a, run);
  return a;
}

}  // namespace tandem::plan
