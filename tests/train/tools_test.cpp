// SPDX-License-Identifier: Apache-2.0
// The Trainer's tools besides fit(): the learning-rate sweep, the search for a batch size, float16
// with a scaler, a look at every layer, and the cost figures of a run.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/base/files/folder.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"
#include "tests/support/states.h"
#include "tests/train/digits.h"

namespace tandem::train {
namespace {

struct ToolsNet : nn::Module {
  nn::Linear fc1{64, 48}, fc2{48, 10};
  nn::Dropout drop{0.2};
  ToolsNet() { TD_REGISTER(fc1, drop, fc2); }
  Tensor forward(Tensor x) { return fc2(drop(relu(fc1(x.flatten(1))))); }
};

TEST(LRFind, SuggestsARateAndPutsEverythingBack) {
  manual_seed(1);
  ScheduledWork<ToolsNet> run;
  Trainer trainer(run.net, loss_of, run.opt, {.max_epochs = 2, .progress = false});
  trainer.schedule(run.cosine);
  auto p = digits(true);
  trainer.fit(p);  // so that there are moments, a place in the data and a schedule to put back
  const StateDict net = run.net.state_dict(), opt = run.opt.state_dict();
  const GeneratorState rng = generator_state();
  const data::PipelineState at = p.state();
  const LRFindResult r = trainer.lr_find(p, {.start = 1e-6, .end = 100, .steps = 80});
  EXPECT_TRUE(r.diverged);
  EXPECT_LT(r.rates.size(), 80u);
  ASSERT_EQ(r.rates.size(), r.losses.size());
  EXPECT_DOUBLE_EQ(r.rates[0], 1e-6);
  EXPECT_NEAR(r.rates[1] / r.rates[0], std::pow(1e8, 1.0 / 79), 1e-9);
  expect_same(run.net.state_dict(), net, "net");
  expect_same(run.opt.state_dict(), opt, "optimizer");
  EXPECT_EQ(generator_state().offset, rng.offset);
  EXPECT_EQ(p.state().epoch, at.epoch);
  EXPECT_EQ(p.state().position, at.position);
  // From fresh weights: the rate is one that learns.
  manual_seed(2);
  ToolsNet fresh;
  optim::SGD sgd(fresh.parameters(), {.lr = 1e-9});
  Trainer second(fresh, loss_of, sgd, {.max_epochs = 3, .progress = false});
  const LRFindResult s = second.lr_find(digits(true), {.start = 1e-4, .end = 100});
  EXPECT_GT(s.suggestion, 1e-3);
  EXPECT_LT(s.suggestion, 10);
  EXPECT_LE(s.suggestion, s.lowest);
  sgd.set_lr(s.suggestion);
  second.fit(digits(true));
  EXPECT_LT(find_log(second.history().back().logs, "train/loss"), 1.2);
}

// In a manual loop: a parabola whose best rate is known. sgd on a x^2 / 2 diverges from 2 / a
// on.
TEST(LRFind, InAManualLoop) {
  nn::Linear net(1, 1, {.bias = false});
  net.weight.assign_(full({1, 1}, 3.0));
  optim::SGD sgd(net.parameters(), {.lr = 1});
  auto p =
      data::AnyPipeline(data::pipeline(data::TensorDataset(ones({4, 1}), zeros({4}))).batch(4));
  RunParts parts{.model = &net, .optimizer = &sgd, .data = &p};
  const LRFindResult r = lr_find(parts,
                                 [&](const Batch& b) {
                                   sgd.zero_grad();
                                   Tensor loss = 2.0 * square(net(b[0])).mean();  // a = 4
                                   loss.backward();
                                   sgd.step();
                                   return loss.item<double>();
                                 },
                                 {.start = 1e-3, .end = 10, .steps = 60, .smoothing = 0});
  EXPECT_TRUE(r.diverged);
  EXPECT_GT(r.lowest, 0.1);
  EXPECT_LT(r.rates.back(), 3);
  EXPECT_GT(r.rates.back(), 0.5);
  EXPECT_EQ(net.weight.value().item<float>(), 3.0f);
  EXPECT_EQ(sgd.lr(), 1);
  const std::string what =
      error_of([&] { lr_find(parts, [](const Batch&) { return 0.0; }, {.start = 1, .end = 0.1}); });
  EXPECT_NE(what.find("expects 0 < start < end"), what.npos) << what;
  // An error in the middle restores the state too.
  EXPECT_NE(error_of([&] {
              lr_find(parts, [&](const Batch&) -> double {
                net.weight.assign_(full({1, 1}, 9.0));
                TD_FAIL(Value, "broken step");
              });
            }).find("broken step"),
            std::string::npos);
  EXPECT_EQ(net.weight.value().item<float>(), 3.0f);
}

TEST(FindBatch, DoublesUntilItIsToldToStop) {
  std::vector<int64_t> seen;
  auto none = [&](int64_t n) {
    seen.push_back(n);
    return n <= 40;
  };
  FindBatchResult r = find_batch(none, {.start = 1, .runs = 1});
  EXPECT_EQ(r.largest, 32);
  EXPECT_EQ(r.reason, "samples");
  EXPECT_EQ(seen, (std::vector<int64_t>{1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 32, 32, 64}));
  r = find_batch([](int64_t) { return true; }, {.start = 3, .largest = 50, .runs = 1});
  EXPECT_EQ(r.largest, 48);
  EXPECT_EQ(r.reason, "largest");
  // Memory: an error of the allocator, or an estimate that predicts it.
  r = find_batch(
      [](int64_t n) {
        TD_CHECK(n < 8, Memory, "no room");
        return true;
      },
      {.runs = 1});
  EXPECT_EQ(r.largest, 4);
  EXPECT_EQ(r.reason, "memory");
  r = find_batch(
      [](int64_t n) {
        const Tensor t = zeros({n, 1 << 20});  // 4 MiB a sample
        return t.numel() > 0;
      },
      {.runs = 1, .memory_limit = allocator_stats().in_use + (100 << 20)});
  EXPECT_EQ(r.largest, 16);
  EXPECT_EQ(r.reason, "memory");
  EXPECT_GE(r.tried.back().peak_bytes, 64 << 20);
  EXPECT_THROW(find_batch([](int64_t) -> bool { TD_FAIL(Value, "broken"); }), Error);

  manual_seed(1);
  ScheduledWork<ToolsNet> run;
  Trainer trainer(run.net, loss_of, run.opt, {.progress = false});
  const StateDict net = run.net.state_dict(), opt = run.opt.state_dict();
  r = trainer.find_batch([](int64_t n) { return data::AnyPipeline(digits(true, n)); },
                         {.start = 64});
  EXPECT_EQ(r.largest, 1024);  // of 1,437 samples
  EXPECT_EQ(r.reason, "samples");
  EXPECT_GE(r.fastest, r.suggestion);
  for (const BatchFigures& f : r.tried) EXPECT_GT(f.samples_per_second, 0) << f.size;
  expect_same(run.net.state_dict(), net, "net");
  expect_same(run.opt.state_dict(), opt, "optimizer");
}

TEST(Trainer, Float16WithAScaler) {
  for (bool compiled : {true, false}) {
    manual_seed(1);
    ScheduledWork<ToolsNet> run;
    TempFolder f;
    TrainerOptions o{.max_epochs = 3,
                     .clip_norm = 1.0,
                     .compile = compiled,
                     .precision = TrainPrecision::fp16,
                     .scaler = {.init_scale = 1e9, .growth_interval = 20},
                     .metrics = {"accuracy"},
                     .folder = f / "run",
                     .progress = false};
    Trainer trainer(run.net, loss_of, run.opt, o);
    const FitResult r = trainer.fit(digits(true));
    EXPECT_GT(r.overflows, 0);  // the first scales are too large
    EXPECT_EQ(r.skipped, 0);
    EXPECT_LT(trainer.scaler()->get_scale(), 1e9);
    EXPECT_GT(find_log(r.logs, "train/accuracy"), 0.85) << compiled;
    EXPECT_TRUE(isfinite(run.net.fc1.weight.value()).all().item<bool>());
    // A resumed run restores the scale.
    ScheduledWork<ToolsNet> again;
    TrainerOptions more = o;
    more.max_epochs = 4;
    Trainer second(again.net, loss_of, again.opt, more);
    const double scale = trainer.scaler()->get_scale();
    bool seen = false;
    second.add(std::make_shared<LambdaCallback>(LambdaCallbackOptions{
        .on_train_begin = [&](Trainer& t) { seen = t.scaler()->get_scale() == scale; }}));
    second.fit(digits(true));
    EXPECT_TRUE(seen);
    EXPECT_EQ(second.step(), 4 * 23);
  }
}

TEST(LayerFigures, OfAModelWithDeadUnits) {
  manual_seed(3);
  ToolsNet net;
  data::Digits d;
  // Three units that no sample activates, and a weight that is not finite.
  std::vector<float> bias = net.fc1.bias.value().to_vector<float>();
  bias[5] = bias[6] = bias[40] = -100;
  net.fc1.bias.assign_(tensor(bias));
  const GeneratorState rng = generator_state();
  const Tensor x = d.x().narrow(0, 0, 200), y = d.y().narrow(0, 0, 200);
  const ModelFigures m = model_figures(net, [&] { return cross_entropy(net(x), y); });
  EXPECT_EQ(generator_state().offset, rng.offset);
  EXPECT_TRUE(net.is_training());
  EXPECT_FALSE(net.fc1.weight.grad().defined());
  ASSERT_EQ(m.layers.size(), 4u);
  EXPECT_EQ(m.layers[1].path, "fc1");
  EXPECT_EQ(m.layers[1].type, "Linear");
  EXPECT_EQ(m.layers[1].output, Shape(200, 48));
  EXPECT_EQ(m.layers[1].parameters, 65 * 48);
  EXPECT_EQ(m.layers[3].parameters, 490);
  EXPECT_EQ(m.parameters, 65 * 48 + 490);
  EXPECT_GT(m.layers[1].flops, 2.0 * 200 * 64 * 48);
  EXPECT_GT(m.layers[1].seconds, 0);
  ASSERT_EQ(m.rectifiers.size(), 1u);
  EXPECT_EQ(m.rectifiers[0].op, "relu");
  EXPECT_EQ(m.rectifiers[0].units, 48);
  ToolsNet evaluate = net;
  evaluate.eval();
  const Tensor alive = relu(evaluate.fc1(x.flatten(1))).detach().amax({0}) > 0.0;
  const auto dead = 48 - static_cast<int64_t>(alive.to(float64).sum().item<double>());
  EXPECT_GE(dead, 3);
  EXPECT_LT(dead, 12);
  EXPECT_EQ(m.rectifiers[0].dead_units, dead);
  EXPECT_GT(m.rectifiers[0].zeros, 3.0 / 48);
  // Against plain sums.
  net.eval();
  NoGradGuard no_grad;
  const Tensor h = net.fc1(x.flatten(1)), w = net.fc1.weight.value();
  EXPECT_NEAR(m.layers[1].activation.mean, h.mean().item<float>(), 1e-5);
  EXPECT_NEAR(m.layers[1].activation.low, h.amin().item<float>(), 1e-5);
  const ValueFigures v = value_figures({w, tensor({0.0f, INFINITY, NAN})});
  EXPECT_EQ(v.nonfinite, 2);
  EXPECT_EQ(v.count, w.numel() + 3);
  EXPECT_NEAR(v.high, w.amax().item<float>(), 1e-6);
  EXPECT_NEAR(v.zeros, 1.0 / static_cast<double>(w.numel() + 1), 1e-9);
  EXPECT_GT(m.gradient_norm, 0);
  const io::Json j = to_json(m);
  EXPECT_EQ(*j.find("rectifiers")->as_array()->at(0).find("dead_units")->as_int(), dead);
}

// A recurrent layer's forward does not take one tensor: its parameters are counted all the same.
TEST(LayerFigures, OfLayersWithoutHooks) {
  struct Recurrent : nn::Module {
    nn::LSTM lstm{4, 8, {.batch_first = true}};
    nn::Linear out{8, 2};
    Recurrent() { TD_REGISTER(lstm, out); }
    Tensor forward(Tensor x) { return out(lstm(x).h[0]); }
  } net;
  const ModelFigures m = model_figures(net,
                                       [&] {
                                         return net(randn({3, 5, 4})).sum();
                                       },
                                       {.statistics = false});
  int64_t sum = 0;
  for (const LayerFigures& f : m.layers) sum += f.parameters;
  EXPECT_EQ(sum, net.num_parameters());
  EXPECT_FALSE(m.layers[1].called);
  EXPECT_TRUE(m.layers[2].called);
}

TEST(Resources, EnergyByCountersAndByTheModel) {
  TempFolder f;
  auto put = [&](const std::string& zone, const char* file, const char* text) {
    make_folders(f / zone);
    write_file(f / zone + "/" + file, text);
  };
  put("intel-rapl:0", "energy_uj", "1000000\n");
  put("intel-rapl:0", "max_energy_range_uj", "5000000\n");
  put("intel-rapl:1", "energy_uj", "4000000\n");
  put("intel-rapl:1", "max_energy_range_uj", "5000000\n");
  put("intel-rapl:0:0", "energy_uj", "7\n");  // a part of package 0: not counted again
  put("intel-rapl:0:0", "max_energy_range_uj", "5000000\n");
  runs::EnergyMeter meter({.counters = f / ""});
  put("intel-rapl:0", "energy_uj", "1500000\n");
  put("intel-rapl:1", "energy_uj", "500000\n");  // it wrapped
  runs::Energy e = meter.read();
  EXPECT_TRUE(e.measured);
  EXPECT_NEAR(e.joules, 0.5 + 1.5, 1e-9);
  EXPECT_EQ(e.source, "RAPL, 2 package(s)");
  put("intel-rapl:1", "energy_uj", "unreadable\n");
  e = meter.read();
  EXPECT_FALSE(e.measured);
  EXPECT_EQ(e.source.rfind("modelled: ", 0), 0u) << e.source;
  runs::EnergyMeter model({.counters = f / "nothing here", .watts_per_core = 20});
  const double before = runs::process_seconds();
  double sum = 0;
  for (int i = 0; i < 20'000'000; ++i) sum += std::sqrt(i);
  EXPECT_GT(sum, 0);
  const double spent = runs::process_seconds() - before;
  e = model.read();
  EXPECT_FALSE(e.measured);
  EXPECT_GE(e.joules, 20 * spent * 0.9);
  EXPECT_GT(runs::peak_resident_bytes(), 1 << 20);
  EXPECT_GE(runs::peak_resident_bytes(), runs::resident_bytes() / 2);
}

}  // namespace
}  // namespace tandem::train
