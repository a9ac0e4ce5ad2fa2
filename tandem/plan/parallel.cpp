// SPDX-License-Identifier: Apache-2.0
// How a net is spread over GPUs: as it is asked for, or the fastest way that fits.
#include <fmt/format.h>

#include <map>

#include "tandem/base/error.h"
#include "tandem/plan/asked.h"
#include "tandem/plan/plan_internal.h"

namespace tandem::plan {

void read_parallel(const std::string& text, PlanRequest& r, bool fixed) {
  const std::string form = "Write --parallel tp=8,pp=4,dp=2,zero=1,micro=1, or auto.";
  constexpr int64_t kMost = 100000;
  Parallel p;
  int64_t copies = 0;
  for (const auto& [key, value] :
       pairs(text, "--parallel", {"tp", "pp", "dp", "zero", "micro", "interleave"}, form)) {
    const std::string option = "--parallel " + key;
    if (key == "zero") {
      r.sharding = static_cast<int>(whole_number(value, option, 0, 3));
      continue;
    }
    const int64_t n = whole_number(value, option, 1, kMost);
    if (key == "tp") p.tensor = static_cast<int>(n);
    if (key == "pp") p.pipeline = static_cast<int>(n);
    if (key == "interleave") p.interleave = static_cast<int>(n);
    if (key == "micro") p.micro = n;
    if (key == "dp") copies = n;
  }
  const int64_t parts = int64_t{p.tensor} * p.pipeline;
  TD_CHECK(parts <= kMost && parts * std::max<int64_t>(1, copies) <= kMost, Value,
           "--parallel '{}' asks for {} GPUs, {} can be planned", text,
           parts * std::max<int64_t>(1, copies), kMost);
  if (copies > 0) {
    TD_CHECK(!fixed || r.n == parts * copies, Value,
             "--parallel '{}' makes {} GPUs, --n says {}\nLeave out --n, or dp.", text,
             parts * copies, r.n);
    r.n = static_cast<int>(parts * copies);
  } else if (!fixed) {
    r.n = static_cast<int>(parts);
  }
  r.parallel = p;
}

std::string to_string(const Parallel& p, int sharding) {
  std::string out = fmt::format("tp={},pp={}", p.tensor, p.pipeline);
  if (p.interleave > 1) out += fmt::format(",interleave={}", p.interleave);
  if (sharding > 0) out += fmt::format(",zero={}", sharding);
  if (p.micro > 0) out += fmt::format(",micro={}", p.micro);
  return out;
}

namespace {

/// Every way that the sizes allow.
std::vector<PlanRequest> ways(const PlanRequest& r, const Gpu& gpu) {
  std::vector<PlanRequest> all;
  for (int tp = 1; tp <= std::min(gpu.per_server, r.n); tp *= 2)
    for (int pp = 1; tp * pp <= r.n && pp <= r.job.transformer_layers; ++pp) {
      if (r.n % (tp * pp) > 0 || r.job.width % tp > 0 || r.job.transformer_layers % pp > 0)
        continue;
      const int64_t copies = r.n / (tp * pp);
      for (const int64_t micro : {1, 2, 4, 8, 16, 32})
        for (const int stage : {0, 1, 3}) {
          if (r.batch % (copies * micro) > 0) continue;
          if (stage > 0 && copies == 1) continue;
          if (stage == 3 && pp > 1) continue;  // weights would be gathered for each microbatch
          PlanRequest way = r;
          way.parallel = {tp, pp, 1, micro};
          way.sharding = stage;
          all.push_back(std::move(way));
        }
    }
  return all;
}

}  // namespace

PlanRequest best_parallel(const PlanRequest& r, const Catalog& catalog) {
  TD_CHECK(!r.gpu.empty() && r.batch > 0 && r.job.transformer_layers > 0, Value,
           "--parallel auto spreads a net of equal blocks over known GPUs\nGive --gpu, --n and "
           "--batch, and a transformer.");
  const Gpu& gpu = catalog.gpu(r.gpu);
  std::map<int64_t, Workload> works;  // by microbatch
  std::optional<PlanRequest> best;
  double time = 0, memory = 0;
  bool fits = false;
  for (const PlanRequest& way : ways(r, gpu)) {
    const PlanRequest real = on(way, gpu);
    const auto [at, fresh] = works.try_emplace(way.parallel.micro);
    if (fresh) at->second = workload_for(real, way.parallel.micro, real.compiled, true);
    const double bytes = memory_of(at->second, real, r.n, gpu.usable()).value;
    const double seconds = step_time(at->second, real, gpu, r.n).value;
    const bool now = bytes <= gpu.usable();
    if (best && (fits > now || (fits == now && (now ? seconds >= time : bytes >= memory))))
      continue;
    best = way;
    fits = now;
    time = seconds;
    memory = bytes;
  }
  TD_CHECK(best, Value,
           "a batch of {} does not divide over {} GPUs in any way\nGive a multiple of {}.", r.batch,
           r.n, r.n);
  return *best;
}

}  // namespace tandem::plan
