// SPDX-License-Identifier: Apache-2.0
// All known servers side by side, each by the formulas of its plan.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tandem/base/error.h"
#include "tandem/plan/plan_internal.h"

namespace tandem::plan {

namespace {

// Dry runs, each made once.
class Works {
 public:
  const Workload& of(const PlanRequest& r, int64_t per_gpu) {
    const auto key = std::make_pair(per_gpu, static_cast<int>(*r.precision));
    auto at = known_.find(key);
    if (at == known_.end())
      at = known_.emplace(key, workload_for(r, per_gpu, r.compiled, true)).first;
    return at->second;
  }

 private:
  std::map<std::pair<int64_t, int>, Workload> known_;
};

// The batch of one GPU: the one asked for, or the largest half of the usual one that fits.
int64_t batch_that_fits(const PlanRequest& r, const Gpu& gpu, int n, Works& works) {
  int64_t b = per_gpu_batch(r, n);
  while (r.batch == 0 && b > 1 &&
         memory_of(works.of(r, b), r, n, gpu.usable()).value > gpu.usable())
    b /= 2;
  return b;
}

Ranked row_of(const PlanRequest& r, const Catalog& c, const Gpu& gpu, int n, const Quantity& units,
              Works& works) {
  const int64_t per_gpu = batch_that_fits(r, gpu, n, works);
  const Workload& w = works.of(r, per_gpu);
  Ranked k;
  k.gpu = gpu.name;
  k.n = n;
  k.assumed = gpu.assumed_efficiency();
  k.lacks_bf16 = lacks_bf16(r, gpu);
  k.batch = per_gpu * n * r.accumulate;
  k.sharding = r.sharding;
  k.recompute = r.recompute;
  k.memory = memory_of(w, r, n, gpu.usable()).value;
  k.capacity = gpu.usable();
  k.fits = k.memory <= k.capacity;
  const Quantity rate = throughput(w, r, gpu, n);
  const Ending end = ending_of(r, c, gpu, n, w, &units, rate);
  k.rate = rate.value;
  k.step = find(rate, "time.step")->value;
  k.seconds = end.time->value;
  k.usd = cost_of(r, c, gpu, n, w, *end.time).value;
  k.kwh = energy_of(power_of(c, gpu, n), *end.time).value;
  k.allowed = k.fits && (r.budget <= 0 || k.usd <= r.budget) &&
              (r.deadline <= 0 || k.seconds <= r.deadline);
  return k;
}

// The same with less memory, in the order in which it costs time; the first that fits.
Ranked changed_row(const PlanRequest& r, const Catalog& c, const Ranked& row, const Quantity& units,
                   Works& works) {
  for (const bool recompute : {false, true})
    for (const int stage : {r.sharding, 3}) {
      PlanRequest other = on(r, c.gpu(row.gpu));
      other.recompute = r.recompute || recompute;
      other.sharding = row.n > 1 ? stage : r.sharding;
      Ranked k = row_of(other, c, c.gpu(row.gpu), row.n, units, works);
      if (!k.fits) continue;
      if (other.sharding != r.sharding) k.changes = fmt::format("--sharding {}", other.sharding);
      if (other.recompute != r.recompute)
        k.changes += k.changes.empty() ? "--recompute" : " --recompute";
      return k;
    }
  return row;
}

}  // namespace

int64_t fitting_batch(const PlanRequest& r, const Gpu& gpu, int n) {
  Works works;
  return batch_that_fits(r, gpu, n, works);
}

std::vector<Ranked> rank(const PlanRequest& asked, const Catalog& c, RankBy by) {
  PlanRequest r = asked;
  r.parallel = {};  // servers for nets that each GPU holds
  check_request(r, c);
  if (!units_of(r)) r.tokens = 1e6;  // no end was asked for
  const Quantity units = *units_of(r);
  Works works;
  std::vector<Ranked> all;
  std::vector<int> counts{1, 2, 4, 8};
  if (std::find(counts.begin(), counts.end(), r.n) == counts.end()) counts.push_back(r.n);
  bool any = false;
  for (int n : counts) {
    // Fewer samples than GPUs: not a server for this batch.
    if (r.batch > 0 && n != r.n && per_gpu_batch(r, n) * n * r.accumulate > r.batch) continue;
    for (const Gpu& gpu : c.gpus()) {
      if (!c.has_price(gpu)) continue;
      all.push_back(row_of(on(r, gpu), c, gpu, n, units, works));
      any |= all.back().fits;
    }
  }
  if (!any)
    for (Ranked& k : all) k = changed_row(r, c, k, units, works);
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

namespace {

std::string note_of(const Ranked& k) {
  std::string note = !k.fits      ? "does not fit"
                     : !k.allowed ? "breaks a limit"
                     : k.pareto   ? "* nothing is both cheaper and faster"
                                  : "";
  const auto before = [&](const std::string& text) {
    note = text + (note.empty() ? "" : ": " + note);
  };
  if (!k.changes.empty()) before("with " + k.changes);
  if (k.lacks_bf16) before("no bf16, take f16");
  return note;
}

std::string line_of(const Ranked& k, int place) {
  const std::string line =
      fmt::format("{:<3} {:<17} {:>2} {:>8} {:>10} {:>12} {:>12} {:>11} {:>11}", place,
                  k.gpu + (k.assumed ? " ~" : ""), k.n, k.batch, show(k.memory, "B"),
                  show(k.rate, ""), show(k.seconds, "s"), show(k.usd, "USD"), show(k.kwh, "kWh"));
  const std::string note = note_of(k);
  return note.empty() ? line + "\n" : line + "  " + note + "\n";
}

// The front, drawn: cost over time on logarithmic axes.
std::string drawn(const std::vector<Ranked>& all) {
  std::vector<const Ranked*> fit;
  for (const Ranked& k : all)
    if (k.fits) fit.push_back(&k);
  if (fit.size() < 2) return "";
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
  std::string s = fmt::format("\ncost {} to {} (up), time {} to {} (right), * on the front\n",
                              show(u0, "USD"), show(u1, "USD"), show(t0, "s"), show(t1, "s"));
  for (const std::string& row : rows) s += "|" + row + "\n";
  s += "+" + std::string(kWide, '-') + "\n";
  return s + "A row's figures: --gpu, --n and --why cost, time, energy or memory.\n";
}

}  // namespace

std::string to_text(const std::vector<Ranked>& all, const PlanRequest& r) {
  const bool end = r.tokens > 0 || (r.epochs > 0 && r.data);
  std::string s = fmt::format("{:<3} {:<17} {:>2} {:>8} {:>10} {:>12} {:>12} {:>11} {:>11}\n", "",
                              "server", "n", "batch", "memory", r.job.unit + "/s",
                              end ? "time" : "per 1M", "cost", "energy");
  bool assumed = false;
  int place = 0;
  for (const Ranked& k : all) {
    s += line_of(k, ++place);
    assumed |= k.assumed;
  }
  if (assumed)
    s += "~ its efficiency is assumed, no published runs set it: time, cost and energy are "
         "rough.\n";
  return s + drawn(all);
}

}  // namespace tandem::plan
