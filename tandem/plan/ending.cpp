// SPDX-License-Identifier: Apache-2.0
// When a run ends: computing, checkpoints, and what failures or spot preemptions take. The one
// place that says so: plans, rankings and limits ask here.
#include <fmt/format.h>

#include <algorithm>

#include "tandem/plan/plan_internal.h"

namespace tandem::plan {
namespace {

// Writing a checkpoint: an NVMe disk's sustained rate.
constexpr double kWriteRate = 2e9;

Quantity one() { return given("all", "all", 1, "", "no more can be lost"); }

Quantity between_failures(const PlanRequest& r, const Catalog& c, const Gpu& gpu, int n) {
  if (r.term != "spot")
    return quotient("checkpoint.mtbf", "time between failures", "s", "",
                    given("checkpoint.mtbf.one", "of one GPU", kMtbfSeconds, "s",
                          "419 interruptions of 16384 GPUs in 54 days (Llama 3)"),
                    gpus_of(n));
  return quotient("checkpoint.mtbf", "time between preemptions", "s", "",
                  given("day", "a day", 86400, "s", "seconds of a day"),
                  product("spot.rate", "preemptions a day", "", "",
                          {given("spot.rate.one", "of one server",
                                 std::max(1e-6, c.prices().spot.preemptions_per_day), "",
                                 c.prices().spot.source),
                           servers_of(gpu, n)}));
}

// The share of the time that saving and failures take, by Young's reckoning: one save an interval,
// half an interval a failure. Spread evenly over the work, so that half of the work takes half of
// the time, however short it is.
Quantity lost_share(const Quantity& save, const Quantity& interval, const Quantity& between) {
  const auto at_most_all = [](const std::string& key, const std::string& label, Quantity share) {
    return least(key, label, "", "", {std::move(share), one()});
  };
  Quantity writing = at_most_all("checkpoint.lost.save", "writing",
                                 quotient("checkpoint.lost.save.share", "one over the interval", "",
                                          "", again(save), again(interval)));
  Quantity repeating =
      at_most_all("checkpoint.lost.again", "doing again",
                  quotient("checkpoint.lost.again.share", "half an interval per failure", "", "",
                           again(interval),
                           product("checkpoint.lost.failures", "twice the time between", "s", "",
                                   {given("checkpoint.two", "two", 2, "", "half an interval each"),
                                    again(between)})));
  return at_most_all(
      "checkpoint.lost", "time lost to saving and failures",
      sum("checkpoint.lost.both", "both", "", "", {std::move(writing), std::move(repeating)}));
}

// The time on machines that are taken away, and the share of it that they cost.
void end_on_spot(Ending& e, const Catalog& c) {
  const SpotResult s = simulate_spot(e.work->value, e.interval.value, e.save.value,
                                     1 / e.between.value, c.prices().spot.restart_seconds);
  Quantity time =
      given("time", "time to the end", s.mean, "s",
            fmt::format("2000 simulated runs: {:.1f} preemptions, 9 of 10 end within {}; {}",
                        s.preemptions, show(s.p90, "s"), c.prices().spot.source));
  time.low = std::min(e.work->value, s.mean);
  time.high = std::max(s.p90, s.mean);
  e.lost =
      quotient("checkpoint.lost", "time lost to saving and preemptions", "", "",
               difference("checkpoint.lost.time", "lost", "s", "", {again(time), again(*e.work)}),
               again(time));
  e.time = std::move(time);
}

}  // namespace

Quantity servers_of(const Gpu& gpu, int n) {
  return whole("servers", "servers", "", "",
               quotient("servers.exact", "servers, exactly", "", "", gpus_of(n),
                        given("servers.gpus", "GPUs of one", gpu.per_server, "",
                              "most in one server of " + gpu.name)));
}

Quantity checkpoint_of(const Workload& w) {
  return sum("checkpoint.size", "checkpoint", "B", "what a resume needs",
             {given("checkpoint.weights", "weights", w.weight_bytes, "B", "dry run"),
              given("checkpoint.optimizer", "optimizer state", w.optimizer_bytes, "B", "dry run")});
}

Ending ending_of(const PlanRequest& r, const Catalog& c, const Gpu& gpu, int n, const Workload& w,
                 const Quantity* units, const Quantity& rate) {
  Ending e;
  if (units) e.work = quotient("time.work", "computing", "s", "", *units, again(rate));
  e.save = quotient(
      "checkpoint.save", "writing a checkpoint", "s", "", checkpoint_of(w),
      given("checkpoint.disk", "disk", kWriteRate, "B/s", "sustained writes of an NVMe disk"));
  e.between = between_failures(r, c, gpu, n);
  e.interval = root("checkpoint.interval", "checkpoint every", "s",
                    "Young's formula: least is lost so; a shorter run ends before its first",
                    product("checkpoint.square", "its square", "", "",
                            {given("checkpoint.two", "two", 2, "", "Young's formula"),
                             again(e.save), again(e.between)}));
  if (e.work && r.term == "spot" && c.prices().spot.preemptions_per_day > 0) {
    end_on_spot(e, c);
    return e;
  }
  e.lost = lost_share(e.save, e.interval, e.between);
  if (!e.work) return e;
  e.time = quotient("time", "time to the end", "s", "", again(*e.work),
                    most("time.kept", "share of it that counts", "", "",
                         {difference("time.left", "not lost", "", "", {one(), again(e.lost)}),
                          given("time.kept.least", "at least", 0.01, "", "else it never ends")}));
  return e;
}

}  // namespace tandem::plan
