// SPDX-License-Identifier: Apache-2.0
// Plans of nets that are spread over GPUs: published runs, figures that add up, what is refused,
// and the search for the fastest way.
#include <cmath>
#include <sstream>

#include "tandem/base/files/file.h"
#include "tandem/base/files/folder.h"
#include "tandem/plan/jobs.h"
#include "tandem/plan/plan.h"
#include "tandem/plan/simulate.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/plan/plan_helper.h"

namespace tandem::plan {
namespace {

PlanRequest spread_request(const std::string& parallel, int64_t batch) {
  PlanRequest r;
  r.job = find_job("llama:7b", {.sequence = 2048});
  r.gpu = "a100";
  r.batch = batch;
  r.precision = Precision::mixed_bf16;
  read_parallel(parallel, r, false);
  return r;
}
double value_of(const PlanRequest& r, const std::string& key) {
  return make_plan(r, Catalog::built_in()).at(key).value;
}

// No constant is set by these rows.
TEST(Parallel, SlowPublishedStepTimes) {
  init();
  const Catalog catalog = Catalog::built_in();
  const TempFolder folder;
  std::istringstream in(read_file("tests/plan/parallel_runs.csv", size_t{1} << 20));
  std::vector<double> errors, simulated;
  std::map<std::string, std::pair<double, double>> ratios;  // full / matmuls: planned, published
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> f;
    std::istringstream s(line);
    for (std::string x; std::getline(s, x, ',');) f.push_back(x);
    ASSERT_EQ(f.size(), 11u) << line;
    const std::string config = folder / f[0];
    make_folders(config);
    write_file(config + "/config.json",
               fmt::format(R"({{"model_type": "gpt2", "n_embd": {}, "n_head": {}, "n_layer": {},
                               "vocab_size": 51200, "n_positions": 2048}})",
                           f[1], f[2], f[3]));
    PlanRequest r;
    r.job = find_job(config, {.sequence = 2048, .framework = Framework::pytorch});
    r.gpu = "a100";
    r.compiled = false;
    r.framework = Framework::pytorch;
    r.attention = AttentionForm::composed;
    r.precision = Precision::mixed_bf16;
    r.recompute = true;
    r.kept = kept_of(f[9]);
    r.clip_norm = true;  // Megatron's default: --clip-grad 1.0
    r.batch = std::stoll(f[7]);
    read_parallel(fmt::format("tp={},pp={},interleave={},micro={}", f[4], f[5], f[6], f[8]), r,
                  false);
    r.accumulate = static_cast<int>(r.batch / std::stoll(f[8]));
    const Workload w = dry_run(r.job, {.batch = std::stoll(f[8]),
                                       .compiled = false,
                                       .precision = *r.precision,
                                       .clip_norm = r.clip_norm,
                                       .framework = r.framework,
                                       .attention = r.attention});
    const double planned = step_time(w, r, catalog.gpu(r.gpu), r.n).value;
    const double published = std::stod(f[10]);
    errors.push_back(std::abs(planned / published - 1));
    simulated.push_back(std::abs(simulate(w, r, catalog.gpu(r.gpu), r.n).step / published - 1));
    (f[9] == "full" ? ratios[f[0]].first : ratios[f[0]].second) = planned;
    print("{:5} {:8} on {:3} GPUs: planned {:6.2f} s, published {:6.2f} s, {:+.1f} %\n", f[0], f[9],
          r.n, planned, published, 100 * (planned / published - 1));
  }
  EXPECT_EQ(errors.size(), 8u);
  print("{} rows: p90 {:.1f} %, most {:.1f} %\n", errors.size(), 100 * quantile(errors, 0.9),
        100 * quantile(errors, 1));
  print("simulated: p90 {:.1f} %, most {:.1f} %\n", 100 * quantile(simulated, 0.9),
        100 * quantile(simulated, 1));
  EXPECT_LE(quantile(errors, 0.9), 0.15);
  EXPECT_LE(quantile(simulated, 0.9), 0.15);
  for (const auto& [name, r] : ratios) EXPECT_GT(r.first, r.second) << name;
}

TEST(Parallel, FiguresAddUpAndSayWhereTheyComeFrom) {
  init();
  for (const char* way : {"tp=8", "pp=4,micro=1", "tp=4,pp=4,dp=4,zero=1,micro=1",
                          "tp=2,pp=8,interleave=2,dp=2,micro=2", "tp=4,dp=4,zero=3"})
    for (const bool compiled : {false, true}) {
      PlanRequest r = spread_request(way, 64);
      r.compiled = compiled;
      r.tokens = 1e9;
      const Plan p = make_plan(r, Catalog::built_in());
      check(p);
      EXPECT_TRUE(broken_sums(to_json(p)).empty()) << way;
      EXPECT_TRUE(unexplained_numbers(to_text(p), to_json(p),
                                      {"llama:7b", "A100 80GB", "NVLink 3", p.spread})
                      .empty())
          << way << "\n"
          << to_text(p);
      EXPECT_EQ(p.batch, 64) << way;
      if (r.parallel.pipeline > 1) {
        EXPECT_GT(p.at("time.bubble").value, 0) << way;
        EXPECT_NE(explain(p, "time.step").find("pauses of the pipeline"), std::string::npos);
      }
      if (r.parallel.tensor > 1) {
        EXPECT_GT(p.at("time.layers").value, 0) << way;
      }
    }
}

TEST(Parallel, MoreGpusTakeLessMemoryAndMoreMicrobatchesShorterPauses) {
  init();
  double before = 1e30;
  for (const char* way : {"tp=1,pp=1,micro=1", "tp=2,micro=1", "tp=4,micro=1", "tp=8,micro=1"}) {
    const double memory = value_of(spread_request(way, 64), "memory.weights");
    EXPECT_LT(memory, before) << way;
    before = memory;
  }
  const auto pause = [](const char* way, int64_t batch) {
    const Plan p = make_plan(spread_request(way, batch), Catalog::built_in());
    return p.at("time.bubble").value / p.at("time.step").value;
  };
  EXPECT_GT(pause("pp=8,micro=1", 8), pause("pp=8,micro=1", 64));
  EXPECT_GT(pause("pp=8,micro=1", 8), 0.4);  // 7 of 15
  EXPECT_LT(pause("pp=8,interleave=4,micro=1", 8), pause("pp=8,micro=1", 8));
}

TEST(Parallel, TheSearchTakesTheFastestThatFits) {
  init();
  const Catalog catalog = Catalog::built_in();
  PlanRequest r = spread_request("dp=16", 64);
  const PlanRequest best = best_parallel(r, catalog);
  const Plan p = make_plan(best, catalog);
  EXPECT_TRUE(p.fits) << to_string(best.parallel, best.sharding);
  for (const char* way : {"tp=8,dp=2,zero=1,micro=1", "tp=4,pp=4,micro=1", "dp=16,zero=3,micro=4",
                          "tp=8,pp=2,micro=2", "tp=2,pp=8,micro=1"}) {
    const Plan other = make_plan(spread_request(way, 64), catalog);
    if (other.fits) {
      EXPECT_LE(p.at("time.step").value, other.at("time.step").value * (1 + 1e-9))
          << way << " against " << to_string(best.parallel, best.sharding);
    }
  }
  r.n = 3;
  r.batch = 2;
  EXPECT_ERROR(Value, "does not divide over 3 GPUs", best_parallel(r, catalog));
  r.gpu = "";
  EXPECT_ERROR(Value, "Give --gpu", best_parallel(r, catalog));
}

TEST(Parallel, WhatCannotBeIsRefused) {
  init();
  PlanRequest r;
  EXPECT_ERROR(Value, "'td' is not known here", read_parallel("td=8", r, false));
  EXPECT_ERROR(Value, "tp", read_parallel("tp=0", r, false));
  EXPECT_ERROR(Value, "makes 16 GPUs, --n says 1", read_parallel("tp=8,dp=2", r, true));
  EXPECT_ERROR(Value, "can be planned", read_parallel("tp=1000,pp=1000", r, false));
  const Catalog catalog = Catalog::built_in();
  PlanRequest odd = spread_request("tp=8", 64);
  odd.n = 12;
  EXPECT_ERROR(Value, "12 GPUs do not make groups", make_plan(odd, catalog));
  PlanRequest deep = spread_request("pp=64", 64);
  EXPECT_ERROR(Value, "it has 32 blocks", make_plan(deep, catalog));
  PlanRequest conv = request("resnet50", "a100");
  read_parallel("tp=8", conv, false);
  EXPECT_ERROR(Value, "has no equal blocks to spread", make_plan(conv, catalog));
  PlanRequest flat = spread_request("tp=8,interleave=2", 64);
  EXPECT_ERROR(Value, "interleave=2 is of pipelines", make_plan(flat, catalog));
  PlanRequest free = spread_request("tp=8", 64);
  free.gpu = "";
  EXPECT_ERROR(Value, "needs to know which", make_plan(free, catalog));
}

}  // namespace
}  // namespace tandem::plan
