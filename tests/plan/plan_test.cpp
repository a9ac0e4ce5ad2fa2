// SPDX-License-Identifier: Apache-2.0
// Plans: figures that add up, data that is checked, errors that name the nearest choice.
#include "tandem/plan/plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "tandem/onnx/export.h"
#include "tandem/onnx/onnx.h"
#include "tandem/plan/hardware/machine.h"
#include "tandem/plan/jobs.h"
#include "tandem/tandem.h"
#include "tests/plan/plan_helper.h"

namespace tandem::plan {
namespace {

TEST(Quantity, AddsUp) {
  Quantity a = given("a", "a", 6, "B", "counted"), b = given("b", "b", 2, "B", "counted");
  EXPECT_EQ(sum("s", "s", "B", "", {a, b}).value, 8);
  EXPECT_EQ(product("p", "p", "B", "", {a, b}).value, 12);
  EXPECT_EQ(quotient("q", "q", "", "", a, b).value, 3);
  EXPECT_EQ(most("m", "m", "B", "", {a, b}).value, 6);
  EXPECT_EQ(difference("d", "d", "B", "", {a, b, b}).value, 2);
  EXPECT_EQ(root("r", "r", "", "", product("p", "p", "", "", {a, a})).value, 6);
  EXPECT_EQ(whole("w", "w", "", "", quotient("q", "q", "", "", b, a)).value, 1);
  EXPECT_EQ(whole("w", "w", "", "", quotient("q", "q", "", "", a, b)).value, 3);
  EXPECT_EQ(rounded_up("u", "u", "B", "", a, 5).value, 10);
  EXPECT_EQ(keys(prefixed(sum("s", "s", "B", "", {a, b}), "x")),
            (std::vector<std::string>{"x.s", "x.a", "x.b"}));
  // What is repeated is found where it stands whole.
  const Quantity twice = sum("t", "t", "B", "", {again(a), product("p", "p", "B", "", {a, b})});
  check(twice);
  EXPECT_EQ(find(twice, "a")->how, Quantity::How::given);
  Quantity s = sum("s", "s", "B", "", {a, least("l", "l", "B", "", {a, b})});
  check(s);
  EXPECT_EQ(find(s, "b")->value, 2);
  EXPECT_NE(explain(s).find("the smaller of"), std::string::npos);
  s.value = 9;
  EXPECT_ERROR(Internal, "its parts give 8", check(s));
  a.why = "";
  EXPECT_ERROR(Internal, "does not say by whom", check(a));
  EXPECT_EQ(show(1536e6, "B"), "1.54 GB");
  EXPECT_EQ(show(0.0042, "s"), "4.2 ms");
  EXPECT_EQ(show(67200, "W"), "67,200 W");
  EXPECT_EQ(show(2.5e9, "bit/s"), "2.50 Gbit/s");
}

// table: value, unit, as people write it
TEST(Quantity, NumbersAsPeopleWriteThem) {
  constexpr double kDays = 86400;
  for (const auto& [value, unit, text] : std::vector<std::tuple<double, const char*, const char*>>{
           {14890, "", "14,890"},
           {1.489e4, "images/s", "14,890 images/s"},
           {9999.4, "", "9999"},
           {9999.7, "", "10,000"},
           {115305030, "", "115,305,030"},
           {-1234567, "", "-1,234,567"},
           {999999.4, "", "999,999"},
           {0.25, "", "0.25"},
           {2024, "", "2024"},
           {0, "", "0"},
           {1.608e-6, "", "1.61 x 10^-6"},
           {1e18, "", "1.00 x 10^18"},
           {150097.2 * kDays, "s", "411 years"},
           {3 * 365.25 * kDays, "s", "3.0 years"},
           {12345 * 365.25 * kDays, "s", "12,345 years"},
           {100 * kDays, "s", "100.0 days"},
           {36 * 3600, "s", "36.0 h"},
           {0.9997e-3, "s", "1 ms"},
           {0.9998, "s", "1 s"},
           {2.5e-4, "s", "250 us"},
           {12345.6, "USD", "$12,346"},
           {9999.99, "USD", "$9999.99"},
           {34.56, "USD", "$34.56"},
           {0.0123, "USD", "$0.0123"},
           {123456789, "USD", "$123.5M"},
           {4.56e9, "USD", "$4.56B"}})
    EXPECT_EQ(show(value, unit), text);
  // No figure of a plan of years is a power of ten with an e.
  init();
  const Catalog c = Catalog::built_in();
  PlanRequest r = request("llama:7b", "T4");
  r.tokens = 1e14;
  const std::string all = to_text(make_plan(r, c)) + to_text(rank(r, c, RankBy::cost), r);
  EXPECT_NE(all.find(" years"), all.npos) << all;
  for (size_t at = all.find("e+"); at != all.npos; at = all.find("e+", at + 1))
    ADD_FAILURE() << all.substr(at > 20 ? at - 20 : 0, 40);
}

TEST(Plan, EveryFigureAddsUp) {
  init();
  const Catalog catalog = Catalog::built_in();
  for (const char* model : {"resnet50", "gpt2:124m", "bert:base", "lenet", "unet"})
    for (bool compiled : {false, true})
      for (int n : {1, 8}) {
        PlanRequest r = request(model, n == 1 ? "4090" : "h100");
        r.compiled = compiled;
        r.n = n;
        r.sharding = n == 8 ? 2 : 0;
        r.data = data_set("samples=100000,gb=2");
        r.epochs = 3;
        r.term = n == 8 ? "spot" : "hourly";
        const Plan p = make_plan(r, catalog);
        check(p);
        for (const char* key :
             {"memory", "memory.weights", "batch.largest.gpu", "time.step", "rate", "time",
              "energy", "cost", "checkpoint.interval", "buy.hours"})
          EXPECT_GT(p.at(key).value, 0) << model << " " << key;
        for (const std::string& k : p.keys()) EXPECT_FALSE(explain(p, k).empty());
        EXPECT_EQ(p.server.size(), 9u);
        const Quantity& m = p.at("memory");
        EXPECT_LE(*m.low, m.value);
        EXPECT_GE(*m.high, m.value);
        EXPECT_FALSE(to_json(p).dump().empty());
      }
}

// The largest batch fits and a larger one does not, whichever batch was asked about. (The peak of
// bert:large is the update's at first and the activations' later.)
TEST(Plan, SlowLargestBatch) {
  init();
  const Catalog catalog = Catalog::built_in();
  for (const char* model : {"resnet18", "gpt2:124m", "bert:large"}) {
    PlanRequest r = request(model, "T4");
    r.compiled = false;
    const Plan p = make_plan(r, catalog);
    const auto b = static_cast<int64_t>(p.at("batch.largest.gpu").value);
    ASSERT_GT(b, 0);
    for (int64_t asked : {1, 2, 7, 500}) {
      r.batch = asked;
      EXPECT_NEAR(make_plan(r, catalog).at("batch.largest.gpu").value, static_cast<double>(b),
                  std::max(1.0, static_cast<double>(b) / 200))
          << model << " from " << asked;
    }
    r.batch = b;
    EXPECT_TRUE(make_plan(r, catalog).fits);
    r.batch = b + std::max<int64_t>(2, b / 20);
    const Plan more = make_plan(r, catalog);
    EXPECT_FALSE(more.fits);
    std::string notes;
    for (const std::string& n : more.notes) notes += n + "\n";
    EXPECT_NE(notes.find("A batch of"), std::string::npos) << notes;
  }
}

TEST(Plan, RankAndServe) {
  init();
  const Catalog catalog = Catalog::built_in();
  PlanRequest r = request("resnet50", "");
  r.batch = 256;
  r.data = data_set("imagenet");
  r.epochs = 90;
  const std::vector<Ranked> by_cost = rank(r, catalog, RankBy::cost);
  EXPECT_GE(by_cost.size(), 40u);
  for (size_t i = 1; i < by_cost.size(); ++i) {
    if (by_cost[i].fits) {
      EXPECT_LE(by_cost[i - 1].usd, by_cost[i].usd);
    }
  }
  const std::vector<Ranked> by_time = rank(r, catalog, RankBy::time);
  EXPECT_LT(by_time[0].seconds, by_cost[0].seconds);
  EXPECT_TRUE(by_cost[0].pareto);
  EXPECT_TRUE(by_time[0].pareto);
  r.deadline = by_cost[0].seconds / 2;
  const std::vector<Ranked> soon = rank(r, catalog, RankBy::cost);
  EXPECT_LE(soon[0].seconds, r.deadline);
  const Plan none = make_plan(r, catalog);
  EXPECT_FALSE(none.gpu.name.empty());
  const Plan fleet = serve_plan(request("resnet50", "L4"), {.rps = 5000, .p99 = 0.05}, catalog);
  check(fleet);
  EXPECT_LE(fleet.at("serve.p99").value, 0.05);
  EXPECT_GE(fleet.at("serve.gpus").value * fleet.at("serve.rate").value, 5000);
  EXPECT_ERROR(Value, "take a faster GPU",
               serve_plan(request("llama:13b", "H100"), {.rps = 1, .p99 = 0.0001}, catalog));
}

// Without failures a run takes its work and its checkpoints; with them it agrees with the
// expectation of an exponential clock that starts over after each piece.
TEST(Plan, SpotSimulation) {
  const SpotResult calm = simulate_spot(36000, 3600, 10, 0, 300);
  EXPECT_NEAR(calm.mean, 36000 + 9 * 10, 1e-6);
  const double rate = 1.0 / 7200, restart = 300;
  const SpotResult r = simulate_spot(36000, 3600, 0, rate, restart, 20000);
  // E[time of a piece] = (e^(rate t) - 1) (1 / rate + restart), Daly 2006.
  const double expected = 10 * std::expm1(rate * 3600) * (1 / rate + restart);
  EXPECT_NEAR(r.mean / expected, 1, 0.02);
  EXPECT_GT(r.p90, r.mean);
}

TEST(PlanMustFail, TheNearestChoice) {
  init();
  const Catalog catalog = Catalog::built_in();
  EXPECT_ERROR(Value, "Did you mean 'resnet50'", find_job("resnet5O"));
  EXPECT_ERROR(Value, "sizes are llama:7b", find_job("llama:8b"));
  EXPECT_ERROR(Value, "Did you mean 'llama:7b'", find_job("llama:7B"));
  EXPECT_ERROR(Value, "Did you mean 'AdamW'", dry_run(find_job("lenet"), {.optimizer = "AdamWW"}));
  EXPECT_ERROR(Value, "Did you mean 'bf16'", precision_of("bf61"));
  const Plan p = make_plan(request("lenet", "T4"), catalog);
  EXPECT_ERROR(Value, "Did you mean 'memory'", p.at("memroy"));
  EXPECT_ERROR(Value, "Did you mean 'server.ram'", explain(p, "server.rma"));
}

// ---- ONNX files

// A net that was exported is planned as the net itself: parameters, FLOPs of a training step, and
// about its memory; and its gradients are those of the net.
TEST(Onnx, TrainingPlanOfAFile) {
  init();
  const std::string path = testing::TempDir() + "/plan_net.onnx";
  manual_seed(3);
  struct Net : nn::Module {
    nn::Conv2d conv{3, 8, 3};
    nn::BatchNorm2d norm{8};
    nn::Linear head{8, 5};
    Net() { TD_REGISTER(conv, norm, head); }
    Tensor forward(Tensor x) { return head(relu(norm(conv(x))).mean({2, 3})); }
  } net;
  net.eval();
  onnx::export_onnx(net, randn({1, 3, 16, 16}), path, {.dynamic = {{0, "n"}}});
  const Job job = find_job(path);
  EXPECT_EQ(job.unit, "samples");
  for (bool compiled : {false, true}) {
    const Workload w = dry_run(job, {.batch = 64, .compiled = compiled});
    EXPECT_EQ(w.parameters, 3 * 8 * 9 + 8 + 2 * 8 + 8 * 5 + 5);
    EXPECT_EQ(w.optimizer_bytes, 2 * w.weight_bytes);
    EXPECT_GT(w.flops(), 3 * 2.0 * 64 * 8 * 27 * 14 * 14 * 0.6);
    EXPECT_GT(w.memory.peak.of(MemoryCategory::activations), 64 * 8 * 14 * 14 * 4.0);
  }
  // Half the batch has half the activations; the plan adds up; 16-bit matmuls are planned too.
  PlanRequest r;
  r.job = job;
  r.gpu = "T4";
  r.batch = 64;
  r.precision = Precision::amp_f16;
  check(make_plan(r, Catalog::built_in()));
  r.job = find_job(path, {.loss = "mse"});
  check(make_plan(r, Catalog::built_in()));
  EXPECT_ERROR(Value, "Did you mean 'mse'",
               dry_run(find_job(path, {.loss = "msee"}), {.batch = 4}));
  // In training mode, batch statistics: the net's own gradients.
  net.train();
  const Tensor x = randn({4, 3, 16, 16});
  Tensor loss = net.forward(x).square().sum();
  loss.backward();
  const onnx::OnnxModel m = onnx::OnnxModel::load(path, {.trainable = true});
  std::vector<Tensor> in{x};
  std::vector<Param> weights;
  for (const auto& [name, value] : m.weights()) {
    weights.emplace_back(value.tensor().clone());
    in.push_back(weights.back().value());
  }
  Tensor again = m(in)[0].square().sum();
  EXPECT_NEAR(again.item<double>() / loss.item<double>(), 1, 1e-4);
  again.backward();
  double ours = 0, theirs = 0;
  for (const Param& p : net.parameters()) ours += p.grad().square().sum().item<double>();
  for (const Param& p : weights) {
    ASSERT_TRUE(p.grad().defined());
    theirs += p.grad().square().sum().item<double>();
  }
  EXPECT_NEAR(theirs / ours, 1, 1e-3);
}

TEST(Machine, ProfileOnDiskAndEvaluated) {
  MachineProfile m;
  m.cpu = "EPYC 7742 (test)";
  m.date = "2026-01-01";
  m.threads = 2;
  m.f32_flops = 1e11;
  m.bandwidth = m.cache_bandwidth = 2e10;
  m.disk_rate = 1e8;
  m.decode_seconds = 5e-3;
  m.launch_seconds = 1e-7;
  m.points = {{"compiled float32 conv", 1e9, 1e6, {10, 20, 30}, 1e-3}};
  const std::string text = to_json(m).dump();
  const MachineProfile again = machine_profile(io::parse_json(text, "t"), "t");
  EXPECT_EQ(to_json(again).dump(), text);
  // At a measured point the time is the measured one; twice the work takes about twice as long.
  Work k{"conv", 0, 1e9, 1e6};
  k.kind = "conv";
  k.sizes[0] = 10, k.sizes[1] = 20, k.sizes[2] = 30;
  EXPECT_NEAR(kernel_seconds(k, again, true), 1e-3, 1e-6);
  k.flops *= 2;
  EXPECT_NEAR(kernel_seconds(k, again, true), 2e-3, 2e-4);
  // Products far above 100 GFLOP/s are to be had of two cores of that chip; the disk is slow.
  const std::vector<MachineLine> lines = evaluate_machine(m, Catalog::built_in());
  ASSERT_GE(lines.size(), 6u);
  EXPECT_TRUE(lines[0].ok) << lines[0].expected;
  EXPECT_NE(lines[0].expected.find("EPYC 7002"), std::string::npos) << lines[0].expected;
  bool slow_disk = false;
  for (const MachineLine& l : lines) slow_disk |= l.what == "disk" && !l.ok && !l.advice.empty();
  EXPECT_TRUE(slow_disk);
}

}  // namespace
}  // namespace tandem::plan
