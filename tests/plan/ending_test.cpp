// SPDX-License-Identifier: Apache-2.0
// When runs end: more work never takes less time or costs less, however short it is, and what is
// lost to checkpoints and failures is a share of it.
#include "tandem/plan/jobs.h"
#include "tandem/plan/plan_internal.h"
#include "tandem/tandem.h"
#include "tests/plan/plan_helper.h"

namespace tandem::plan {
namespace {

// A fleet that runs a job, and what so much work costs on it.
struct Fleet {
  const Catalog& catalog;
  PlanRequest r;
  const Workload& w;
  Quantity rate = throughput(w, r, catalog.gpu(r.gpu), r.n);
  Ending end = {};
  double usd = 0;
  void work(double units) {
    r.tokens = units;
    const Gpu& gpu = catalog.gpu(r.gpu);
    const Quantity all = *units_of(r);
    end = ending_of(r, catalog, gpu, r.n, w, &all, rate);
    check(*end.time);
    usd = cost_of(r, catalog, gpu, r.n, w, *end.time).value;
  }
};

void expect_growing(Fleet& f) {
  double seconds = 0, usd = 0;
  const std::string where =
      fmt::format("{} on {} x {}, {}", f.r.job.name, f.r.n, f.r.gpu, f.r.term);
  for (double units = 1; units < 1e15; units *= 10)
    for (const double times : {1.0, 3.0}) {
      f.work(times * units);
      const double work = f.end.work->value, time = f.end.time->value;
      // A simulation of long runs on machines that are taken away takes long itself.
      if (f.r.term == "spot" && work > 5 * 86400) return;
      EXPECT_GT(time, seconds) << where << ": " << times * units;
      EXPECT_GT(f.usd, usd) << where << ": " << times * units;
      EXPECT_GE(time, work * (1 - 1e-12)) << where;
      if (f.r.term != "spot") {
        EXPECT_NEAR(work / time, 1 - f.end.lost.value, 1e-9) << where;
      }
      seconds = time;
      usd = f.usd;
    }
}

TEST(Ending, TimeAndCostGrowWithTheWork) {
  init();
  const Catalog c = Catalog::built_in();
  for (const char* model : {"lenet", "resnet18", "gpt2:124m", "llama:7b"}) {
    const Job job = find_job(model);
    const Workload w =
        dry_run(job, {.batch = 4, .compiled = false, .precision = Precision::amp_f16});
    for (const char* gpu : {"T4", "RTX 4090", "H100 SXM", "B200"})
      for (const int n : {1, 8, 64})
        for (const char* term : {"hourly", "1 year", "spot"}) {
          PlanRequest r;
          r.job = job;
          r.gpu = gpu;
          r.n = n;
          r.sharding = n > 1 ? 3 : 0;
          r.compiled = false;
          r.precision = Precision::amp_f16;
          r.term = term;
          Fleet f{c, r, w};
          expect_growing(f);
        }
  }
}

// A checkpoint of 840 GB takes minutes; a run of seconds does not wait for more than its share.
TEST(Ending, ShortRunsDoNotSaveAllTheTime) {
  init();
  const Catalog c = Catalog::built_in();
  PlanRequest r = request("llama:70b", "B200");
  r.n = 64;
  r.sharding = 3;
  r.compiled = false;
  const Workload w =
      dry_run(r.job, {.batch = 4, .compiled = false, .precision = Precision::amp_bf16});
  Fleet f{c, r, w};
  for (const double tokens : {1e6, 1e7, 1e8, 1e11}) {
    f.work(tokens);
    EXPECT_LT(f.end.time->value, 1.05 * f.end.work->value) << tokens;
  }
  f.work(1e6);
  EXPECT_LT(f.end.work->value, f.end.save.value);
  EXPECT_LT(f.end.time->value, 60);
}

}  // namespace
}  // namespace tandem::plan
