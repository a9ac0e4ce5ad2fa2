// SPDX-License-Identifier: Apache-2.0
// The Trainer: it learns, equals a manual loop bit for bit, resumes exactly from any step, names
// the source of a NaN, and its callbacks do what they are named after.
#include "tandem/train/trainer.h"

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

struct TrainerNet : nn::Module {
  nn::Linear fc1{64, 48}, fc2{48, 10};
  nn::Dropout drop{0.1};
  TrainerNet() { TD_REGISTER(fc1, drop, fc2); }
  Tensor forward(Tensor x) { return fc2(drop(relu(fc1(x.flatten(1))))); }
};

TEST(Trainer, LearnsAndEqualsALoopByHand) {
  manual_seed(1);
  ScheduledWork<TrainerNet> hand;
  auto batches = digits(true);
  auto step = compile([&](Tensor x, Tensor y) {
    hand.opt.zero_grad();
    Tensor loss = cross_entropy(hand.net(x), y);
    loss.backward();
    Tensor norm = optim::clip_grad_norm_(hand.opt.params(), 1.0);
    hand.opt.step();
    return loss;
  });
  for (int epoch = 0; epoch < 4; ++epoch)
    for (const auto& [x, y] : batches) {
      step(x, y);
      hand.cosine.step();
    }
  for (bool compiled : {true, false}) {
    manual_seed(1);
    ScheduledWork<TrainerNet> run;
    Trainer trainer(run.net, loss_of, run.opt,
                    {.max_epochs = 4,
                     .clip_norm = 1.0,
                     .compile = compiled,
                     .metrics = {"accuracy", "f1"},
                     .progress = false});
    trainer.schedule(run.cosine);
    FitResult r = trainer.fit(digits(true), digits(false));
    EXPECT_EQ(r.reason, "done");
    EXPECT_EQ(r.epochs, 4);
    EXPECT_EQ(r.steps, 4 * 23);
    EXPECT_GT(find_log(r.logs, "val/accuracy"), 0.9);
    EXPECT_GT(find_log(r.logs, "train/f1"), 0.9);
    expect_same(run.net.state_dict(), hand.net.state_dict(), compiled ? "compiled" : "eager");
    // validate() and predict() agree with the model itself.
    run.net.eval();
    NoGradGuard no_grad;
    data::Digits test({.train = false});
    Tensor want = run.net(test.x());
    EXPECT_TRUE(allclose(trainer.predict(digits(false)), want, 1e-5, 1e-5));
    double hits = (want.argmax(1) == test.y()).to(float64).mean().item<double>();
    EXPECT_NEAR(find_log(trainer.validate(digits(false)), "val/accuracy"), hits, 1e-9);
  }
}

TEST(Trainer, AccumulationEqualsALargeBatch) {
  auto run_with = [](int64_t batch, int64_t accumulate) {
    manual_seed(1);
    nn::Linear net(64, 10);
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    auto p = data::pipeline(data::Digits(), {.seed = 4}).take(256).batch(batch);
    Trainer trainer(net,
                    [&](const Batch& b) {
                      Tensor out = net(b[0].flatten(1));
                      return StepOutput{cross_entropy(out, b[1]), out, b[1]};
                    },
                    opt, {.max_epochs = 2, .accumulate = accumulate, .progress = false});
    FitResult r = trainer.fit(p);
    EXPECT_EQ(r.steps, 2 * 256 / batch / accumulate);
    return net.weight.value();
  };
  EXPECT_TRUE(allclose(run_with(32, 4), run_with(128, 1), 1e-5, 1e-6));
}

TEST(Trainer, ResumesExactly) {
  auto make = [](ScheduledWork<TrainerNet>& run, const std::string& folder) {
    auto t = std::make_unique<Trainer>(run.net, loss_of, run.opt,
                                       TrainerOptions{.max_epochs = 3,
                                                      .metrics = {"accuracy"},
                                                      .folder = folder,
                                                      .progress = false,
                                                      .saving = {.every_steps = 5}});
    t->schedule(run.cosine);
    return t;
  };
  TempFolder f;
  manual_seed(1);
  ScheduledWork<TrainerNet> whole;
  FitResult want = make(whole, f / "whole")->fit(digits(true), digits(false));
  EXPECT_EQ(read_file(f / "whole/STATUS"), "done\n");
  for (int64_t stop : {1, 7, 22, 23, 24, 45, 46}) {
    const std::string folder = f / fmt::format("r{}", stop);
    const bool signal = stop % 2 == 1;
    {
      manual_seed(1);
      ScheduledWork<TrainerNet> run;
      auto t = make(run, folder);
      t->add(std::make_shared<StopAt>(stop, signal));
      FitResult r = t->fit(digits(true), digits(false));
      EXPECT_EQ(r.interrupted, signal);
      EXPECT_EQ(r.steps, stop);
      EXPECT_EQ(read_file(folder + "/STATUS"), signal ? "interrupted\n" : "done\n");
    }
    manual_seed(77);
    ScheduledWork<TrainerNet> run;
    auto t = make(run, folder);
    t->add(std::make_shared<StopAt>(-1, false));
    FitResult r = t->fit(digits(true), digits(false));
    EXPECT_EQ(r.steps, want.steps);
    expect_same(run.net.state_dict(), whole.net.state_dict(), "net");
    expect_same(run.opt.state_dict(), whole.opt.state_dict(), "optimizer");
    ASSERT_EQ(r.logs.size(), want.logs.size());
    for (size_t i = 0; i < r.logs.size(); ++i)
      EXPECT_EQ(r.logs[i], want.logs[i]) << stop << " " << want.logs[i].first;
  }
  // A finished run stays finished.
  manual_seed(5);
  ScheduledWork<TrainerNet> again;
  EXPECT_EQ(make(again, f / "whole")->fit(digits(true), digits(false)).steps, want.steps);
  expect_same(again.net.state_dict(), whole.net.state_dict(), "again");
}

TEST(Trainer, NamesWhatMadeANaN) {
  TempFolder f;
  data::Digits d({.train = true});
  std::vector<float> pixels = d.x().to_vector<float>();
  for (size_t k = 0; k < 64; ++k) pixels[100 * 64 + k] = -INFINITY;  // sample 100 is broken
  data::TensorDataset broken(tensor(pixels, d.x().shape()), d.y());
  for (OnNonFinite mode : {OnNonFinite::stop, OnNonFinite::skip}) {
    manual_seed(1);
    ScheduledWork<TrainerNet> run;
    Trainer trainer(run.net, loss_of, run.opt,
                    {.max_epochs = 1,
                     .on_nonfinite = mode,
                     .folder = f / fmt::format("{}", static_cast<int>(mode)),
                     .progress = false});
    auto p = data::pipeline(broken, {.seed = 4}).shuffle().batch(16);
    if (mode == OnNonFinite::skip) {
      FitResult r = trainer.fit(p);
      EXPECT_EQ(r.skipped, 1);
      EXPECT_TRUE(isfinite(run.net.fc1.weight.value()).all().item<bool>());
      continue;
    }
    std::string what = error_of([&] { trainer.fit(p); });
    EXPECT_EQ(what.rfind("Value: step ", 0), 0u) << what;
    for (const char* part : {"of epoch 0: the loss is nan", "fc1", "trainer_test.cpp:", " 100"})
      EXPECT_NE(what.find(part), what.npos) << part << " in " << what;
    EXPECT_TRUE(isfinite(run.net.fc1.weight.value()).all().item<bool>());
    EXPECT_EQ(read_file(f / "0/STATUS"), "failed\n");
    EXPECT_EQ(load(f / "0/nonfinite_batch.safetensors").at("batch.0").size(0), 16);
  }
}

TEST(Callbacks, EarlyStoppingRestoresTheBest) {
  manual_seed(1);
  ScheduledWork<TrainerNet> run;
  Trainer trainer(run.net, loss_of, run.opt,
                  {.max_epochs = 50, .metrics = {"accuracy"}, .progress = false});
  auto stop = std::make_shared<EarlyStopping>(
      EarlyStoppingOptions{.monitor = "val/loss", .patience = 2, .restore_best_weights = true});
  trainer.add(stop);
  FitResult r = trainer.fit(digits(true), digits(false));
  EXPECT_LT(r.epochs, 50);
  EXPECT_NE(r.reason.find("early stopping: val/loss"), std::string::npos) << r.reason;
  EXPECT_EQ(find_log(trainer.validate(digits(false)), "val/loss"), stop->best());
}

// The best weights are in checkpoints: a run that is interrupted after its best epoch ends as it
// would have ended.
TEST(Callbacks, EarlyStoppingResumesWithTheBest) {
  TempFolder f;
  auto fit = [&](const std::string& folder, int64_t stop_at, std::shared_ptr<EarlyStopping>* out) {
    manual_seed(1);
    ScheduledWork<TrainerNet> run;
    Trainer trainer(
        run.net, loss_of, run.opt,
        {.max_epochs = 50, .folder = folder, .progress = false, .saving = {.every_steps = 5}});
    auto stop = std::make_shared<EarlyStopping>(
        EarlyStoppingOptions{.monitor = "val/loss", .patience = 3, .restore_best_weights = true});
    trainer.add(stop);
    trainer.add(std::make_shared<StopAt>(stop_at, true));
    trainer.fit(digits(true), digits(false));
    if (out) *out = stop;
    return std::pair(run.net.state_dict(), trainer.step());
  };
  std::shared_ptr<EarlyStopping> whole, resumed;
  const auto [want, steps] = fit(f / "whole", -1, &whole);
  // One and two epochs before the end there is a best that no later epoch beats.
  for (const int64_t before : {23, 40}) {
    const std::string folder = f / fmt::format("cut{}", before);
    fit(folder, steps - before, nullptr);
    const auto [got, steps_again] = fit(folder, -1, &resumed);
    EXPECT_EQ(steps_again, steps);
    EXPECT_EQ(resumed->best(), whole->best());
    expect_same(got, want, "weights");
  }
}

// All lines of the reason are passed on.
TEST(Trainer, ResumingWithOtherDataNamesBoth) {
  TempFolder f;
  const auto fit = [&](int64_t batch) {
    ScheduledWork<TrainerNet> run;
    Trainer(run.net, loss_of, run.opt, {.max_epochs = 1, .folder = f / "run", .progress = false})
        .fit(digits(true, batch));
  };
  fit(64);
  const std::string what = error_of([&] { fit(32); });
  for (const char* part : {"holds a run of another model or with other parts", "batch(64)\n",
                           "and this pipeline is\n", "batch(32)", "Resume it with the recipe"})
    EXPECT_NE(what.find(part), what.npos) << part << " in " << what;
}

// A run that ended early is over when it is started again, until it may take longer.
TEST(Callbacks, EarlyStoppedRunsStayStopped) {
  TempFolder f;
  for (const int64_t every : {0, 7}) {  // at the end of epochs, or at validations
    FitResult first;
    const auto fit = [&](int64_t patience, int64_t max_epochs) {
      manual_seed(1);
      ScheduledWork<TrainerNet> run;
      Trainer trainer(run.net, loss_of, run.opt,
                      {.max_epochs = max_epochs,
                       .folder = f / fmt::format("run{}", every),
                       .progress = false,
                       .validation = {.every_steps = every}});
      trainer.add(std::make_shared<EarlyStopping>(
          EarlyStoppingOptions{.monitor = "val/loss", .min_delta = 1e9, .patience = patience}));
      return trainer.fit(digits(true), digits(false));
    };
    first = fit(2, 50);
    EXPECT_NE(first.reason.find("early stopping: val/loss"), std::string::npos) << first.reason;
    for (const int64_t epochs : {50, 60}) {
      const FitResult again = fit(2, epochs);
      EXPECT_EQ(again.reason, first.reason);
      EXPECT_EQ(again.steps, first.steps);
      EXPECT_EQ(again.epochs, first.epochs);
    }
    const FitResult longer = fit(4, 50);
    EXPECT_GT(longer.steps, first.steps);
    EXPECT_NE(longer.reason.find(" for 4 "), std::string::npos) << longer.reason;
  }
}

TEST(Callbacks, TensorBoardLeavesTheRunAsItIs) {
  TempFolder f;
  StateDict weights[2];
  for (const int k : {0, 1}) {
    manual_seed(1);
    ScheduledWork<TrainerNet> run;
    Trainer trainer(run.net, loss_of, run.opt, {.max_epochs = 2, .progress = false});
    if (k == 1)
      trainer.add(std::make_shared<TensorBoard>(
          f / "events", TensorBoardOptions{.histogram_freq = 1,
                                           .hparams = {{"lr", 1e-2}, {"net", std::string("mlp")}},
                                           .texts = {{"notes", "a **net**"}}}));
    trainer.fit(digits(true), digits(false));
    weights[k] = run.net.state_dict();
  }
  expect_same(weights[1], weights[0], "weights");
  const std::string events = read_file(f / "events/" + list_folder(f / "events")[0]);
  for (const char* part : {"fc1/weight", "fc2/bias", "drop/", "_hparams_/session_start_info",
                           "_hparams_/session_end_info", "notes/text_summary"})
    EXPECT_NE(events.find(part), std::string::npos) << part;
}

TEST(Callbacks, FilesAndRates) {
  TempFolder f;
  manual_seed(1);
  ScheduledWork<TrainerNet> run;
  Trainer trainer(
      run.net, loss_of, run.opt,
      {.max_epochs = 3, .folder = f / "run", .progress = false, .logging = {.every_steps = 10}});
  trainer.add(std::make_shared<CSVLogger>(f / "log.csv"))
      .add(std::make_shared<TensorBoard>(f / "events", TensorBoardOptions{.histogram_freq = 1}))
      .add(std::make_shared<ModelCheckpoint>(
          f / "weights-{epoch}.safetensors",
          ModelCheckpointOptions{.monitor = "val/loss", .save_best_only = true}))
      .add(std::make_shared<ReduceLROnPlateau>(ReduceLROnPlateauOptions{
          .monitor = "train/loss", .factor = 0.5, .patience = 0, .min_delta = 1e9}));
  trainer.fit(digits(true), digits(false));
  io::Csv csv = io::Csv::read(f / "log.csv");
  EXPECT_EQ(csv.rows(), 3u);
  EXPECT_EQ(csv.names()[0], "epoch");
  EXPECT_EQ(csv.column("lr", DType::f64).to_vector<double>()[2], 1e-2 / 2);
  EXPECT_TRUE(file_exists(f / "weights-1.safetensors"));
  EXPECT_EQ(list_folder(f / "events").size(), 1u);
  data::TextLines lines(f / "run/metrics.jsonl");
  EXPECT_EQ(lines.size(), 6 + 3);  // steps 10 .. 60 and three epochs
  EXPECT_TRUE(io::parse_json(lines.line(8)).find("val/loss"));
}

}  // namespace
}  // namespace tandem::train
