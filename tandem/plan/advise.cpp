// SPDX-License-Identifier: Apache-2.0
#include "tandem/plan/advise.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "tandem/base/error.h"

namespace tandem::plan {

const char* to_string(Limit l) {
  static const char* const kNames[] = {
      "arithmetic", "memory bandwidth", "launch overhead", "CPU decoding", "disk", "RAM"};
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
    if (f.samples_per_second > 0) all.push_back(f);
  }
  TD_CHECK(!all.empty(), Value,
           "{} has no line with system/samples_per_s\nLet the run log some steps.", path);
  RunFacts mean;
  const size_t from = all.size() / 2;  // the first ones compile and warm up
  const auto n = static_cast<double>(all.size() - from);
  for (size_t k = from; k < all.size(); ++k) {
    mean.samples_per_second += all[k].samples_per_second / n;
    mean.waiting += all[k].waiting / n;
    mean.resident_bytes = std::max(mean.resident_bytes, all[k].resident_bytes);
  }
  return mean;
}

Advice advise(const RunFacts& run, const Workload& w, const MachineProfile& m,
              double sample_bytes) {
  TD_CHECK(run.samples_per_second > 0 && run.waiting >= 0 && run.waiting <= 1, Value,
           "{} samples a second and {} of the time waiting are no run", run.samples_per_second,
           run.waiting);
  // The step's kernels by what holds each back; its real time is shared out in these proportions.
  double arithmetic = 0, bandwidth = 0, launch = 0;
  const double overhead = w.options.compiled ? m.step_seconds : m.launch_seconds;
  for (const Work& k : w.work) {
    const double t = kernel_seconds(k, m, w.options.compiled);
    const bool low = (k.dtype == DType::bf16 || k.dtype == DType::f16) && k.matrix;
    const double compute = k.flops / (low && m.bf16_flops > 0 ? m.bf16_flops : m.f32_flops);
    const double move = k.bytes / (k.bytes < m.cache_bytes ? m.cache_bandwidth : m.bandwidth);
    // What is left above the roofline of a tiny kernel is overhead.
    if (std::max(compute, move) < overhead)
      launch += t;
    else
      (compute > move ? arithmetic : bandwidth) += t;
  }
  const double kernels = std::max(arithmetic + bandwidth + launch, 1e-12);
  const double step = static_cast<double>(w.options.batch) / run.samples_per_second;
  const double busy = step * (1 - run.waiting);
  const double need = run.samples_per_second * sample_bytes;
  const bool disk = m.disk_rate > 0 && need > 0.5 * m.disk_rate;
  struct Part {
    Limit limit;
    double seconds;
    const char* why;
  };
  const Part parts[] = {
      {Limit::arithmetic, busy * arithmetic / kernels, "kernels whose arithmetic takes longest"},
      {Limit::bandwidth, busy * bandwidth / kernels, "kernels whose bytes take longest"},
      {Limit::launch, busy * launch / kernels, "kernels smaller than the cost of starting them"},
      {disk ? Limit::disk : Limit::decode, step * run.waiting,
       disk ? "waiting for data, and the disk gives less than twice what is read"
            : "waiting for data, which the disk would give"}};
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
  if (m.memory > 0 && run.resident_bytes > 0.92 * m.memory) {
    a.limit = Limit::memory;
    a.share = run.resident_bytes / m.memory;
  }
  // Twice as fast arithmetic or memory halves its part; waiting and overhead can be had away whole.
  const bool whole = a.limit == Limit::decode || a.limit == Limit::disk || a.limit == Limit::launch;
  a.gain = a.limit == Limit::memory ? 1 : 1 / (1 - a.share * (whole ? 0.999 : 0.5));
  const char* what = "";
  switch (a.limit) {
    case Limit::arithmetic:
      what = "a processor with twice the arithmetic, or products in bf16";
      break;
    case Limit::bandwidth:
      what = "twice the memory bandwidth, or the compiled mode, which fuses what moves bytes";
      break;
    case Limit::launch:
      what = "a larger batch, or the compiled mode";
      break;
    case Limit::decode:
      what = "more loader threads and cores, a cache(), or smaller pictures on disk";
      break;
    case Limit::disk:
      what = "a faster disk, or data that fits into RAM";
      break;
    case Limit::memory:
      what = "more RAM, a smaller batch or a smaller cache: the system is about to swap";
      break;
  }
  a.text = fmt::format(
      "{} holds this run back: {:.0f} % of its time. {} would make it {:.2f} times as fast.",
      to_string(a.limit), 100 * std::min(1.0, a.share), what, a.gain);
  return a;
}

}  // namespace tandem::plan
