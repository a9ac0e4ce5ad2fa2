// SPDX-License-Identifier: Apache-2.0
// Fleets that answer so many requests in time.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tandem/base/error.h"
#include "tandem/plan/plan_internal.h"

namespace tandem::plan {
namespace {

constexpr int64_t kLargestBatch = 1024;

// The largest batch that one GPU answers in time: it fills, waits for the one before, and runs.
struct Served {
  const Workload* work = nullptr;
  double first = 0;     // seconds of a batch of one
  double per_hour = 0;  // USD of the fleet, for comparing
};

}  // namespace

Plan serve_plan(const PlanRequest& r, const ServeRequest& s, const Catalog& c) {
  check_request(r, c);
  TD_CHECK(s.rps > 0 && s.p99 > 0 && s.utilisation > 0 && s.utilisation <= 1, Value,
           "{} requests per second within {} s at {} of the time cannot be served\nAll are to be "
           "above 0, the share of the time at most 1.",
           s.rps, s.p99, s.utilisation);
  std::map<int64_t, Workload> works;
  const auto work = [&](int64_t batch) -> const Workload& {
    auto at = works.find(batch);
    if (at == works.end())
      at = works.emplace(batch, workload_for(r, batch, r.compiled, false)).first;
    return at->second;
  };
  PlanRequest one = r;
  one.n = 1;
  const auto fit = [&](const Gpu& gpu) {
    Served best;
    for (int64_t b = 1; b <= kLargestBatch; b *= 2) {
      const Workload& w = work(b);
      if (memory_of(w, one, 1).value > gpu.memory) break;
      const double t = step_time(w, one, gpu, 1).value;
      if (b == 1) best.first = t;
      // At the wanted utilisation a batch fills in t / utilisation; 2 t: the one before and itself.
      if ((b > 1 ? t / s.utilisation : 0) + 2 * t > s.p99) break;
      best.work = &w;
      if (c.has_price(gpu))
        best.per_hour = price_hour(one, c, gpu, 1).value *
                        std::ceil(s.rps * t / (static_cast<double>(b) * s.utilisation));
    }
    return best;
  };
  Plan p;
  p.model = r.job.name;
  p.compiled = r.compiled;
  Served best;
  double soonest = 0;  // seconds of one request on the fastest GPU that holds it
  std::string fastest;
  const auto look = [&](const Gpu& gpu) {
    const Served now = fit(gpu);
    if (now.first > 0 && (soonest == 0 || now.first < soonest)) {
      soonest = now.first;
      fastest = gpu.name;
    }
    if (!now.work || (best.work && now.per_hour >= best.per_hour)) return;
    best = now;
    p.gpu = gpu;
  };
  if (!r.gpu.empty()) {
    look(c.gpu(r.gpu));
  } else {
    for (const Gpu& gpu : c.gpus())
      if (c.has_price(gpu)) look(gpu);
    p.notes.push_back("No --gpu was given: a fleet of " + p.gpu.name +
                      " is the cheapest that is known.");
  }
  const std::string where = r.gpu.empty() ? "any known GPU" : "one " + c.gpu(r.gpu).name;
  TD_CHECK(soonest > 0, Value, "{} does not fit into {}\nTake {}narrower numbers (--precision).",
           p.model, where, r.gpu.empty() ? "" : "a larger GPU or ");
  TD_CHECK(best.work, Value,
           "{} answers one request in {} on one {}, which is not within {} at the 99th percentile\n"
           "A request waits for the one before it: allow {}, or take {}narrower numbers.",
           p.model, show(soonest, "s"), fastest, show(s.p99, "s"), show(2 * soonest, "s"),
           r.gpu.empty() ? "" : "a faster GPU or ");
  const Workload& w = *best.work;
  p.batch = w.options.batch;
  p.eager_work = p.compiled_work = w;
  const Quantity time = step_time(w, one, p.gpu, 1);
  Quantity full = quotient("serve.rate.full", "requests per second of one GPU", "1/s", "",
                           given("serve.batch", "batch", static_cast<double>(p.batch), "",
                                 "the largest power of two that is answered in time and fits"),
                           time);
  const Quantity utilisation =
      given("serve.utilisation", "utilisation", s.utilisation, "", "so that queues stay short");
  Quantity rate = product("serve.rate", "planned for", "1/s", "", {std::move(full), utilisation});
  const Quantity rps = given("serve.rps", "requests per second", s.rps, "1/s", "asked for");
  Quantity gpus = whole("serve.gpus", "GPUs", "", "",
                        quotient("serve.exact", "GPUs, exactly", "", "", rps, std::move(rate)));
  p.n = static_cast<int>(gpus.value);
  p.figures.push_back(std::move(gpus));
  Quantity fill = p.batch > 1
                      ? quotient("serve.fill", "filling the batch", "s", "at the planned rate",
                                 again(time), again(utilisation))
                      : given("serve.fill", "filling the batch", 0, "s", "one request fills it");
  p.figures.push_back(
      sum("serve.p99", "slowest of a hundred", "s", "",
          {std::move(fill),
           product("serve.wait", "the batch before", "s", "",
                   {again(time), given("serve.waiting", "of them", 1, "", "at most one waits")}),
           again(time)}));
  p.figures.push_back(memory_of(w, one, 1));
  p.figures.push_back(price_hour(r, c, p.gpu, p.n));
  p.figures.push_back(quotient(
      "serve.cost", "per million requests", "USD", "",
      product("serve.million", "a million times an hour", "USD", "",
              {again(p.figures.back()), given("million", "a million", 1e6, "", "requests")}),
      product("serve.hour", "requests an hour", "", "",
              {again(rps), given("hour", "an hour", 3600, "s", "seconds of an hour")})));
  p.notes.push_back(fmt::format("One {} more keeps p99 while one is down.", p.gpu.name));
  return p;
}

}  // namespace tandem::plan
