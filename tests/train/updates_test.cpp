// SPDX-License-Identifier: Apache-2.0
// Steps with several optimizers: the Trainer's updates equal a loop by hand, resume exactly, take
// turns, accumulate, keep their gradients apart, and log each loss.
#include "tandem/train/updates.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/tandem.h"
#include "tandem/train/trainer.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"
#include "tests/support/states.h"
#include "tests/train/digits.h"

namespace tandem::train {
namespace {

/// Two nets against each other over rows of 64 numbers.
struct Rivals : nn::Module {
  nn::Linear forger1{8, 16}, forger2{16, 64}, critic1{64, 16}, critic2{16, 1};
  nn::Dropout drop{0.1};
  Rivals() { TD_REGISTER(forger1, forger2, critic1, critic2, drop); }
  Tensor forge(const Tensor& like) {
    return sigmoid(forger2(relu(forger1(randn({like.shape(0), 8})))));
  }
  Tensor forward(Tensor x) { return critic2(drop(leaky_relu(critic1(std::move(x)), 0.2))); }
  Tensor critic_loss(const Tensor& real, const Tensor& fake) {
    return binary_cross_entropy_with_logits(real, ones_like(real)) +
           binary_cross_entropy_with_logits(fake, zeros_like(fake));
  }
  StepOutput training_step(const Batch& b, Updates& update) {
    const Tensor x = b[0].flatten(1), drawn = forge(x);
    const Tensor real = (*this)(x), fake = (*this)(drawn.detach());
    update("critic", critic_loss(real, fake));
    if (update.due("forger")) {
      const Tensor seen = (*this)(drawn);
      update("forger", binary_cross_entropy_with_logits(seen, ones_like(seen)));
    }
    StepOutput o;
    o.figures = {{"real", sigmoid(real.detach()).mean()}};
    return o;
  }
};

struct Rivalry {
  Rivals net;
  optim::Adam critic{{net.critic1.weight, net.critic1.bias, net.critic2.weight, net.critic2.bias},
                     {.lr = 2e-3, .betas = {0.5, 0.999}}};
  optim::Adam forger{{net.forger1.weight, net.forger1.bias, net.forger2.weight, net.forger2.bias},
                     {.lr = 1e-3, .betas = {0.5, 0.999}}};
  optim::StepLR falls{critic, {.step_size = 10, .gamma = 0.5}};
  std::vector<NamedOptimizer> optimizers(int64_t every = 1) {
    return {{"critic", critic}, {"forger", forger, every}};
  }
};

TEST(Updates, EqualALoopByHand) {
  manual_seed(3);
  Rivalry hand;
  const auto step = [&](const Tensor& batch) {
    Rivals& n = hand.net;
    const Tensor x = batch.flatten(1), drawn = n.forge(x);
    hand.critic.zero_grad();
    const Tensor real = n(x);
    const Tensor fake = n(drawn.detach());
    n.critic_loss(real, fake).backward();
    hand.critic.step();
    hand.forger.zero_grad();
    const Tensor seen = n(drawn);
    binary_cross_entropy_with_logits(seen, ones_like(seen)).backward();
    hand.forger.step();
  };
  auto batches = digits(true);
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const auto& [x, y] : batches) {
      step(x);
      hand.falls.step();
    }
  for (const bool compiled : {true, false}) {
    manual_seed(3);
    Rivalry run;
    Trainer trainer(run.net, run.optimizers(),
                    {.max_epochs = 2, .compile = compiled, .progress = false});
    trainer.schedule(run.falls);
    const FitResult r = trainer.fit(digits(true));
    EXPECT_EQ(r.steps, 46);
    expect_same(run.net.state_dict(), hand.net.state_dict(), compiled ? "compiled" : "eager");
    for (const char* name : {"train/critic_loss", "train/forger_loss", "train/real"})
      EXPECT_TRUE(std::isfinite(find_log(r.logs, name))) << name;
    EXPECT_NEAR(find_log(r.logs, "train/loss"),
                find_log(r.logs, "train/critic_loss") + find_log(r.logs, "train/forger_loss"),
                1e-5);
    EXPECT_DOUBLE_EQ(find_log(r.logs, "lr/critic"), 2e-3 / 16);
    EXPECT_DOUBLE_EQ(find_log(r.logs, "lr/forger"), 1e-3);
    const Logs val = trainer.validate(digits(false));
    EXPECT_GT(find_log(val, "val/critic_loss"), 0);
    EXPECT_GT(find_log(val, "val/forger_loss"), 0);
  }
}

TEST(Updates, ResumeExactly) {
  const auto make = [](Rivalry& run, const std::string& folder) {
    auto t = std::make_unique<Trainer>(
        run.net, run.optimizers(3),
        TrainerOptions{
            .max_epochs = 3, .folder = folder, .progress = false, .saving = {.every_steps = 5}});
    t->schedule(run.falls);
    return t;
  };
  TempFolder f;
  manual_seed(1);
  Rivalry whole;
  const FitResult want = make(whole, f / "whole")->fit(digits(true), digits(false));
  // Every third update is the forger's.
  EXPECT_EQ(whole.critic.step_count().to(float64).item<double>(), 69);
  EXPECT_EQ(whole.forger.step_count().to(float64).item<double>(), 23);
  for (const int64_t stop : {1, 8, 22, 23, 24, 46}) {
    const std::string folder = f / fmt::format("r{}", stop);
    {
      manual_seed(1);
      Rivalry run;
      auto t = make(run, folder);
      t->add(std::make_shared<StopAt>(stop, false));
      EXPECT_EQ(t->fit(digits(true), digits(false)).steps, stop);
    }
    manual_seed(77);
    Rivalry run;
    const FitResult r = make(run, folder)->fit(digits(true), digits(false));
    EXPECT_EQ(r.steps, want.steps);
    expect_same(run.net.state_dict(), whole.net.state_dict(), "net");
    expect_same(run.critic.state_dict(), whole.critic.state_dict(), "critic");
    expect_same(run.forger.state_dict(), whole.forger.state_dict(), "forger");
    EXPECT_EQ(r.logs, want.logs) << stop;
  }
  // A run of other parts is refused by name.
  Rivalry run;
  EXPECT_TRUE(has(thrown([&] {
                    Trainer(run.net, {{"critic", run.critic}, {"painter", run.forger}},
                            {.max_epochs = 3, .folder = f / "whole", .progress = false})
                        .fit(digits(true));
                  }),
                  "Adam for painter"));
}

/// A step over fixed numbers, so that batches can be compared.
struct TwoHeads : nn::Module {
  nn::Linear body{64, 8}, left{8, 10}, right{8, 10};
  TwoHeads() { TD_REGISTER(body, left, right); }
  StepOutput training_step(const Batch& b, Updates& update) {
    const Tensor h = tanh(body(b[0].flatten(1)));
    const Tensor y = left(h);
    update("left", cross_entropy(y, b[1]), true);
    update("right", cross_entropy(right(h), remainder(b[1] + 1, 10)));
    return {.loss = {}, .output = y, .target = b[1]};
  }
};

TEST(Updates, KeepGradientsApartAndAccumulate) {
  const auto run_with = [](int64_t batch, int64_t accumulate, bool compiled) {
    manual_seed(1);
    TwoHeads net;
    optim::SGD left({net.body.weight, net.body.bias, net.left.weight, net.left.bias}, {.lr = 0.1});
    optim::SGD right({net.right.weight, net.right.bias}, {.lr = 0.1});
    auto p = data::pipeline(data::Digits(), {.seed = 4}).take(256).batch(batch);
    Trainer trainer(net, {{"left", left}, {"right", right}},
                    {.max_epochs = 2,
                     .accumulate = accumulate,
                     .compile = compiled,
                     .metrics = {"accuracy"},
                     .progress = false});
    const FitResult r = trainer.fit(p);
    EXPECT_EQ(r.steps, 2 * 256 / batch / accumulate);
    EXPECT_GT(find_log(r.logs, "train/accuracy"), 0.1);
    return net.state_dict();
  };
  const StateDict whole = run_with(128, 1, true);
  for (const bool compiled : {true, false})
    for (const auto& [name, value] : run_with(32, 4, compiled))
      EXPECT_TRUE(allclose(value, whole.at(name), 1e-5, 1e-6)) << name;
  // backward() into some parameters leaves the others' gradients alone.
  TwoHeads net;
  const Tensor h = net.body(ones({2, 64}));
  backward(net.left(h).sum() + net.right(h).sum(), {net.left.weight});
  EXPECT_TRUE(net.left.weight.grad().defined());
  for (const Param& p : {net.left.bias, net.right.weight, net.body.weight})
    EXPECT_FALSE(p.grad().defined()) << p.name();
}

TEST(Updates, LowPrecisionAndClipping) {
  for (const bool f16 : {true, false}) {
    manual_seed(2);
    Rivalry run;
    Trainer trainer(run.net, run.optimizers(2),
                    {.max_epochs = 2,
                     .clip_norm = 0.5,
                     .precision = f16 ? TrainPrecision::fp16 : TrainPrecision::bf16,
                     .progress = false});
    const FitResult r = trainer.fit(digits(true));
    EXPECT_EQ(r.steps, 46);
    EXPECT_TRUE(std::isfinite(find_log(r.logs, "train/forger_loss")));
    EXPECT_LT(find_log(r.logs, "train/critic_loss"), 1.4);
  }
}

TEST(Updates, ANaNNamesTheLossAndHoldsBackTheRest) {
  for (const OnNonFinite what : {OnNonFinite::stop, OnNonFinite::skip}) {
    manual_seed(2);
    TwoHeads net;
    optim::SGD left({net.left.weight}, {.lr = 0.1}), right({net.right.weight}, {.lr = 0.1});
    const StateDict before = net.state_dict();
    Trainer trainer(net,
                    [&](const Batch& b, Updates& update) {
                      const Tensor h = net.body(b[0].flatten(1));
                      update("left", log(net.left(h) - 1e6).mean(), true);
                      update("right", cross_entropy(net.right(h), b[1]));
                      return StepOutput{};
                    },
                    {{"left", left}, {"right", right}},
                    {.max_epochs = 1, .on_nonfinite = what, .progress = false});
    if (what == OnNonFinite::stop)
      EXPECT_TRUE(has(thrown([&] { trainer.fit(digits(true)); }), "left_loss nan"));
    else
      EXPECT_EQ(trainer.fit(digits(true)).skipped, 23);
    expect_same(net.state_dict(), before, "held back");
  }
}

TEST(Updates, WrongOnesAreRefused) {
  Rivalry run;
  const auto made = [&](std::vector<NamedOptimizer> o) {
    return thrown([&] { Trainer(run.net, std::move(o)); });
  };
  EXPECT_TRUE(has(made({}), "expects 1 to 16 optimizers, got 0"));
  EXPECT_TRUE(has(made({{"", run.critic}}), "expects a name"));
  EXPECT_TRUE(has(made({{"a.b", run.critic}}), "got 'a.b'"));
  EXPECT_TRUE(has(made({{"a", run.critic}, {"a", run.forger}}), "two optimizers"));
  EXPECT_TRUE(has(made({{"a", run.critic, 0}}), "every >= 1, got 0"));
  Trainer two(run.net, run.optimizers(), {.progress = false});
  EXPECT_TRUE(has(thrown([&] { two.lr_find(digits(true)); }), "this trainer has 2"));
  Trainer silent(run.net, [](const Batch&, Updates&) { return StepOutput{}; }, run.optimizers(),
                 {.progress = false});
  EXPECT_TRUE(has(thrown([&] { silent.fit(digits(true)); }), "handed no loss"));
}

}  // namespace
}  // namespace tandem::train
