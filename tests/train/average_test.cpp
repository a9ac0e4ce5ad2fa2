// SPDX-License-Identifier: Apache-2.0
// Averages of the weights in the Trainer: they equal averages computed by hand, validation and the
// final weights use them, an interrupted run ends with the same bits, and SWA's batch norms hold
// the statistics of its own weights.
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>

#include "tandem/base/files/folder.h"
#include "tandem/tandem.h"
#include "tandem/train/callbacks.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"
#include "tests/support/states.h"
#include "tests/train/digits.h"

namespace tandem::train {
namespace {

struct AverageNet : nn::Module {
  nn::Linear fc1{64, 24};
  nn::BatchNorm1d norm{24};
  nn::Dropout drop{0.1};
  nn::Linear fc2{24, 10};
  AverageNet() { TD_REGISTER(fc1, norm, drop, fc2); }
  Tensor forward(Tensor x) { return fc2(drop(relu(norm(fc1(x.flatten(1)))))); }
};

struct AverageCase {
  const char* name;
  AverageOptions average;
};
const std::vector<AverageCase>& average_cases() {
  static const std::vector<AverageCase> all = {
      {"none", {}},
      {"ema", {.type = AverageKind::ema, .decay = 0.95}},
      {"ema_plain", {.type = AverageKind::ema, .decay = 0.9, .warmup = false, .every = 3}},
      {"ema_buffers", {.type = AverageKind::ema, .decay = 0.9, .start = 0.4, .buffers = true}},
      {"swa", {.type = AverageKind::swa, .start = 0.25}},
      {"swa_steps", {.type = AverageKind::swa, .every = 5, .start = 0.5}},
      {"swa_buffers", {.type = AverageKind::swa, .start = 0.5, .buffers = true}},
  };
  return all;
}

// The averaged values, from a callback that knows nothing of the Trainer's own average.
struct ByHand : Callback {
  AverageOptions o;
  int64_t total;
  optim::WeightAverage average;
  ByHand(AverageNet& net, const AverageOptions& o, int64_t total)
      : o(o),
        total(total),
        average(net, {.decay = o.type == AverageKind::ema ? std::optional<double>(o.decay)
                                                          : std::optional<double>(),
                      .use_buffers = o.buffers,
                      .warmup = o.type == AverageKind::ema && o.warmup}) {}
  bool from(int64_t step) const {
    const double start = o.start >= 0 ? o.start : o.type == AverageKind::swa ? 0.75 : 0.0;
    return static_cast<double>(step) >= start * static_cast<double>(total);
  }
  void step_end(Trainer& t, const Logs&) override {
    const int64_t every = o.every >= 0 ? o.every : o.type == AverageKind::ema ? 1 : 0;
    if (every > 0 ? t.step() % every == 0 : t.step() % 23 == 0)
      if (from(t.step())) average.update();
  }
  const char* name() const override { return "ByHand"; }
};

TEST(Average, EqualsOneMadeByHand) {
  for (const AverageCase& c : average_cases()) {
    if (c.average.type == AverageKind::none) continue;
    manual_seed(1);
    Work<AverageNet> run;
    Trainer trainer(
        run.net, loss_of, run.opt,
        {.max_epochs = 3, .metrics = {"accuracy"}, .progress = false, .average = c.average});
    auto hand = std::make_shared<ByHand>(run.net, c.average, 69);
    trainer.add(hand);
    const FitResult r = trainer.fit(digits(true), digits(false));
    ASSERT_GT(hand->average.count(), 0) << c.name;
    const StateDict want = optim::WeightAverage::weights_of(hand->average.state_dict());
    const StateDict got = run.net.state_dict();
    for (const auto& [name, value] : want) {
      const bool renewed = c.average.type == AverageKind::swa && !c.average.buffers &&
                           name.find("running_") != name.npos;
      const bool counted = name.find("num_batches") != name.npos;
      if (!renewed && !counted) {
        EXPECT_TRUE(equal(got.at(name), value)) << c.name << ": " << name;
      }
    }
    // What fit() evaluated last is what it leaves, except for refreshed statistics.
    if (c.average.type == AverageKind::ema) {
      EXPECT_EQ(find_log(trainer.validate(digits(false)), "val/loss"), find_log(r.logs, "val/loss"))
          << c.name;
    }
    EXPECT_GT(find_log(trainer.validate(digits(false)), "val/accuracy"), 0.85) << c.name;
    // A second fit() continues with the trained weights, not with their average.
    trainer.options().max_epochs = 4;
    auto more = digits(true);
    more.set_epoch(3);
    EXPECT_EQ(trainer.fit(more, digits(false)).steps, 92) << c.name;
  }
}

TEST(Average, SwaHasTheStatisticsOfItsOwnWeights) {
  manual_seed(1);
  Work<AverageNet> run;
  Trainer trainer(
      run.net, loss_of, run.opt,
      {.max_epochs = 3, .progress = false, .average = {.type = AverageKind::swa, .start = 0.3}});
  trainer.fit(digits(true));
  auto plain = digits(true);
  std::vector<Tensor> hidden;
  NoGradGuard no_grad;
  run.net.eval();
  for (int64_t i = 0; i < plain.size(); ++i)
    hidden.push_back(run.net.fc1(plain.fields(i)[0].flatten(1)).mean({0}));
  EXPECT_TRUE(allclose(run.net.norm.running_mean.value(), stack(hidden).mean({0}), 1e-4, 1e-4));
}

// Stops as StopAt does, while the validation of a step runs.
struct StopInValidation : Callback {
  int64_t at;
  explicit StopInValidation(int64_t at) : at(at) {}
  void validation_begin(Trainer& t) override {
    if (t.step() == at) std::raise(SIGTERM);
  }
  const char* name() const override { return "StopInValidation"; }
};

// Averages, validations by steps, limits: whatever is switched on, an interrupted run (even in the
// middle of a validation) ends like the undisturbed one.
TEST(Average, ResumesExactlyWithEveryOption) {
  struct Setting {
    std::string name;
    TrainerOptions o;
  };
  std::vector<Setting> settings;
  for (const AverageCase& c : average_cases()) settings.push_back({c.name, {.average = c.average}});
  settings.push_back({"val_steps", {.validation = {.every_steps = 10}}});
  settings.push_back({"val_steps_ema",
                      {.validation = {.every_steps = 10}, .average = average_cases()[1].average}});
  settings.push_back({"limits", {.limits = {.train_batches = 9, .val_batches = 1}}});
  settings.push_back({"overfit", {.debug = {.overfit_batches = 4}}});
  settings.push_back({"max_steps", {.max_steps = 40, .accumulate = 2}});
  for (Setting& s : settings) {
    auto fit = [&](const std::string& folder, std::vector<std::shared_ptr<Callback>> callbacks,
                   StateDict* weights, StateDict* trained) {
      manual_seed(1);
      Work<AverageNet> run;
      TrainerOptions o = s.o;
      o.max_epochs = 4;
      o.metrics = {"accuracy"};
      o.folder = folder;
      o.saving.every_steps = 20;
      o.progress = false;
      optim::CosineAnnealingLR cosine(run.opt, {.T_max = 92});
      Trainer t(run.net, loss_of, run.opt, o);
      t.schedule(cosine);
      auto stop = std::make_shared<EarlyStopping>(EarlyStoppingOptions{
          .monitor = "val/loss", .patience = 3, .restore_best_weights = false});
      t.add(stop);
      for (auto& c : callbacks) t.add(c);
      FitResult r = t.fit(digits(true), digits(false));
      if (weights) *weights = run.net.state_dict();
      if (trained) *trained = run.opt.state_dict();
      return r;
    };
    TempFolder f;
    StateDict want, want_opt;
    auto none = [] { return std::make_shared<StopAt>(-1); };
    const FitResult whole = fit(f / "whole", {none()}, &want, &want_opt);
    std::vector<std::pair<std::string, std::shared_ptr<Callback>>> cuts;
    for (const int64_t at : {7})
      cuts.emplace_back(fmt::format("step{}", at), std::make_shared<StopAt>(at));
    const int64_t evaluated = s.o.validation.every_steps > 0  ? 10
                              : s.o.limits.train_batches > 0  ? 9
                              : s.o.debug.overfit_batches > 0 ? 4
                              : s.o.accumulate > 1            ? 12
                                                              : 23;
    cuts.emplace_back("validation", std::make_shared<StopInValidation>(evaluated));
    cuts.emplace_back("last", std::make_shared<StopInValidation>(whole.steps));
    for (auto& [name, cut] : cuts) {
      const std::string folder = f / name, what = s.name + " " + name;
      const FitResult first = fit(folder, {cut}, nullptr, nullptr);
      EXPECT_TRUE(first.interrupted) << what;
      EXPECT_EQ(read_file(folder + "/STATUS"), "interrupted\n") << what;
      StateDict got, got_opt;
      const FitResult r = fit(folder, {none()}, &got, &got_opt);
      EXPECT_EQ(r.steps, whole.steps) << what;
      EXPECT_FALSE(r.interrupted) << what;
      expect_same(got, want, what);
      expect_same(got_opt, want_opt, what);
      ASSERT_EQ(r.logs.size(), whole.logs.size()) << what;
      for (size_t i = 0; i < r.logs.size(); ++i) EXPECT_EQ(r.logs[i], whole.logs[i]) << what;
    }
  }
}

TEST(Average, KerasNameAndCheckpoints) {
  TempFolder f;
  manual_seed(1);
  Work<AverageNet> run;
  Trainer trainer(
      run.net, loss_of, run.opt,
      {.max_epochs = 2, .metrics = {"accuracy"}, .folder = f / "run", .progress = false});
  trainer.add(std::make_shared<SwapEMAWeights>(0.9));
  trainer.add(std::make_shared<ModelCheckpoint>(f / "w.safetensors"));
  const FitResult r = trainer.fit(digits(true), digits(false));
  EXPECT_EQ(trainer.options().average.type, AverageKind::ema);
  expect_same(load(f / "w.safetensors"), run.net.state_dict(), "what a callback saves");
  const std::optional<Snapshot> last = Checkpoints(f / "run/checkpoints").load_latest();
  ASSERT_TRUE(last);
  expect_same(weights_of(*last), run.net.state_dict(), "what a checkpoint predicts with");
  EXPECT_FALSE(equal(last->model.at("fc1.weight"), run.net.fc1.weight.value()));
  ASSERT_TRUE(trainer.load_best());
  EXPECT_GE(find_log(trainer.validate(digits(false)), "val/accuracy"),
            find_log(r.logs, "val/accuracy"));
}

TEST(Average, WrongSettingsAreNamed) {
  const std::pair<AverageOptions, const char*> kCases[] = {
      {{.type = AverageKind::ema, .decay = 1.5}, "expects decay in 0..1, got 1.5"},
      {{.type = AverageKind::swa, .start = 2}, "a start from 0 to 1"},
      {{.type = AverageKind::swa, .every = -3}, "average expects every >= 0"},
  };
  for (const auto& [o, want] : kCases) {
    Work<AverageNet> run;
    Trainer t(run.net, loss_of, run.opt, {.max_epochs = 1, .progress = false, .average = o});
    const std::string what = error_of([&] { t.fit(digits(true)); });
    EXPECT_NE(what.find(want), what.npos) << what;
  }
}

}  // namespace
}  // namespace tandem::train
