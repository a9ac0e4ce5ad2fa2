// SPDX-License-Identifier: Apache-2.0
// What the formulas say of modes, gradients, capacity, links, spot machines and disks: each test
// states a fact about training that a plan must not contradict.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tandem/base/files/folder.h"
#include "tandem/plan/asked.h"
#include "tandem/plan/jobs.h"
#include "tandem/tandem.h"
#include "tests/plan/plan_helper.h"

namespace tandem::plan {
namespace {

double sum_of(const std::vector<Quantity>& parts) {
  double n = 0;
  for (const Quantity& p : parts) n += p.value;
  return n;
}
bool any_note(const Plan& p, const std::string& text) {
  for (const std::string& n : p.notes)
    if (n.find(text) != n.npos) return true;
  return false;
}

// A compiled program runs the same matmuls and fewer loops; a copy into another layout may come
// with it (vit, 0.7 %).
TEST(SlowPlanTime, CompiledIsNeverSlower) {
  init();
  const Catalog catalog = Catalog::built_in();
  for (const char* model : {"resnet50", "efficientnet_b0", "mobilenet_v2", "unet", "convnext_tiny",
                            "gpt2:124m", "bert:base", "llama:7b", "vit:base", "t5:small"})
    for (const Precision precision : {Precision::f32, Precision::tf32, Precision::amp_bf16}) {
      PlanRequest r = request(model, "");
      const auto work = [&](bool compiled) {
        return dry_run(r.job, {.batch = 8, .compiled = compiled, .precision = precision});
      };
      const Workload eager = work(false), compiled = work(true);
      for (const char* gpu : {"A100", "4090", "T4"})
        EXPECT_LE(step_time(compiled, r, catalog.gpu(gpu), 1).value,
                  1.01 * step_time(eager, r, catalog.gpu(gpu), 1).value)
            << model << " in " << to_string(precision) << " on " << gpu;
    }
}

// Between the batches of a step gradients stay, whatever the mode.
TEST(PlanMemory, AccumulatedGradientsStay) {
  init();
  for (const char* model : {"resnet18", "gpt2:124m"})
    for (bool compiled : {false, true}) {
      PlanRequest r = request(model, "A100");
      const Workload w = dry_run(r.job, {.batch = 8, .compiled = compiled});
      const Quantity once = memory_of(w, r, 1);
      r.accumulate = 4;
      const Quantity four = memory_of(w, r, 1);
      check(four);
      EXPECT_EQ(find(four, "memory.gradients")->value, w.gradient_bytes) << model << compiled;
      EXPECT_GT(four.value, once.value + 0.2 * w.gradient_bytes) << model << compiled;
    }
}

// The memory categories that every table has. Clipping by the norm of all gradients holds all of
// them at once; stage 2 divides them and stage 1 does not.
TEST(PlanMemory, GradientsAreACause) {
  init();
  for (bool compiled : {false, true})
    for (bool clip : {false, true}) {
      PlanRequest r = request("gpt2:124m", "A100");
      r.job = find_job("gpt2:124m", {.sequence = 32});
      const Workload w = dry_run(r.job, {.batch = 1, .compiled = compiled, .clip_norm = clip});
      const Quantity m = memory_of(w, r, 1);
      check(m);
      for (const char* key :
           {"memory.weights", "memory.gradients", "memory.optimizer", "memory.activations"})
        ASSERT_NE(find(m, key), nullptr) << key;
      double most = 0;
      for (const Peak& p : w.memory.peaks)
        most = std::max(most, p.held.of(MemoryCategory::gradients));
      EXPECT_GT(most, 0) << compiled << clip;
      if (clip || !compiled) {
        EXPECT_GE(most, 0.99 * w.gradient_bytes) << compiled << clip;
        // A small batch: the update is the highest moment.
        EXPECT_GE(find(m, "memory.gradients")->value, 0.99 * w.gradient_bytes);
      }
      r.n = 8;
      r.sharding = 1;
      const Quantity first = memory_of(w, r, 8);
      r.sharding = 2;
      const Quantity second = memory_of(w, r, 8);
      check(second);
      // The buckets of the all-reduce are as large as the gradients and stay; stage 2 divides them.
      EXPECT_EQ(find(first, "memory.gradients")->value, w.gradient_bytes);
      EXPECT_LE(find(second, "memory.gradients")->value, std::max(most, w.gradient_bytes) / 8);
      EXPECT_LT(second.value, first.value - 0.3 * w.gradient_bytes) << compiled << clip;
      // The ledger and the plan agree on what is held.
      EXPECT_NEAR(
          w.memory.peak.total(),
          w.memory.peak.of(MemoryCategory::weights) + w.memory.peak.of(MemoryCategory::gradients) +
              w.memory.peak.of(MemoryCategory::optimizer) +
              w.memory.peak.of(MemoryCategory::activations) +
              w.memory.peak.of(MemoryCategory::workspace) + w.memory.peak.of(MemoryCategory::input),
          1);
    }
}

TEST(PlanMemory, CapacityIsWhatTheCardReports) {
  init();
  const Catalog c = Catalog::built_in();
  constexpr double kMiB = 0x1p20;
  EXPECT_EQ(c.gpu("4090").memory, 24564 * kMiB);
  EXPECT_EQ(c.gpu("a100").memory, 81920 * kMiB);
  EXPECT_EQ(c.gpu("t4").memory, 15360 * kMiB);
  for (const Gpu& g : c.gpus()) EXPECT_EQ(g.usable(), g.memory - 512 * kMiB) << g.name;
  const Plan p = make_plan(request("lenet", "4090"), c);
  EXPECT_EQ(p.at("memory.capacity").value, c.gpu("4090").usable());
  EXPECT_NE(explain(p, "memory.capacity").find("nvidia-smi"), std::string::npos);
}

// Autocast leaves gradients in f32; FSDP's mixed precision reduces them in bf16.
TEST(PlanTime, GradientsOnTheWire) {
  init();
  const Catalog c = Catalog::built_in();
  for (const auto& [precision, width] :
       std::vector<std::pair<Precision, double>>{{Precision::f32, 4},
                                                 {Precision::amp_bf16, 4},
                                                 {Precision::amp_f16, 4},
                                                 {Precision::mixed_bf16, 2},
                                                 {Precision::pure_bf16, 2}}) {
    PlanRequest r = request("gpt2:124m", "A100");
    r.n = 8;
    const Workload w = dry_run(r.job, {.batch = 1, .precision = precision});
    EXPECT_EQ(find(step_time(w, r, c.gpu("A100"), 8), "time.link.width")->value, width)
        << to_string(precision);
  }
}

// Turing has no bf16: f16 is planned unless a precision is requested, and the plan says so.
// Full tiles reach the GPU's constant; short sums and slices of layers lose more of it.
TEST(PlanTime, MatmulsByTheirShapes) {
  init();
  const Catalog c = Catalog::built_in();
  const auto share = [&](const char* model, const char* parallel) {
    PlanRequest r;
    r.job = find_job(model, {.sequence = 2048});
    r.compiled = false;
    read_parallel(parallel, r, false);
    const Workload w =
        dry_run(r.job, {.batch = 4, .compiled = false, .precision = Precision::mixed_bf16});
    const Quantity step = step_time(w, r, c.gpu("A100"), r.n);
    check(step);
    const Quantity* q = find(step, "time.forward.1.shapes");
    return q ? q->value : 0;
  };
  const double narrow = share("mpt:125m", "tp=1"), wide = share("mpt:7b", "tp=1"),
               sliced = share("mpt:7b", "tp=8");
  EXPECT_GT(narrow, 0.5);
  EXPECT_GT(wide, narrow + 0.05);
  EXPECT_LT(wide, 1);
  EXPECT_LT(sliced, wide - 0.05);
}

// A causal query sees the keys up to its own; kernels skip the others.
TEST(PlanTime, CausalAttentionIsHalf) {
  init();
  constexpr double kLayers = 12, kHeads = 12, kSequence = 1024, kWidth = 64;
  const Workload w =
      dry_run(find_job("gpt2:124m", {.sequence = 1024}), {.batch = 1, .compiled = false});
  double forward = 0, backward = 0;
  for (const Work& k : w.work)
    if (k.attention) (k.backward ? backward : forward) += k.flops;
  const double pairs = kLayers * kHeads * kSequence * (kSequence + 1) / 2;
  EXPECT_DOUBLE_EQ(forward, pairs * 4 * kWidth);
  EXPECT_DOUBLE_EQ(backward, pairs * 10 * kWidth);
}

// Each batch of a step adds its gradients to the sum, which takes time.
TEST(PlanTime, BatchesAddTheirGradients) {
  init();
  const Gpu gpu = Catalog::built_in().gpu("A100");
  PlanRequest r = request("gpt2:124m", "a100");
  const Workload w = dry_run(r.job, {.batch = 1, .precision = Precision::mixed_bf16});
  EXPECT_EQ(find(step_time(w, r, gpu, 1), "time.adding"), nullptr);
  r.accumulate = 4;
  const Quantity step = step_time(w, r, gpu, 1);
  check(step);
  const Quantity* adding = find(step, "time.adding");
  ASSERT_NE(adding, nullptr);
  EXPECT_NEAR(adding->value, 4 * w.parameters * 10 / (0.8 * gpu.bandwidth), 1e-9);
}

TEST(Plan, PrecisionOfTheGpu) {
  init();
  const Catalog c = Catalog::built_in();
  PlanRequest r = request("resnet18", "T4");
  const Plan usual = make_plan(r, c);
  EXPECT_EQ(usual.compiled_work.options.precision, Precision::amp_f16);
  EXPECT_TRUE(any_note(usual, "T4 has no bf16: f16 is planned."));
  r.precision = Precision::amp_bf16;
  const Plan asked = make_plan(r, c);
  EXPECT_TRUE(any_note(asked, "at the rate of f32. Take f16."));
  EXPECT_LT(asked.at("rate").value, usual.at("rate").value);
  r.precision.reset();
  r.gpu = "L4";
  EXPECT_EQ(make_plan(r, c).compiled_work.options.precision, Precision::amp_bf16);
  // The ranking plans each as it runs best.
  r.gpu = "";
  r.tokens = 1e6;
  for (const Ranked& k : rank(r, c, RankBy::cost))
    if (k.gpu == "T4" && k.n == 1) {
      EXPECT_DOUBLE_EQ(k.rate, usual.at("rate").value);
    }
}

// Preemptions, checkpoints and storage are part of the one time and the one cost, and limits are
// held against them.
TEST(Plan, OneTimeAndOneCost) {
  init();
  const Catalog c = Catalog::built_in();
  PlanRequest r = request("resnet50", "A100");
  r.batch = 256;
  r.data = data_set("imagenet");
  r.epochs = 90;
  const Plan hourly = make_plan(r, c);
  r.term = "spot";
  const Plan spot = make_plan(r, c);
  for (const Plan* p : {&hourly, &spot}) {
    EXPECT_GT(p->at("time").value, p->at("time.work").value);
    EXPECT_NEAR(p->at("time.work").value / p->at("time").value, 1 - p->at("checkpoint.lost").value,
                1e-9);
    EXPECT_NEAR(p->at("cost").value,
                sum_of({p->at("cost.rent"), p->at("cost.storage"), p->at("cost.cold")}), 1e-9);
    EXPECT_GT(p->at("cost.storage").value, 0);
    EXPECT_NEAR(p->at("cost.rent").value, p->at("price").value * p->at("time").value / 3600, 1e-9);
  }
  EXPECT_EQ(spot.at("time.work").value, hourly.at("time.work").value);
  EXPECT_GT(spot.at("time").value, hourly.at("time").value);
  EXPECT_EQ(spot.find("spot.cost"), nullptr);
  EXPECT_NE(explain(spot, "time").find("simulated runs"), std::string::npos);
  // A deadline between computing and the end is broken.
  r.deadline = (spot.at("time.work").value + spot.at("time").value) / 2;
  EXPECT_FALSE(make_plan(r, c).within_limits);
  for (const Ranked& k : rank(r, c, RankBy::cost))
    if (k.gpu == "A100 80GB" && k.n == 1) {
      EXPECT_DOUBLE_EQ(k.seconds, spot.at("time").value);
      EXPECT_DOUBLE_EQ(k.usd, spot.at("cost").value);
      EXPECT_FALSE(k.allowed);
    }
}

// A head moves about 100 times a second: photos of their own need another disk than shards.
TEST(Plan, FilesNeedADiskThatSeeks) {
  init();
  const Catalog c = Catalog::built_in();
  PlanRequest r = request("resnet50", "A100");
  r.batch = 256;
  r.data = data_set("imagenet");
  r.epochs = 1;
  const Plan p = make_plan(r, c);
  ASSERT_GT(p.at("data.reads").value, 500);
  EXPECT_TRUE(any_note(p, "SATA SSD is enough for "));
  EXPECT_FALSE(any_note(p, "hard disk is enough"));
  r.data = data_set("samples=1000000,gb=1");  // small ones: seeks are all that counts
  EXPECT_TRUE(any_note(make_plan(r, c), "hard disk would do for shards read in order"));
  r.data->files = false;
  EXPECT_TRUE(any_note(make_plan(r, c), "hard disk is enough"));
}

TEST(Plan, SlowBatchThatFits) {
  init();
  const Catalog c = Catalog::built_in();
  PlanRequest r = request("gpt2:xl", "RTX 5090");
  r.batch = 0;
  const Plan p = make_plan(r, c);
  EXPECT_TRUE(p.fits) << p.at("memory").value;
  EXPECT_LT(p.batch, 32);
  EXPECT_TRUE(any_note(p, "it was halved until it does"));
  EXPECT_GE(p.at("batch.largest").value, static_cast<double>(p.batch));
  r = request("lenet", "T4");
  r.batch = 0;
  EXPECT_EQ(make_plan(r, c).batch, 32);
}

// Where nothing fits the request, the ranking tells what would.
TEST(SlowPlan, RankChangesWhatDoesNotFit) {
  init();
  const Catalog c = Catalog::built_in();
  PlanRequest r = request("llama:70b", "");
  r.batch = 8;
  r.tokens = 1e9;
  r.precision = Precision::mixed_bf16;
  const std::vector<Ranked> all = rank(r, c, RankBy::cost);
  ASSERT_TRUE(all[0].fits);
  EXPECT_EQ(all[0].sharding, 3);
  EXPECT_NE(all[0].changes.find("--sharding 3"), std::string::npos);
  const std::string text = to_text(all, r);
  EXPECT_NE(text.find("with --sharding 3"), std::string::npos) << text;
  // The row equals the plan with these options.
  r.gpu = all[0].gpu;
  r.n = all[0].n;
  r.sharding = all[0].sharding;
  r.recompute = all[0].recompute;
  const Plan p = make_plan(r, c);
  EXPECT_TRUE(p.fits);
  EXPECT_DOUBLE_EQ(p.at("cost").value, all[0].usd);
  // What fits is not changed.
  for (const Ranked& k : rank(request("lenet", ""), c, RankBy::cost)) EXPECT_EQ(k.changes, "");
}

// The server nearest to a broken limit is the one nearest to that limit.
TEST(SlowPlan, NearestToTheBrokenLimit) {
  init();
  const Catalog c = Catalog::built_in();
  PlanRequest r = request("resnet50", "T4");
  r.batch = 256;
  r.data = data_set("imagenet");
  r.epochs = 90;
  r.deadline = 1;  // nobody is done in a second
  const Plan p = make_plan(r, c);
  double soonest = 1e30;
  for (const Ranked& k : rank(r, c, RankBy::time))
    if (k.fits) soonest = std::min(soonest, k.seconds);
  EXPECT_DOUBLE_EQ(p.at("other.time").value, soonest);
  r.deadline = 0;
  r.budget = 0.01;
  const Plan q = make_plan(r, c);
  double cheapest = 1e30;
  for (const Ranked& k : rank(r, c, RankBy::cost))
    if (k.fits) cheapest = std::min(cheapest, k.usd);
  EXPECT_DOUBLE_EQ(q.at("other.cost").value, cheapest);
}

TEST(Plan, TextsAreReadable) {
  init();
  const Catalog c = Catalog::built_in();
  PlanRequest r = request("bert:base", "A100");
  r.tokens = 1e9;
  const Plan p = make_plan(r, c);
  for (const Quantity& q : p.figures)
    if (q.key.starts_with("save.")) {
      EXPECT_GT(q.value, 0) << q.key;
    }
  EXPECT_NE(explain(p, "cost.storage").find("a gigabyte a month = $0.08"), std::string::npos)
      << explain(p, "cost.storage");
  // Columns of the ranking never meet: a row has as many words as its columns ask for.
  r.gpu = "";
  r.tokens = 1e13;  // long times, large sums
  std::istringstream lines(to_text(rank(r, c, RankBy::cost), r));
  std::string line;
  std::getline(lines, line);
  for (int k = 0; k < 20 && std::getline(lines, line); ++k)
    for (size_t at : {size_t{3}, size_t{21}, size_t{24}, size_t{33}, size_t{44}, size_t{57},
                      size_t{70}, size_t{82}})
      EXPECT_EQ(line[at], ' ') << line << " at " << at;
}

TEST(Plan, ServingTakesNarrowWeightsAndManyGpus) {
  init();
  const Catalog c = Catalog::built_in();
  const ServeRequest s{.rps = 5, .p99 = 5};
  PlanRequest r = request("lenet", "L4");
  r.job = find_job("llama:7b", {.sequence = 128});
  const Plan one = serve_plan(r, s, c);  // 13.5 GB in bf16, 27 in f32
  check(one);
  EXPECT_EQ(one.at("serve.parts").value, 1);
  EXPECT_NEAR(one.at("memory.weights").value, 2 * 6.738e9, 0.02e9);
  r.gpu = "T4";
  r.job = find_job("llama:13b", {.sequence = 128});  // 26 GB in f16
  const Plan two = serve_plan(r, s, c);
  check(two);
  EXPECT_EQ(two.at("serve.parts").value, 2);
  EXPECT_LE(two.at("memory").value, c.gpu("T4").usable());
  EXPECT_EQ(two.compiled_work.options.precision, Precision::pure_f16);
  EXPECT_EQ(two.at("serve.gpus").value, 2 * two.at("serve.replicas").value);
}

TEST(SlowClaims, MemoryMoneyEnergyAndRates) {
  init();
  const Catalog c = Catalog::built_in();
  PlanRequest r = request("llama:70b", "T4");
  r.tokens = 1e9;
  const Evaluated too_large = check_claim(r, {Claim::Of::time, 1e9}, c, "x");
  EXPECT_EQ(too_large.verdict, Verdict::impossible);
  EXPECT_NE(too_large.why.find("It does not fit: its weights alone take"), std::string::npos);
  for (const Quantity& q : too_large.arithmetic) check(q);
  r = request("llama:7b", "RTX 4090");
  r.tokens = 1e6;
  const Evaluated as_asked = check_claim(r, {Claim::Of::time, 1e9}, c, "x");
  EXPECT_EQ(as_asked.verdict, Verdict::unlikely);
  EXPECT_NE(as_asked.why.find("as stated"), std::string::npos);
  // A cost, an energy and a rate correspond to the time that they allow.
  r = request("resnet50", "A100");
  r.batch = 256;
  r.data = data_set("imagenet");
  r.epochs = 90;
  const auto rate_of = [&](const char* text) {
    const Evaluated j = check_claim(r, claim_of(text), c, text);
    for (const Quantity& q : j.arithmetic) check(q);
    return j.arithmetic[0].value;
  };
  const Plan p = make_plan(r, c);
  const double units = p.at("units").value;
  EXPECT_NEAR(rate_of("2h"), units / 7200, 1e-6);
  EXPECT_NEAR(rate_of("$10"), units / (10 / p.at("price").value * 3600), 1e-6);
  EXPECT_NEAR(rate_of("10 kWh"), units / (10 / (p.at("power").value / 1000) * 3600), 1e-6);
  EXPECT_EQ(rate_of("2.5k/s"), 2500);
  EXPECT_EQ(rate_of("2500 images/s"), 2500);
  EXPECT_EQ(check_claim(r, claim_of("100k/s"), c, "x").verdict, Verdict::impossible);
  EXPECT_EQ(check_claim(r, claim_of("1/s"), c, "x").verdict, Verdict::possible);
  // A claim that is missed says what its time would do.
  EXPECT_NE(check_claim(r, claim_of("4.2h"), c, "x").why.find("of 90 epochs"), std::string::npos);
  EXPECT_ERROR(Value, "Write it as 4.2h, $500, 10kWh", claim_of("-3/s"));
  EXPECT_ERROR(Value, "it is negative", claim_of("$-3"));
}

TEST(Asked, Folders) {
  const std::string folder = testing::TempDir() + "/plan_folder";
  make_folders(folder + "/a/b");
  write_file(folder + "/1.jpg", std::string(1000, 'x'));
  write_file(folder + "/a/2.jpg", std::string(500, 'x'));
  write_file(folder + "/a/b/3.jpg", std::string(100, 'x'));
  write_file(folder + "/.hidden", std::string(100, 'x'));
  const DataSet d = data_set(folder);
  EXPECT_EQ(d.samples, 3);
  EXPECT_EQ(d.bytes, 1600);
  EXPECT_TRUE(d.files.value_or(false));
  EXPECT_ERROR(Value, "it is a file, whose samples cannot be counted", data_set(folder + "/1.jpg"));
  make_folders(folder + "/empty");
  EXPECT_ERROR(Value, "the folder has no files", data_set(folder + "/empty"));
}

TEST(PlanMustFail, WhatCannotBePlanned) {
  init();
  const Catalog c = Catalog::built_in();
  EXPECT_ERROR(Value, "'7742' is a processor, EPYC 7742", c.gpu("7742"));
  EXPECT_ERROR(Value, "Run `tandem bench --machine` on it", make_plan(request("lenet", "9654"), c));
  PlanRequest r = request("lenet", "T4");
  r.data = data_set("mnist");
  r.epochs = 2;
  r.tokens = 1e6;
  EXPECT_ERROR(Value, "Give --epochs or --tokens, not both.", make_plan(r, c));
}

// The tool in a separate process: its output, and the resources it uses.
struct Ran {
  int code = -1;
  std::string out;
  double seconds = 0, bytes = 0;
};
Ran run_tool(const std::string& options) {
  const std::string file = testing::TempDir() + "/plan_out.txt";
  const std::string command =
      std::string(std::getenv("TANDEM_TOOL")) + " " + options + " > " + file + " 2>&1";
  Ran r;
  const pid_t pid = fork();
  if (pid == 0) {
    execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  rusage use{};
  wait4(pid, &status, 0, &use);
  r.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  r.out = read_file(file, size_t{1} << 24);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  r.seconds = seconds(use.ru_utime) + seconds(use.ru_stime);
  r.bytes = 1024.0 * static_cast<double>(use.ru_maxrss);
  return r;
}

// Sanitizers and builds without optimisation take several times as long and as much.
double slack() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
  return 20;
#else
  return 1;
#endif
}

TEST(PlanTool, SevenBillionParameters) {
  if (!std::getenv("TANDEM_TOOL")) GTEST_SKIP() << "TANDEM_TOOL is not set";
  for (const char* mode : {"eager", "compiled"}) {
    const Ran r =
        run_tool(std::string("plan --recompute llama:7b --gpu h100 --n 8 --batch 64 --sharding 3 "
                             "--tokens 1e9 --mode ") +
                 mode);
    EXPECT_EQ(r.code, 0) << r.out;
    print("7b {}: {:.2f} s of processor time, {:.0f} MB\n", mode, r.seconds, r.bytes / 1e6);
    EXPECT_LE(r.seconds, 2 * slack()) << mode;
    EXPECT_LE(r.bytes, 200e6 * slack()) << mode;
  }
}

// Kernels of this processor have no part in the plan of another machine.
TEST(PlanTool, IsTheSameOnEveryProcessor) {
  if (!std::getenv("TANDEM_TOOL")) GTEST_SKIP() << "TANDEM_TOOL is not set";
  std::string texts[2];
  const char* const limits[] = {"base", "native"};
  for (int k = 0; k < 2; ++k) {
    setenv("TANDEM_ISA", limits[k], 1);
    const Ran r = run_tool(
        "plan llama:7b --gpu h100 --n 8 --batch 16 --sharding 3 --tokens 1e9 --mode compiled "
        "--json");
    unsetenv("TANDEM_ISA");
    EXPECT_EQ(r.code, 0) << r.out;
    texts[k] = r.out;
  }
  EXPECT_EQ(texts[0], texts[1]);
}

// A recipe is planned as it stands; options come before it.
TEST(PlanTool, ARecipeAsItStands) {
  if (!std::getenv("TANDEM_TOOL")) GTEST_SKIP() << "TANDEM_TOOL is not set";
  const auto figure = [](const std::string& text, const std::string& key) {
    const io::Json j = io::parse_json(text, "plan");
    for (const io::Json& q : *j.find("figures")->as_array())
      if (*q.find("key")->as_string() == key) return q.find("value")->dump();
    return std::string("none");
  };
  const Ran text = run_tool("plan recipes/digits-mlp.yaml --gpu l4");
  EXPECT_EQ(text.code, 0) << text.out;
  EXPECT_NE(text.out.find(" batch 64, f32, compiled, Adam\n"), std::string::npos) << text.out;
  const Ran json = run_tool("plan recipes/digits-mlp.yaml --gpu l4 --json");
  EXPECT_NE(json.out.find("\"epochs\""), std::string::npos);
  EXPECT_NE(figure(json.out, "time"), "none");
  const Ran other = run_tool(
      "plan recipes/digits-mlp.yaml --gpu l4 --mode eager --precision bf16 --optimizer SGD "
      "--batch 128 --tokens 1e6");
  EXPECT_NE(other.out.find(" batch 128, bf16, eager, SGD\n"), std::string::npos) << other.out;
  const Ran agent = run_tool("plan recipes/cartpole-ppo.yaml --gpu l4");
  EXPECT_NE(agent.code, 0);
  EXPECT_NE(agent.out.find("trains an agent in an environment"), std::string::npos) << agent.out;
  const Ran claim = run_tool("plan llama:70b --gpu t4 --tokens 1e9 --check-claim 1h --json");
  EXPECT_EQ(claim.code, 3) << claim.out;
  EXPECT_EQ(*io::parse_json(claim.out, "claim").find("verdict")->as_string(), "impossible");
  const std::string page = testing::TempDir() + "/rank.html";
  const Ran ranked = run_tool("plan lenet --rank --html " + page);
  EXPECT_EQ(ranked.code, 0) << ranked.out;
  EXPECT_NE(read_file(page, size_t{1} << 22).find("id=\"servers\""), std::string::npos);
}

}  // namespace
}  // namespace tandem::plan
