// SPDX-License-Identifier: Apache-2.0
// The page of a plan, as text and in Debian's chromium, headless (skipped where it is not
// installed: scripts/setup browser); the evaluated statements.
#include "tandem/plan/report.h"

#include <map>

#include "tandem/plan/advise.h"
#include "tandem/plan/asked.h"
#include "tandem/plan/claims/claims.h"
#include "tandem/plan/jobs.h"
#include "tandem/plan/scaling.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/plan/plan_helper.h"
#include "tests/support/browser.h"
#include "tests/support/errors.h"

namespace tandem::plan {
namespace {

// Made once for all tests.
struct Page {
  Plan plan;
  std::string html;
};
const Page& page(bool compiled) {
  static std::map<bool, Page> pages;
  const auto [at, fresh] = pages.try_emplace(compiled);
  if (fresh) {
    const Catalog catalog = Catalog::built_in();
    PlanRequest r = request("resnet18", "RTX 4090");
    r.batch = 64;
    r.compiled = compiled;
    r.data = data_set("imagenet");
    r.epochs = 5;
    at->second.plan = make_plan(r, catalog);
    at->second.html = html_report(at->second.plan, rank(r, catalog, RankBy::cost), r);
  }
  return at->second;
}

TEST(PlanReport, IsSelfContained) {
  init();
  for (bool compiled : {false, true}) {
    const std::string& html = page(compiled).html;
    EXPECT_EQ(count(html, "<svg"), 4u);
    EXPECT_GT(count(html, "<circle"), 30u);
    EXPECT_GE(count(html, "<polygon"), 3u);
    EXPECT_GT(count(html, "<details"), 10u);
    EXPECT_EQ(count(html, "http"), 0u);  // nothing is fetched
    EXPECT_EQ(count(html, "<script"), 0u);
    EXPECT_EQ(count(html, "<details"), count(html, "</details>"));
    EXPECT_EQ(count(html, ">nan"), 0u);
    EXPECT_LT(html.size(), size_t{2} << 20);
    // Every figure with its key and value, the server's too.
    const Plan& p = page(compiled).plan;
    for (const std::string& key : p.keys()) {
      EXPECT_NE(html.find("<code>" + key + "</code>"), std::string::npos) << key;
      if (const Quantity* q = p.find(key)) {
        EXPECT_NE(html.find("</b> = " + show(*q) + " <code>" + key + "</code>"), std::string::npos)
            << key;
      }
    }
  }
}

// Its image is kept in TANDEM_KEEP_SHOTS, if set, else with the test's other output.
TEST(PlanReport, InABrowser) {
  if (!have_browser()) GTEST_SKIP() << "chromium is not installed (scripts/setup browser)";
  init();
  for (bool compiled : {true, false}) {
    TempFolder f;
    const std::string& html = page(compiled).html;
    write_file(f / "plan.html", html);
    const std::string shot = shots_folder() + (compiled ? "/plan.png" : "/plan_eager.png");
    const Visit v = visit(f.path().string(), f / "plan.html", shot);
    EXPECT_EQ(v.code, 0);
    EXPECT_EQ(count(v.dom, "<svg"), 4u);
    EXPECT_GT(count(v.dom, "<circle"), 30u);
    EXPECT_EQ(count(v.dom, "<details"), count(html, "<details"));
    EXPECT_EQ(count(v.log, "CONSOLE"), 0u) << v.log;
    EXPECT_GT(colours(shot), 200u) << shot;
  }
}

// A made-up machine and run: what takes most is named, and having it away gains what it took.
TEST(Advise, NamesWhatTakesMost) {
  init();
  MachineProfile m;
  m.f32_flops = 1e11;
  m.bandwidth = m.cache_bandwidth = 1e10;
  m.cache_bytes = 1e6;
  m.launch_seconds = 1e-5;
  m.step_seconds = 3e-6;
  m.disk_rate = 1e9;
  m.memory = 16e9;
  const auto ask = [&](const char* model, int64_t batch, RunFacts run) {
    const Job job = find_job(model);
    const Workload w = dry_run(job, {.batch = batch, .compiled = false, .this_backend = true});
    const Workload larger =
        dry_run(job, {.batch = 8 * batch, .compiled = false, .this_backend = true});
    run.samples_per_second = 100;
    if (run.loaders == 0) run.loaders = 1;
    const Advice a = advise(run, w, m, &larger);
    check(a.time);
    EXPECT_NEAR(a.time.value, static_cast<double>(batch) / 100, 1e-9);
    EXPECT_FALSE(a.text.empty());
    return a;
  };
  EXPECT_EQ(ask("vgg11", 4, {}).limit, Limit::arithmetic);
  const Advice tiny = ask("lenet", 1, {});
  EXPECT_EQ(tiny.limit, Limit::launch);
  EXPECT_GT(tiny.gain, 1.5);
  // One thread that loads: computing, held by what it reads, without a processor.
  const Advice decode = ask("vgg11", 4, {.waiting = 0.75, .loader_busy = 1, .loader_cores = 1});
  EXPECT_EQ(decode.limit, Limit::decode);
  EXPECT_NEAR(decode.gain, 2, 0.05);
  const Advice disk =
      ask("vgg11", 4, {.waiting = 0.75, .loader_busy = 1, .loader_cores = 0.1, .read = 5e6});
  EXPECT_EQ(disk.limit, Limit::disk);
  EXPECT_NEAR(disk.gain, 4, 0.05);
  const Advice slow =
      ask("vgg11", 4, {.waiting = 0.75, .loader_busy = 1, .loader_cores = 0.4, .read = 5e6});
  EXPECT_NEAR(slow.gain, 1 / 0.4, 0.05);  // then decoding is the slowest
  EXPECT_EQ(ask("vgg11", 4, {.waiting = 0.75, .loader_busy = 1, .read = 5, .received = 9e6}).limit,
            Limit::link);
  const Advice cores =
      ask("vgg11", 4, {.waiting = 0.4, .queued = 0.4, .loader_busy = 1, .loader_queued = 0.6});
  EXPECT_EQ(cores.limit, Limit::cores);
  EXPECT_NEAR(cores.gain, 1 / 0.4, 0.1);
  EXPECT_EQ(ask("vgg11", 4, {.waiting = 0.2, .memory_share = 0.97}).limit, Limit::memory);
  EXPECT_EQ(ask("vgg11", 4, {.resident_bytes = 15.5e9}).limit, Limit::memory);
  const Advice stalls = ask("vgg11", 4, {.memory_stall = 0.9});
  EXPECT_EQ(stalls.limit, Limit::memory);
  EXPECT_NEAR(stalls.gain, 10, 0.1);
  m.bandwidth = m.cache_bandwidth = 1e8;
  EXPECT_EQ(ask("mobilenet_v2", 8, {}).limit, Limit::bandwidth);
}

// No run is told to do what it does, or what its machine has no use for.
TEST(Advise, LeavesOutWhatTheRunHas) {
  init();
  MachineProfile m;
  m.cache_bytes = 1e6;
  m.launch_seconds = 1e-5;
  m.step_seconds = 3e-6;
  m.disk_rate = 1e9;
  m.memory = 16e9;
  struct Case {
    const char* model;
    int64_t batch;
    bool compiled;
    Precision precision;
    double bandwidth, bf16;  ///< of the machine
    Limit limit;
    const char* upgrade;
  };
  const char *const kCompute = "a processor with twice the arithmetic",
                    *const kMove = "twice the memory bandwidth", *const kBatch = "a larger batch";
  for (const Case& c : {
           Case{"vgg11", 4, false, Precision::f32, 1e10, 4e9, Limit::arithmetic,
                "a processor with twice the arithmetic, or matmuls in bf16"},
           Case{"vgg11", 4, false, Precision::f32, 1e10, 1e9, Limit::arithmetic, kCompute},
           Case{"vgg11", 4, false, Precision::amp_bf16, 1e10, 1e9, Limit::arithmetic, kCompute},
           Case{"mobilenet_v2", 8, false, Precision::f32, 1e7, 1e9, Limit::bandwidth,
                "twice the memory bandwidth, or the compiled mode, which fuses what moves bytes"},
           Case{"mobilenet_v2", 8, true, Precision::f32, 1e7, 1e9, Limit::bandwidth, kMove},
           Case{"lenet", 1, false, Precision::f32, 1e12, 1e12, Limit::launch,
                "a larger batch, or the compiled mode"},
           Case{"lenet", 1, true, Precision::f32, 1e12, 1e12, Limit::launch, kBatch},
       }) {
    m.bandwidth = m.cache_bandwidth = c.bandwidth;
    m.bf16_flops = c.bf16;
    m.f32_flops = c.limit == Limit::launch ? 1e12 : 1e9;
    const Workload w = dry_run(
        find_job(c.model),
        {.batch = c.batch, .compiled = c.compiled, .precision = c.precision, .this_backend = true});
    const Advice a = advise({.samples_per_second = 100}, w, m);
    EXPECT_EQ(to_string(a.limit), std::string(to_string(c.limit))) << c.model;
    EXPECT_EQ(a.upgrade, c.upgrade) << c.model;
    EXPECT_NE(a.text.find(std::string("With ") + c.upgrade + ", it would be"), a.text.npos)
        << a.text;
  }
}

// A text with every number taken out, and the numbers. "14,890" is one.
std::pair<std::string, std::vector<double>> taken_apart(const std::string& page) {
  std::pair<std::string, std::vector<double>> out;
  const auto digit = [&](size_t at) {
    return at < page.size() && page[at] >= '0' && page[at] <= '9';
  };
  std::string text;
  for (size_t at = 0; at < page.size(); ++at)
    if (page[at] != ',' || !(at > 0 && digit(at - 1) && digit(at + 1) && digit(at + 3)))
      text += page[at];
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] < '0' || text[at] > '9') {
      out.first += text[at];
      continue;
    }
    size_t used = 0;
    out.second.push_back(std::stod(text.substr(at, 40), &used));
    out.first += '#';
    at += used - 1;
  }
  return out;
}

// What the statements say, and how sure a verdict may be.
TEST(SlowClaims, StatementsAsTheyWereMade) {
  init();
  const Catalog catalog = Catalog::built_in();
  const MeasuredJob job = measured_job("docs/claims_mnist.json");
  const std::vector<Evaluated> all = published_claims(catalog, &job);
  struct Wanted {
    const char *statement, *why;
    Verdict verdict;
  };
  for (const Wanted& w : {
           Wanted{"With CUDA, training takes 7.67 s", "another job", Verdict::unclear},
           Wanted{"ResNet-50 on ImageNet takes 4.2 h (PyTorch) or 5.1 h (TensorFlow).",
                  "hardware is not stated: one A100 80GB is an assumption. Epochs are not stated. "
                  "In 4.2 h more than 151.5 epochs would be impossible",
                  Verdict::unclear},
           Wanted{"ResNet-101 on ImageNet", "In 4.2 h more than 41.8", Verdict::unclear},
           Wanted{"ResNet-101 on ImageNet",
                  "In 5.1 h more than 50.77 epochs would be impossible on one RTX 4090",
                  Verdict::unclear},
           Wanted{"takes 12 kWh (PyTorch) against 10 kWh (TensorFlow)", "all 10 kWh",
                  Verdict::impossible},
           Wanted{"EfficientNet-B4 is trained on ImageNet with 10 kWh",
                  "epochs would be impossible on one RTX 4090", Verdict::unclear},
           Wanted{
               "EfficientNet-B4 is trained on ImageNet with 10 kWh",
               "That the host and cooling are counted is an assumption. Plans of this net are low",
               Verdict::unclear},
           Wanted{"through ONNX", "that way was not measured", Verdict::unclear},
           Wanted{"Reinforcement learning", "Spinning Up and RLlib are named", Verdict::unclear},
           Wanted{"8 x A100 at AWS", "below it", Verdict::possible},
           Wanted{"An A100 costs 2 to 3 dollars", "4 % below the range", Verdict::possible},
           Wanted{"Preemptible machines", "the upper end", Verdict::possible},
           Wanted{"A server needs twice", "It depends on the job", Verdict::unclear},
           Wanted{"MLPerf v2.0", "are of 2022", Verdict::impossible},
           Wanted{"PyTorch's licence", "three clauses", Verdict::impossible},
       }) {
    int found = 0;
    for (const Evaluated& j : all)
      if (j.statement.find(w.statement) != std::string::npos) {
        ++found;
        EXPECT_EQ(j.verdict, w.verdict) << j.statement << ": " << j.why;
        EXPECT_NE(j.why.find(w.why), std::string::npos) << j.why;
      }
    EXPECT_EQ(found, 1) << w.statement;
  }
}

// A page of docs/ is what the command writes today.
void expect_fresh(const std::string& page, const std::string& file, const std::string& option) {
  const auto [now, numbers] = taken_apart(page);
  const auto [kept, kept_numbers] = taken_apart(read_file(file));
  const std::string stale = "stale: run `tandem plan " + option + " > " + file + "`";
  ASSERT_TRUE(now == kept) << stale;
  ASSERT_EQ(numbers.size(), kept_numbers.size()) << stale;
  // Programs may be planned a little differently on other processors.
  for (size_t k = 0; k < numbers.size(); ++k)
    EXPECT_NEAR(kept_numbers[k], numbers[k], 0.02 * std::abs(numbers[k])) << stale;
}
TEST(SlowClaims, ThePageIsFresh) {
  init();
  const MeasuredJob job = measured_job("docs/claims_mnist.json");
  expect_fresh(claims_page(Catalog::built_in(), &job), "docs/claims.md", "--claims");
}
TEST(SlowScaling, ThePageIsFresh) {
  init();
  expect_fresh(scaling_page(Catalog::built_in(), "docs/scaling.json",
                            {"tests/plan/mosaic_runs.csv", "tests/plan/scaling_runs.csv"},
                            "tests/plan/horovod_runs.csv"),
               "docs/scaling.md", "--scaling");
}

TEST(SlowClaims, EveryArithmeticAddsUp) {
  init();
  const Catalog catalog = Catalog::built_in();
  const std::vector<Evaluated> all = published_claims(catalog);
  EXPECT_GE(all.size(), 18u);
  for (const Evaluated& j : all) {
    EXPECT_FALSE(j.statement.empty());
    EXPECT_FALSE(j.why.empty());
    for (const Quantity& q : j.arithmetic) check(q);
  }
  // $1.20 for 2 kWh, and 10 hours at $3.84 for $34.56, are not arithmetic.
  int impossible = 0;
  for (const Evaluated& j : all) impossible += j.verdict == Verdict::impossible;
  EXPECT_GE(impossible, 3);
  // A T4 does not train ResNet-101 in an hour, an H100 does ResNet-18 in a week.
  PlanRequest r;
  r.job = find_job("resnet101");
  r.gpu = "T4";
  r.data = data_set("imagenet");
  r.epochs = 90;
  r.precision = Precision::amp_f16;
  EXPECT_EQ(check_claim(r, {Claim::Of::time, 3600}, catalog, "x").verdict, Verdict::impossible);
  r.job = find_job("resnet18");
  r.gpu = "H100";
  r.precision = Precision::amp_bf16;
  EXPECT_EQ(check_claim(r, {Claim::Of::time, 7 * 86400}, catalog, "x").verdict, Verdict::possible);
}

// Nothing that a statement leaves out decides its verdict.
TEST(SlowClaims, WhatIsNotStatedIsUnclear) {
  init();
  const Catalog catalog = Catalog::built_in();
  PlanRequest r = request("resnet18", "T4");
  r.data = data_set("imagenet");
  r.precision = Precision::amp_f16;
  // Any time, cost or energy: the number of epochs it names is where the verdict turns.
  for (const char* text : {"1 s", "4.2h", "10000h", "$5", "10 kWh"}) {
    const Claim claim = claim_of(text);
    r.epochs = 0;
    const Evaluated open = check_claim(r, claim, catalog, text);
    EXPECT_EQ(open.verdict, Verdict::unclear) << text;
    double most = 0;
    for (const Quantity& q : open.arithmetic) {
      check(q);
      if (q.key == "claim.epochs.most") most = q.value;
    }
    ASSERT_GT(most, 0) << text;
    EXPECT_NE(open.why.find(fmt::format("more than {:.4g} epochs would be impossible", most)),
              std::string::npos)
        << open.why;
    r.epochs = 1.001 * most;
    EXPECT_EQ(check_claim(r, claim, catalog, text).verdict, Verdict::impossible) << text;
    r.epochs = 0.999 * most;
    EXPECT_NE(check_claim(r, claim, catalog, text).verdict, Verdict::impossible) << text;
    r.epochs = 1.001 * most;
    Claim assumed = claim;
    assumed.hardware_stated = false;
    EXPECT_EQ(check_claim(r, assumed, catalog, text).verdict, Verdict::unclear) << text;
  }
  // A rate needs no end.
  r.epochs = 0;
  EXPECT_EQ(check_claim(r, claim_of("100k/s"), catalog, "x").verdict, Verdict::impossible);
}

}  // namespace
}  // namespace tandem::plan
