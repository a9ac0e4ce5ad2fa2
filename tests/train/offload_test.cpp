// SPDX-License-Identifier: Apache-2.0
// TrainerOptions::offload on one rank: a model on a device whose optimizer's state is on the host
// trains as one without, is saved and resumed by either, and says what it does not go with.
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "tandem/base/files/folder.h"
#include "tandem/tandem.h"
#include "tandem/tensor/device_memory.h"
#include "tandem/train/trainer.h"
#include "tests/io/io_helper.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"
#include "tests/train/digits.h"

namespace tandem::train {
namespace {

struct OffloadNet : nn::Module {
  nn::Linear fc1{64, 48}, fc2{48, 10};
  OffloadNet() { TD_REGISTER(fc1, fc2); }
  Tensor forward(Tensor x) { return fc2(relu(fc1(x.flatten(1)))); }
};

struct OffloadRun {
  FitResult fit;
  StateDict net, optimizer;
  std::vector<Device> moments;  ///< where they were in the run's steps
};

/// Where the moments are while the run goes.
struct SeeMoments : Callback {
  std::vector<Device>& seen;
  explicit SeeMoments(std::vector<Device>& s) : seen(s) {}
  void step_end(Trainer& t, const Logs&) override {
    seen.push_back(t.optimizer().state_dict().at("fc1.weight.exp_avg").device());
  }
  const char* name() const override { return "SeeMoments"; }
};

StateDict brought(const StateDict& state) {
  StateDict out;
  for (const auto& [name, v] : state) out[name] = v.cpu();
  return out;
}

OffloadRun train_on(Device device, TrainerOptions o) {
  OffloadRun run;
  manual_seed(1);
  OffloadNet net;
  net.to(device);
  optim::AdamW opt(net.parameters(), {.lr = 3e-3, .eps = 1e-4});
  o.clip_norm = 1;
  o.limits = {.train_batches = 6, .val_batches = 1};
  o.metrics = {"accuracy"};
  o.progress = false;
  Trainer trainer(net, loss_of, opt, o);
  trainer.add(std::make_shared<SeeMoments>(run.moments));
  run.fit = trainer.fit(digits(true), digits(false));
  run.net = brought(net.state_dict());
  run.optimizer = brought(opt.state_dict());
  EXPECT_EQ(opt.state_dict().at("fc1.weight.exp_avg").device(), device);
  EXPECT_EQ(net.fc1.weight.value().device(), device);
  // Net and optimizer train without the trainer, too.
  opt.zero_grad();
  net(ones({2, 64}).to(device)).sum().backward();
  opt.step();
  return run;
}

void expect_near(const OffloadRun& got, const OffloadRun& want, double by) {
  EXPECT_EQ(got.fit.steps, want.fit.steps);
  for (const char* log : {"train/loss", "val/loss", "val/accuracy"})
    EXPECT_NEAR(find_log(got.fit.logs, log), find_log(want.fit.logs, log), 1e-5) << log;
  const std::pair<const StateDict*, const StateDict*> both[] = {{&got.net, &want.net},
                                                                {&got.optimizer, &want.optimizer}};
  for (const auto& [a, b] : both) {
    ASSERT_EQ(a->size(), b->size());
    for (const auto& [name, v] : *b) {
      EXPECT_EQ(a->at(name).shape(), v.shape()) << name;
      EXPECT_TRUE(allclose(a->at(name), v, 0, by)) << name;
    }
  }
}

class OffloadOn : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    try {
      device_ = device_named(GetParam());
    } catch (const Error&) {
      GTEST_SKIP() << "there is no device " << GetParam();
    }
  }
  Device device_;
};
INSTANTIATE_TEST_SUITE_P(Drivers, OffloadOn, testing::Values("cuda", "opencl", "fake"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(OffloadOn, TrainsSavesAndResumesAsWithout) {
  const TempFolder dir;
  const OffloadRun want = train_on(device_, {.max_epochs = 2, .compile = false});
  for (const Device d : want.moments) EXPECT_EQ(d, device_);
  const TrainerOptions offload{.max_epochs = 2, .offload = TrainOffload::optimizer};
  for (const TrainStrategy s :
       {TrainStrategy::automatic, TrainStrategy::zero2, TrainStrategy::fsdp}) {
    TrainerOptions o = offload;
    o.strategy = s;
    const OffloadRun got = train_on(device_, o);
    expect_near(got, want, 1e-5);
    EXPECT_EQ(got.moments.size(), static_cast<size_t>(got.fit.steps));
    for (const Device d : got.moments) EXPECT_EQ(d, cpu);
  }
  // In two parts, of which none, the first, the second and both are offloaded.
  const OffloadRun whole = train_on(device_, offload);
  for (const bool first : {false, true})
    for (const bool second : {false, true}) {
      TrainerOptions o{.max_epochs = 1, .compile = false};
      o.folder = fmt::format("{}/{}-{}", dir.path().string(), first, second);
      if (first) o.offload = TrainOffload::optimizer;
      train_on(device_, o);
      o.max_epochs = 2;
      o.offload = second ? TrainOffload::optimizer : TrainOffload::none;
      const OffloadRun resumed = train_on(device_, o);
      expect_near(resumed, want, 1e-5);
      if (first && second) expect_near(resumed, whole, 0);  // to the bit
    }
}

TEST_P(OffloadOn, ScaledLosses) {
  OffloadRun runs[2];
  for (const bool offload : {false, true}) {
    TrainerOptions o{.max_epochs = 1, .compile = false, .precision = TrainPrecision::fp16};
    o.scaler.init_scale = 1024;
    if (offload) o.offload = TrainOffload::optimizer;
    runs[offload] = train_on(device_, o);
  }
  expect_near(runs[1], runs[0], 1e-4);
}

TEST(Offload, WhatItDoesNotGoWith) {
  const Device device = device_named("fake");
  TrainerOptions o{.max_epochs = 1, .progress = false};
  o.offload = TrainOffload::optimizer;
  const auto refused = [&](const TrainerOptions& options) {
    OffloadNet net;
    net.to(device);
    optim::AdamW opt(net.parameters());
    Trainer trainer(net, loss_of, opt, options);
    return thrown([&] { trainer.fit(digits(true)); }, ErrorKind::Unsupported);
  };
  TrainerOptions average = o, server = o;
  average.average.type = AverageKind::ema;
  server.strategy = TrainStrategy::ps;
  EXPECT_TRUE(has(refused(average), "or strategy = ddp and offload = none"));
  EXPECT_TRUE(has(refused(server), "offload = optimizer and strategy = ps"));
}

// On the host there is nothing to bring there.
TEST(Offload, ChangesNothingOnTheHost) {
  const OffloadRun want = train_on(cpu, {.max_epochs = 1}),
                   got = train_on(cpu, {.max_epochs = 1, .offload = TrainOffload::optimizer});
  expect_near(got, want, 0);
}

}  // namespace
}  // namespace tandem::train
