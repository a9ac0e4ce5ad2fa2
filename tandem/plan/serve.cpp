// SPDX-License-Identifier: Apache-2.0
// Fleets that answer a given number of requests in time.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tandem/base/error.h"
#include "tandem/plan/plan_internal.h"

namespace tandem::plan {
namespace {

constexpr int64_t kLargestBatch = 1024;
constexpr int kMostParts = 8;

// A replica answers by itself: one GPU, or several that share every matmul (tensor parallel).
struct Served {
  const Workload* work = nullptr;
  Precision precision = Precision::f32;
  int parts = 1;
  double first = 0;     // seconds of a batch of one
  double per_hour = 0;  // USD of the fleet, for comparing
};

Quantity parts_of(int parts) {
  return given("serve.parts", "GPUs of a replica", parts, "", "that share every matmul");
}

Quantity replica_memory(const Workload& w, const PlanRequest& r, int parts) {
  Quantity whole = memory_of(w, r, parts);
  if (parts == 1) return whole;
  for (Quantity& q : whole.parts)
    if (q.key == "memory.weights") {
      Quantity all = q;
      all.key += ".whole";
      q = quotient(q.key, q.label, "B", "each GPU has its part of every matrix", std::move(all),
                   parts_of(parts));
    }
  return sum(whole.key, whole.label, whole.unit, whole.why, std::move(whole.parts));
}

// Each block adds up its attention's and its inner layer's result over the GPUs.
Quantity replica_time(const Workload& w, const PlanRequest& r, const Gpu& gpu, int parts) {
  Quantity alone = step_time(w, r, gpu, 1);
  if (parts == 1) return alone;
  Quantity bytes = product(
      "serve.link.bytes", "bytes over the link", "B", "two sums over the GPUs in each block",
      {given("serve.link.boundary", "values between blocks", w.boundary_bytes, "B", "dry run"),
       given("serve.link.blocks", "blocks", w.blocks, "", "of the model"),
       given("serve.link.sums", "sums of each", 2, "", "attention and inner layer"),
       given("serve.link.passes", "scatter and gather", 2, "", "of a ring"),
       quotient("serve.link.ring", "of each", "", "n - 1 of n parts come from others",
                given("serve.link.others", "the other GPUs", parts - 1, "", "n - 1"),
                parts_of(parts))});
  Quantity rate =
      product("serve.link.rate", "rate", "B/s", "",
              {given("serve.link.peak", gpu.link, gpu.link_rate, "B/s", gpu.source),
               given("serve.link.share", "share", kLinkShare, "", "what collectives reach")});
  return sum("serve.time", "one batch", "s", "",
             {quotient("serve.time.split", "split over the GPUs", "s", "", std::move(alone),
                       parts_of(parts)),
              quotient("serve.link", "communication", "s", "", std::move(bytes), std::move(rate))});
}

// Looks for the cheapest fleet.
class FleetSearch {
 public:
  FleetSearch(const PlanRequest& r, const ServeRequest& s, const Catalog& c)
      : r_(r), s_(s), c_(c), one_(r) {
    one_.n = 1;
    one_.accumulate = 1;
    one_.sharding = 0;
  }

  /// One GPU where it holds the model in time, else as few as do; kept where it is the cheapest.
  void look(const Gpu& gpu) {
    for (int parts = 1; parts <= std::min(kMostParts, gpu.per_server); parts *= 2) {
      const Served now = fit(gpu, parts);
      if (now.first > 0 && (soonest_ == 0 || now.first < soonest_)) {
        soonest_ = now.first;
        fastest_ = fmt::format("{} {}", parts, gpu.name);
      }
      if (!now.work) continue;
      if (best_.work && now.per_hour >= best_.per_hour) return;
      best_ = now;
      gpu_ = gpu;
      return;
    }
  }
  /// Throws Value where nothing was found, naming what would have to change.
  void check_found() const;

  const PlanRequest& one() const { return one_; }  ///< the request of one replica's GPU
  const Served& best() const { return best_; }
  const Gpu& gpu() const { return gpu_; }

 private:
  // Weights as wide as the matmuls, where no precision was asked for.
  Precision precision_on(const Gpu& gpu) const {
    return r_.precision.value_or(gpu.has_bf16() ? Precision::pure_bf16 : Precision::pure_f16);
  }
  const Workload& work(int64_t batch, Precision precision);
  Served fit(const Gpu& gpu, int parts);

  const PlanRequest& r_;
  const ServeRequest& s_;
  const Catalog& c_;
  PlanRequest one_;
  std::map<std::pair<int64_t, Precision>, Workload> works_;
  Gpu gpu_;
  Served best_;
  double soonest_ = 0;  // seconds of one request on the fastest replica that holds it
  std::string fastest_;
};

const Workload& FleetSearch::work(int64_t batch, Precision precision) {
  auto at = works_.find({batch, precision});
  if (at != works_.end()) return at->second;
  PlanRequest asked = one_;
  asked.precision = precision;
  Workload w;
  try {
    w = workload_for(asked, batch, r_.compiled, false);
  } catch (const Error& e) {
    if (r_.precision || e.kind() != ErrorKind::Unsupported) throw;
    // It cannot be converted: its weights stay as they are.
    asked.precision = precision == Precision::pure_f16 ? Precision::amp_f16 : Precision::amp_bf16;
    w = workload_for(asked, batch, r_.compiled, false);
  }
  return works_.emplace(std::make_pair(batch, precision), std::move(w)).first->second;
}

// The largest batch that one replica answers in time: it fills, waits for the one before, and runs.
Served FleetSearch::fit(const Gpu& gpu, int parts) {
  Served best;
  best.precision = precision_on(gpu);
  best.parts = parts;
  for (int64_t b = 1; b <= kLargestBatch; b *= 2) {
    const Workload& w = work(b, best.precision);
    if (parts > 1 && (w.blocks < 1 || w.boundary_bytes <= 0)) break;
    if (replica_memory(w, one_, parts).value > gpu.usable()) break;
    const double t = replica_time(w, one_, gpu, parts).value;
    if (b == 1) best.first = t;
    // At the wanted utilisation a batch fills in t / utilisation; 2 t: the one before and itself.
    if ((b > 1 ? t / s_.utilisation : 0) + 2 * t > s_.p99) break;
    best.work = &w;
    if (c_.has_price(gpu))
      best.per_hour = price_hour(one_, c_, gpu, parts).value *
                      std::ceil(s_.rps * t / (static_cast<double>(b) * s_.utilisation));
  }
  return best;
}

void FleetSearch::check_found() const {
  const std::string fleet =
      r_.gpu.empty() ? "any known server" : "one server of " + c_.gpu(r_.gpu).name;
  TD_CHECK(soonest_ > 0, Value, "{} does not fit into {}\nTake {}narrower numbers (--precision).",
           r_.job.name, fleet, r_.gpu.empty() ? "" : "a larger GPU or ");
  TD_CHECK(best_.work, Value,
           "{} answers one request in {} on {}, which is not within {} at the 99th percentile\n"
           "A request waits for the one before it: allow {}, or take {}narrower numbers.",
           r_.job.name, show(soonest_, "s"), fastest_, show(s_.p99, "s"), show(2 * soonest_, "s"),
           r_.gpu.empty() ? "" : "a faster GPU or ");
}

// GPUs for all requests, and the slowest request of a hundred.
void add_fleet(Plan& p, const ServeRequest& s, const Quantity& time, const Quantity& rps,
               int parts) {
  Quantity full = quotient("serve.rate.full", "requests per second of a replica", "1/s", "",
                           given("serve.batch", "batch", static_cast<double>(p.batch), "",
                                 "the largest power of two that is answered in time and fits"),
                           time);
  const Quantity utilisation =
      given("serve.utilisation", "utilisation", s.utilisation, "", "so that queues stay short");
  Quantity rate = product("serve.rate", "planned for", "1/s", "", {std::move(full), utilisation});
  Quantity replicas =
      whole("serve.replicas", "replicas", "", "",
            quotient("serve.exact", "replicas, exactly", "", "", rps, std::move(rate)));
  Quantity gpus = product("serve.gpus", "GPUs", "", "", {replicas, parts_of(parts)});
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
}

// The price of an hour, and of a million requests.
void add_price(Plan& p, Quantity hour, const Quantity& rps) {
  p.figures.push_back(std::move(hour));
  p.figures.push_back(quotient(
      "serve.cost", "per million requests", "USD", "",
      product("serve.million", "a million times an hour", "USD", "",
              {again(p.figures.back()), given("million", "a million", 1e6, "", "requests")}),
      product("serve.hour", "requests an hour", "", "",
              {again(rps), given("hour", "an hour", 3600, "s", "seconds of an hour")})));
}

}  // namespace

Plan serve_plan(const PlanRequest& r, const ServeRequest& s, const Catalog& c) {
  check_request(r, c);
  TD_CHECK(s.rps > 0 && s.p99 > 0 && s.utilisation > 0 && s.utilisation <= 1, Value,
           "{} requests per second within {} s at {} of the time cannot be served\nAll are to be "
           "above 0, the share of the time at most 1.",
           s.rps, s.p99, s.utilisation);
  Plan p;
  p.model = r.job.name;
  p.compiled = r.compiled;
  FleetSearch search(r, s, c);
  if (!r.gpu.empty()) {
    search.look(c.gpu(r.gpu));
  } else {
    for (const Gpu& gpu : c.gpus())
      if (c.has_price(gpu)) search.look(gpu);
    p.notes.push_back("No --gpu was given: a fleet of " + search.gpu().name +
                      " is the cheapest that is known.");
  }
  search.check_found();
  const Served& best = search.best();
  const Workload& w = *best.work;
  p.gpu = search.gpu();
  add_notes_of_gpu(p.notes, r, p.gpu);
  p.batch = w.options.batch;
  p.eager_work = p.compiled_work = w;
  const Quantity rps = given("serve.rps", "requests per second", s.rps, "1/s", "asked for");
  add_fleet(p, s, replica_time(w, search.one(), p.gpu, best.parts), rps, best.parts);
  p.figures.push_back(replica_memory(w, search.one(), best.parts));
  p.figures.push_back(capacity_of(p.gpu));
  add_price(p, price_hour(r, c, p.gpu, p.n), rps);
  p.notes.push_back(best.parts == 1 ? "One " + p.gpu.name + " more keeps p99 while one is down."
                                    : std::string("One replica more keeps p99 while one is down."));
  return p;
}

}  // namespace tandem::plan
