// SPDX-License-Identifier: Apache-2.0
// All known servers side by side, and fleets that serve.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tandem/base/error.h"
#include "tandem/plan/plan_internal.h"

namespace tandem::plan {
namespace {

double end_units(const PlanRequest& r) {
  if (r.tokens > 0) return r.tokens;
  if (r.epochs > 0 && r.data) return r.epochs * r.data->samples * r.job.units_per_sample;
  return 1e6;
}

}  // namespace

std::vector<Ranked> rank(const PlanRequest& r, const Catalog& c, RankBy by) {
  check_request(r, c);
  std::map<int64_t, Workload> work;
  std::vector<Ranked> all;
  const int64_t batch = r.batch > 0 ? r.batch : 32;
  std::vector<int> counts{1, 2, 4, 8};
  if (std::find(counts.begin(), counts.end(), r.n) == counts.end()) counts.push_back(r.n);
  for (const Gpu& gpu : c.gpus()) {
    if (!c.prices().gpus.count(gpu.name)) continue;
    for (int n : counts) {
      const int64_t per_gpu = batch / (static_cast<int64_t>(n) * r.accumulate);
      if (per_gpu < 1) continue;
      auto at = work.find(per_gpu);
      if (at == work.end())
        at = work.emplace(per_gpu, workload_for(r, per_gpu, r.compiled, true)).first;
      const Workload& w = at->second;
      Ranked k;
      k.gpu = gpu.name;
      k.n = n;
      k.memory = memory_of(w, r, n).value;
      k.capacity = gpu.memory;
      k.fits = k.memory <= k.capacity;
      const Quantity rate = throughput(w, r, gpu, n);
      k.rate = rate.value;
      k.step = find(rate, "time.step")->value;
      k.seconds = end_units(r) / k.rate;
      const double hours = k.seconds / 3600;
      k.usd = hours * price_hour(r, c, gpu, n).value;
      k.kwh = gpu.watts * n * kPowerShare * (1 + kHostShare) * c.prices().pue * hours / 1000;
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
  return s + "+" + std::string(kWide, '-') + "\n";
}

Plan serve_plan(const PlanRequest& r, const ServeRequest& s, const Catalog& c) {
  check_request(r, c);
  TD_CHECK(s.rps > 0 && s.p99 > 0, Value,
           "{} requests per second within {} s cannot be served\nBoth are to be above 0.", s.rps,
           s.p99);
  Plan p;
  p.model = r.job.name;
  p.compiled = r.compiled;
  p.gpu = c.gpu(r.gpu.empty() ? "L4" : r.gpu);
  // The largest batch that is answered in time: it fills, waits for the one before, and runs.
  Workload best;
  double latency = 0, service = 0;
  double first = 0;
  for (int64_t b = 1; b <= 1024; b *= 2) {
    const Workload w = workload_for(r, b, r.compiled, false);
    if (memory_of(w, r, 1).value > p.gpu.memory) break;
    const double t = step_time(w, r, p.gpu, 1).value;
    if (b == 1) first = t;
    // At the wanted utilisation a batch fills in t / utilisation; 2 t: the one before and itself.
    const double worst = t / s.utilisation * (b > 1 ? 1 : 0) + 2 * t;
    if (worst > s.p99) break;
    best = w;
    latency = worst;
    service = t;
  }
  TD_CHECK(best.options.batch > 0 && service > 0, Value,
           "{} answers one request in {} on one {}, which is not within {} at the 99th percentile\n"
           "Take a faster GPU, narrower numbers, or allow more time.",
           p.model, show(first, "s"), p.gpu.name, show(s.p99, "s"));
  p.batch = best.options.batch;
  p.eager_work = p.compiled_work = best;
  Quantity time = step_time(best, r, p.gpu, 1);
  Quantity one = quotient("serve.rate.full", "requests per second of one GPU", "1/s", "",
                          given("serve.batch", "batch", static_cast<double>(best.options.batch), "",
                                "the largest power of two that is answered in time and fits"),
                          time);
  Quantity rate = product("serve.rate", "planned for", "1/s", "",
                          {std::move(one), given("serve.utilisation", "utilisation", s.utilisation,
                                                 "", "so that queues stay short")});
  Quantity exact = quotient("serve.exact", "GPUs, exactly", "", "",
                            given("serve.rps", "requests per second", s.rps, "1/s", "asked for"),
                            std::move(rate));
  const double n = std::ceil(exact.value - 1e-9);
  p.n = static_cast<int>(n);
  p.figures.push_back(
      given("serve.gpus", "GPUs", n, "", "the next whole number above serve.exact"));
  p.figures.push_back(std::move(exact));
  p.figures.push_back(
      sum("serve.p99", "slowest of a hundred", "s", "",
          {given("serve.fill", "filling the batch", latency - 2 * service, "s",
                 "batch over the planned rate"),
           given("serve.wait", "the batch before", service, "s", "at most one waits"),
           given("serve.service", "the batch itself", service, "s", "see time.step")}));
  p.figures.push_back(memory_of(best, r, 1));
  PlanRequest fleet = r;
  fleet.n = p.n;
  p.figures.push_back(price_hour(fleet, c, p.gpu, p.n));
  const double usd = p.figures.back().value;
  p.figures.push_back(quotient(
      "serve.cost", "per million requests", "USD", "",
      given("price.value", "an hour", usd * 1e6, "USD", "a million times price"),
      given("serve.hour", "requests an hour", s.rps * 3600, "", "requests per second times 3600")));
  p.notes.push_back(
      fmt::format("One {} more than needed keeps p99 while one is down.", p.gpu.name));
  return p;
}

}  // namespace tandem::plan
