// SPDX-License-Identifier: Apache-2.0
// Plans: figures that add up, data that is checked, errors that name the nearest choice, and how
// far predictions are from published runs.
#include "tandem/plan/plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>

#include "tandem/interop/onnx.h"
#include "tandem/interop/onnx_export.h"
#include "tandem/plan/jobs.h"
#include "tandem/plan/machine.h"
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
  EXPECT_EQ(show(67200, "W"), "67200 W");
  EXPECT_EQ(show(2.5e9, "bit/s"), "2.50 Gbit/s");
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

// The largest batch fits and a larger one does not.
TEST(Plan, LargestBatch) {
  init();
  const Catalog catalog = Catalog::built_in();
  for (const char* model : {"resnet18", "gpt2:124m"}) {
    PlanRequest r = request(model, "T4");
    const Plan p = make_plan(r, catalog);
    const auto b = static_cast<int64_t>(p.at("batch.largest.gpu").value);
    ASSERT_GT(b, 0);
    r.batch = b;
    EXPECT_TRUE(make_plan(r, catalog).fits);
    r.batch = b + std::max<int64_t>(2, b / 20);
    const Plan more = make_plan(r, catalog);
    EXPECT_FALSE(more.fits);
    EXPECT_NE(more.notes[0].find("A batch of"), std::string::npos);
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
// expectation of an exponential clock that starts anew after each piece.
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
  interop::export_onnx(net, randn({1, 3, 16, 16}), path, {.dynamic = {{0, "n"}}});
  const Job job = find_job(path);
  EXPECT_EQ(job.unit, "samples");
  for (bool compiled : {false, true}) {
    const Workload w = dry_run(job, {.batch = 64, .compiled = compiled});
    EXPECT_EQ(w.parameters, 3 * 8 * 9 + 8 + 2 * 8 + 8 * 5 + 5);
    EXPECT_EQ(w.optimizer_bytes, 2 * w.weight_bytes);
    EXPECT_GT(w.flops(), 3 * 2.0 * 64 * 8 * 27 * 14 * 14 * 0.6);
    EXPECT_GT(w.peak.of(Cause::activations), 64 * 8 * 14 * 14 * 4.0);
  }
  // Half the batch has half the activations; the plan adds up; 16-bit products are planned too.
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
  const interop::OnnxModel m = interop::OnnxModel::load(path, {.trainable = true});
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

TEST(Machine, ProfileOnDiskAndJudged) {
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
  const std::vector<MachineLine> lines = judge_machine(m, Catalog::built_in());
  ASSERT_GE(lines.size(), 6u);
  EXPECT_TRUE(lines[0].ok) << lines[0].expected;
  EXPECT_NE(lines[0].expected.find("EPYC 7002"), std::string::npos) << lines[0].expected;
  bool slow_disk = false;
  for (const MachineLine& l : lines) slow_disk |= l.what == "disk" && !l.ok && !l.advice.empty();
  EXPECT_TRUE(slow_disk);
}

// ---- against published runs

// MosaicML's table of MPT runs: tokens per second and GPU, one constant per GPU type
// (data/hardware.json), none fitted per row.
double products(const Quantity& q) {
  double n = q.label.starts_with("products") ? q.value : 0;
  for (const Quantity& p : q.parts) n += products(p);
  return n;
}

TEST(Published, MosaicThroughput) {
  init();
  const Catalog catalog = Catalog::built_in();
  std::istringstream in(read_file("tests/plan/mosaic_runs.csv", size_t{1} << 20));
  std::map<std::string, Workload> known, narrow;
  std::vector<double> fullness;
  std::map<std::string, std::vector<double>> errors;
  std::vector<double> all;
  double fullest = 0;
  int too_large = 0;
  std::string line;
  while (std::getline(in, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> f;
    std::istringstream s(line);
    for (std::string x; std::getline(s, x, ',');) f.push_back(x);
    ASSERT_EQ(f.size(), 8u);
    const Gpu& gpu = catalog.gpu(f[0]);
    PlanRequest r;
    r.job = find_job("mpt:" + f[1], {.sequence = std::stoll(f[2])});
    r.compiled = false;
    r.sharding = 3;
    r.n = std::stoi(f[3]);
    r.accumulate = std::stoi(f[5]);
    r.recompute = f[6] == "1";
    const std::string key = f[1] + "," + f[2] + "," + f[4];
    auto at = known.find(key);
    if (at == known.end())
      at = known
               .emplace(key, dry_run(r.job, {.batch = std::stoll(f[4]),
                                             .compiled = false,
                                             .precision = r.precision}))
               .first;
    const Quantity rate = throughput(at->second, r, gpu, r.n);
    const double planned = rate.value / r.n;
    const double real = std::stod(f[7]);
    // Each of these runs did fit.
    // With its authors' settings: FSDP's full sharding, everything computed in bf16 ("PURE").
    r.precision = Precision::mixed_bf16;
    auto held = narrow.find(key);
    if (held == narrow.end())
      held = narrow
                 .emplace(key, dry_run(r.job, {.batch = std::stoll(f[4]),
                                               .compiled = false,
                                               .precision = r.precision}))
                 .first;
    const double full = memory_of(held->second, r, r.n).value / gpu.memory;
    fullest = std::max(fullest, full);
    fullness.push_back(full);
    too_large += full > 1.15;
    errors[f[0]].push_back(planned / real - 1);
    all.push_back(std::abs(planned / real - 1));
    if (std::getenv("TANDEM_SHOW"))
      print("{:50} memory {:.0f} % planned {:8.0f} {:+.1f} % of {}: products {}, step {}\n", line,
            100 * full, planned, 100 * (planned / real - 1), find(rate, "units.step")->value / r.n,
            products(*find(rate, "time.step")), find(rate, "time.step")->value);
  }
  EXPECT_EQ(all.size(), 191u);
  for (const auto& [gpu, e] : errors) {
    std::vector<double> a = e;
    for (double& x : a) x = std::abs(x);
    print("{:8} {:3} rows: median error {:+.1f} %, p90 {:.1f} %, most {:.1f} %\n", gpu, e.size(),
          100 * quantile(e, 0.5), 100 * quantile(a, 0.9), 100 * quantile(a, 1));
  }
  print("all {} rows: p90 {:.1f} %\n", all.size(), 100 * quantile(all, 0.9));
  print(
      "memory of the same runs, which did fit: {} above 1.15 times the GPU's, the fullest {:.0f} "
      "%\n",
      too_large, 100 * fullest);
  print("memory planned, of the GPU's: median {:.0f} %, p10 {:.0f} %, p90 {:.0f} %\n",
        100 * quantile(fullness, 0.5), 100 * quantile(fullness, 0.1),
        100 * quantile(fullness, 0.9));
  EXPECT_LE(quantile(all, 0.9), 0.20);
  // They fitted: nine of ten are planned to fit within 15 %, and so full that they are worth it.
  EXPECT_LE(quantile(fullness, 0.9), 1.15);
  EXPECT_GE(quantile(fullness, 0.5), 0.6);
}

// Parameters as their authors and torchvision state them; Adam in f32 keeps 12 bytes for each
// beside the gradient: weights and two moments.
TEST(Published, WeightsAndOptimizer) {
  init();
  const std::vector<std::pair<const char*, double>> kModels = {
      {"gpt2:124m", 124439808},       {"gpt2:medium", 354823168},   {"gpt2:large", 774030080},
      {"gpt2:xl", 1557611200},        {"llama:7b", 6738415616},     {"llama3:8b", 8030261248},
      {"llama3:1b", 1235814400},      {"llama3:3b", 3212749824},    {"mistral:7b", 7241732096},
      {"tinyllama:1.1b", 1100048384}, {"smollm:135m", 134515008},   {"bert:base", 109514298},
      {"t5:small", 60506624},         {"t5:base", 222903552},       {"t5:large", 737668096},
      {"resnet50", 25557032},         {"resnet101", 44549160},      {"vit_b_16", 86567656},
      {"convnext_base", 88591464},    {"efficientnet_b4", 19341616}};
  for (const auto& [name, parameters] : kModels) {
    const Workload w = dry_run(find_job(name), {.batch = 1, .compiled = false});
    EXPECT_NEAR((w.weight_bytes + w.optimizer_bytes) / (12 * parameters), 1, 0.01) << name;
  }
}

// ---- against this machine

// 40 configurations: what a dry run says the allocator will hold, and what it holds.
TEST(Measured, MemoryOfThisMachine) {
  init();
  struct Family {
    const char* model;
    JobOptions options;
    std::vector<int64_t> batches;
  };
  const std::string vit =
      R"({"model_type":"vit","architectures":["ViTForImageClassification"],"hidden_size":192,
          "intermediate_size":768,"num_hidden_layers":4,"num_attention_heads":3,"patch_size":8,
          "image_size":64,"num_labels":100})";
  const std::string llama =
      R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":256,
          "intermediate_size":688,"num_hidden_layers":4,"num_attention_heads":8,
          "num_key_value_heads":4,"vocab_size":8000,"max_position_embeddings":512})";
  std::vector<std::pair<std::string, Job>> jobs = {
      {"resnet18", find_job("resnet18", {.image_size = 64})},
      {"mobilenet_v2", find_job("mobilenet_v2", {.image_size = 64})},
      {"vit", job_of_config(vit, "vit", {.image_size = 64})},
      {"llama", job_of_config(llama, "llama", {.sequence = 128})}};
  std::vector<double> errors;
  for (const auto& [name, job] : jobs)
    for (bool compiled : {false, true})
      for (int variant = 0; variant < 5; ++variant) {
        WorkOptions o{.batch = variant == 0   ? 4
                               : variant == 1 ? 8
                                              : 6,
                      .compiled = compiled,
                      .precision = variant == 3 ? Precision::amp_bf16 : Precision::f32,
                      .optimizer = variant == 4 ? "SGD-momentum" : "AdamW",
                      .this_backend = true};
        if (variant == 2) o.batch = 12;
        const double planned = dry_run(job, o).host_peak;
        const double real = measure(job, o, 0).peak_bytes;
        errors.push_back(std::abs(planned / real - 1));
        if (std::getenv("TANDEM_SHOW") || errors.back() > 0.05)
          print("{} {} batch {} {} {}: planned {:.1f} MB, measured {:.1f} MB, {:+.2f} %\n", name,
                compiled ? "compiled" : "eager", o.batch, to_string(o.precision), o.optimizer,
                planned / 1e6, real / 1e6, 100 * (planned / real - 1));
      }
  ASSERT_EQ(errors.size(), 40u);
  print("memory of 40 configurations: median error {:.2f} %, p90 {:.2f} %, most {:.2f} %\n",
        100 * quantile(errors, 0.5), 100 * quantile(errors, 0.9), 100 * quantile(errors, 1));
  EXPECT_LE(quantile(errors, 0.9), 0.05);
}

}  // namespace
}  // namespace tandem::plan
