// SPDX-License-Identifier: Apache-2.0
// All known servers side by side, each by the formulas of its plan.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tandem/base/error.h"
#include "tandem/plan/plan_internal.h"

namespace tandem::plan {

std::vector<Ranked> rank(const PlanRequest& asked, const Catalog& c, RankBy by) {
  check_request(asked, c);
  PlanRequest r = asked;
  if (!units_of(r)) r.tokens = 1e6;  // no end was asked for
  const Quantity units = *units_of(r);
  struct Shared {
    Workload work;
    std::map<int, double> memory;  // by GPUs
  };
  std::map<int64_t, Shared> shared;
  std::vector<Ranked> all;
  std::vector<int> counts{1, 2, 4, 8};
  if (std::find(counts.begin(), counts.end(), r.n) == counts.end()) counts.push_back(r.n);
  for (int n : counts) {
    // Fewer samples than GPUs: not a server for this batch.
    const int64_t per_gpu = per_gpu_batch(r, n);
    if (n != r.n && per_gpu * n * r.accumulate > std::max<int64_t>(r.batch > 0 ? r.batch : 32, 1))
      continue;
    Shared& s = shared[per_gpu];
    if (s.work.work.empty()) s.work = workload_for(r, per_gpu, r.compiled, true);
    const double memory = memory_of(s.work, r, n).value;
    for (const Gpu& gpu : c.gpus()) {
      if (!c.has_price(gpu)) continue;
      Ranked k;
      k.gpu = gpu.name;
      k.n = n;
      k.memory = memory;
      k.capacity = gpu.memory;
      k.fits = k.memory <= k.capacity;
      const Quantity rate = throughput(s.work, r, gpu, n);
      const Quantity time = time_of(units, rate);
      k.rate = rate.value;
      k.step = find(rate, "time.step")->value;
      k.seconds = time.value;
      k.usd = cost_of(r, c, gpu, n, s.work, time).value;
      k.kwh = energy_of(power_of(c, gpu, n), time).value;
      k.allowed = k.fits && (r.budget <= 0 || k.usd <= r.budget) &&
                  (r.deadline <= 0 || k.seconds <= r.deadline);
      all.push_back(k);
    }
  }
  const auto value = [by](const Ranked& k) {
    return by == RankBy::cost ? k.usd : by == RankBy::time ? k.seconds : k.kwh;
  };
  std::stable_sort(all.begin(), all.end(), [&](const Ranked& a, const Ranked& b) {
    if (a.fits != b.fits) return a.fits;
    if (a.allowed != b.allowed) return a.allowed;
    return value(a) < value(b);
  });
  for (Ranked& a : all) {
    a.pareto = a.fits;
    for (const Ranked& b : all)
      if (b.fits && b.usd <= a.usd && b.seconds <= a.seconds &&
          (b.usd < a.usd || b.seconds < a.seconds))
        a.pareto = false;
  }
  return all;
}

std::string to_text(const std::vector<Ranked>& all, const PlanRequest& r) {
  const bool end = r.tokens > 0 || (r.epochs > 0 && r.data);
  std::string s =
      fmt::format("{:<4}{:<18}{:>3}{:>12}{:>14}{:>12}{:>11}{:>11}  \n", "", "server", "n", "memory",
                  r.job.unit + "/s", end ? "time" : "per 1M", "cost", "energy");
  int place = 0;
  for (const Ranked& k : all)
    s += fmt::format("{:<4}{:<18}{:>3}{:>12}{:>14.4g}{:>12}{:>11}{:>11}  {}\n", ++place, k.gpu, k.n,
                     show(k.memory, "B"), k.rate, show(k.seconds, "s"), show(k.usd, "USD"),
                     show(k.kwh, "kWh"),
                     !k.fits      ? "does not fit"
                     : !k.allowed ? "breaks a limit"
                     : k.pareto   ? "* nothing is both cheaper and faster"
                                  : "");
  // The front, drawn: cost over time on logarithmic axes.
  std::vector<const Ranked*> fit;
  for (const Ranked& k : all)
    if (k.fits) fit.push_back(&k);
  if (fit.size() < 2) return s;
  constexpr int kWide = 64, kHigh = 14;
  double t0 = INFINITY, t1 = 0, u0 = INFINITY, u1 = 0;
  for (const Ranked* k : fit) {
    t0 = std::min(t0, k->seconds);
    t1 = std::max(t1, k->seconds);
    u0 = std::min(u0, k->usd);
    u1 = std::max(u1, k->usd);
  }
  std::vector<std::string> rows(kHigh, std::string(kWide, ' '));
  const auto place_of = [](double v, double lo, double hi, int n) {
    return hi > lo ? static_cast<int>(std::log(v / lo) / std::log(hi / lo) * (n - 1) + 0.5) : 0;
  };
  for (bool front : {false, true})
    for (const Ranked* k : fit)
      if (k->pareto == front)
        rows[static_cast<size_t>(kHigh - 1 - place_of(k->usd, u0, u1, kHigh))]
            [static_cast<size_t>(place_of(k->seconds, t0, t1, kWide))] = front ? '*' : '.';
  s += fmt::format("\ncost {} to {} (up), time {} to {} (right), * on the front\n", show(u0, "USD"),
                   show(u1, "USD"), show(t0, "s"), show(t1, "s"));
  for (const std::string& row : rows) s += "|" + row + "\n";
  s += "+" + std::string(kWide, '-') + "\n";
  return s + "A row's figures: --gpu, --n and --why cost, time, energy or memory.\n";
}

}  // namespace tandem::plan
