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
  TD_CHECK(file_exists(path), Io,
           "{} is not there\nGive the folder of a run (tandem train leaves it).", path);
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
    const bool low = (one.dtype == DType::bf16 || one.dtype == DType::f16) && one.matrix;
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

const char* upgrade_of(Limit l) {
  switch (l) {
    case Limit::arithmetic:
      return "a processor with twice the arithmetic, or products in bf16,";
    case Limit::bandwidth:
      return "twice the memory bandwidth, or the compiled mode, which fuses what moves bytes,";
    case Limit::launch:
      return "a larger batch, or the compiled mode,";
    case Limit::decode:
      return "half the decoding (more loader threads with cores for them, a cache(), smaller "
             "pictures)";
    case Limit::disk:
      return "a faster disk, or data that fits into RAM,";
    case Limit::link:
      return "a faster link, or data that lies on this machine,";
    case Limit::cores:
      return "a core for each thread that computes or loads";
    case Limit::memory:
      return "more RAM, a smaller batch or a smaller cache";
  }
  return "";
}

}  // namespace

Advice advise(const RunFacts& run, const Workload& w, const MachineProfile& m,
              const Workload* larger) {
  TD_CHECK(run.samples_per_second > 0 && run.waiting >= 0 && run.waiting <= 1, Value,
           "{} samples a second and {} of the time waiting are no run", run.samples_per_second,
           run.waiting);
  const auto batch = static_cast<double>(w.options.batch);
  const double step = batch / run.samples_per_second;
  const double wait = step * run.waiting, busy = step - wait;
  // What a step's data takes of its threads: computing, without a processor, and held by whatever
  // the data comes from.
  const double threads = std::max(1.0, run.loaders);
  const double load = step * std::max(run.loader_busy, run.loader_cores);
  const double compute = std::min(load, step * run.loader_cores);
  const double unserved = std::min(load - compute, step * run.loader_queued);
  const double held = load - compute - unserved;
  const double whole = std::max(load, 1e-12);
  const bool network = run.received > run.read;
  // The training thread is queued while it works; what it waits for is the data's business.
  const double queued = std::min(busy, step * run.queued);
  const Kernels k = shares_of(w, m);
  const double kernels = busy - queued;
  struct Part {
    Limit limit;
    double seconds;
    std::string why;
  };
  const Part parts[] = {
      {Limit::arithmetic, kernels * k.arithmetic, "kernels whose arithmetic takes longest"},
      {Limit::bandwidth, kernels * k.bandwidth, "kernels whose bytes take longest"},
      {Limit::launch, kernels * k.launch, "kernels smaller than the cost of starting them"},
      {Limit::decode, load > 0 ? wait * compute / whole : wait,
       "waiting for data that is being computed"},
      {network ? Limit::link : Limit::disk, load > 0 ? wait * held / whole : 0,
       fmt::format("waiting for data that has not come: {} from files, {} from the network",
                   show(run.read, "B/s"), show(run.received, "B/s"))},
      {Limit::cores, queued + (load > 0 ? wait * unserved / whole : 0),
       "threads that are ready and have no processor"}};
  Advice a;
  std::vector<Quantity> list;
  for (const Part& p : parts) {
    list.push_back(given(fmt::format("time.{}", to_string(p.limit)), to_string(p.limit), p.seconds,
                         "s", p.why));
    if (p.seconds / step > a.share) {
      a.share = p.seconds / step;
      a.limit = p.limit;
    }
  }
  a.time = sum("time", "a step of the run", "s", "the batch over the logged rate", std::move(list));
  if (run.memory_stall > a.share || run.memory_share > 0.92 ||
      (m.memory > 0 && run.resident_bytes > 0.92 * m.memory)) {
    a.limit = Limit::memory;
    a.share = std::max(run.memory_stall, run.memory_share);
  }
  // A thread that waits much finds its caches cold; without waiting its steps come nearer to the
  // plan, by 15 % at most (measured by advise_check).
  const double warm = std::min(kernels, std::max(machine_step(w, m).value, 0.85 * kernels));
  // The step after it: training and loading go on beside each other, the slower one counts.
  const auto after = [&](double train, double data) { return std::max(train, data / threads); };
  double then = step;
  switch (a.limit) {
    case Limit::arithmetic:
      then = after(busy - 0.5 * kernels * k.arithmetic, load);
      break;
    case Limit::bandwidth:
      then = after(busy - 0.5 * kernels * k.bandwidth, load);
      break;
    case Limit::launch:
      if (larger && larger->options.batch > 0) {
        const double now = machine_step(w, m).value / batch;
        const double one =
            machine_step(*larger, m).value / static_cast<double>(larger->options.batch);
        then = after(busy * std::min(1.0, one / now), load);
      } else {
        then = after(busy - kernels * k.launch * 0.999, load);
      }
      break;
    case Limit::decode:
      then = after(busy, load - 0.5 * compute);
      if (load == 0) then = step - 0.5 * wait;
      break;
    case Limit::disk:
    case Limit::link:
      then = after(warm, compute + unserved);
      break;
    case Limit::cores:
      then = after(busy - queued, compute + held);
      break;
    case Limit::memory:
      then = step * (1 - std::min(0.99, run.memory_stall));
      break;
  }
  a.gain = std::max(1.0, step / std::max(then, 1e-9));
  a.upgrade = upgrade_of(a.limit);
  a.text = a.limit == Limit::memory && run.memory_stall < 0.05
               ? fmt::format(
                     "RAM: {:.0f} % of what the run may have is used; a little more and it ends "
                     "or swaps. It wants {}.",
                     100 * std::min(1.0, a.share), a.upgrade)
               : fmt::format(
                     "{} holds this run back: {:.0f} % of its time. {} would make it {:.2f} "
                     "times as fast.",
                     to_string(a.limit), 100 * std::min(1.0, a.share), a.upgrade, a.gain);
  return a;
}

}  // namespace tandem::plan
