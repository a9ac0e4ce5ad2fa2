// SPDX-License-Identifier: Apache-2.0
// GradScaler against PyTorch's over 20 steps with injected infinities, in eager and compiled.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/compile/helpers.h"

namespace tandem {
namespace {

using namespace test;

float float_of(const Tensor& t) { return t.item<float>(); }

// Gradients of step i: finite except in some steps.
Tensor gradient_input(int i) {
  const float f = 1.0f + 0.1f * static_cast<float>(i);
  std::vector<float> x = {0.5f * f, -1.0f * f, 2.0f * f};
  if (i == 4 || i == 9 || i == 10 || i == 15) x[1] = -std::numeric_limits<float>::infinity();
  if (i == 17) x[0] = std::numeric_limits<float>::quiet_NaN();
  return tensor(x);
}
const optim::GradScalerOptions kOptions = {.init_scale = 8, .growth_interval = 3};

// Scales and growth counts by torch.amp.GradScaler("cpu", init_scale=8, growth_interval=3).
const std::vector<float> kScales = {8, 8, 16, 16, 8, 8, 8, 16, 16, 8, 4, 4, 4, 8, 8, 4, 4, 2, 2, 2};
const std::vector<int> kCounts = {1, 2, 0, 1, 0, 1, 2, 0, 1, 0, 0, 1, 2, 0, 1, 0, 1, 0, 1, 2};

template <class Optim>
struct Training {
  Param p{tensor({1.0, -2.0, 0.5})};
  Optim opt;
  optim::GradScaler scaler{kOptions};
  template <class O>
  explicit Training(O options) : opt({p}, options) {}
  Tensor step(const Tensor& x) {
    opt.zero_grad();
    Tensor loss = (p * x * p).sum() * 0.5;
    scaler.scale(loss).backward();
    scaler.step(opt);
    scaler.update();
    return loss;
  }
};

template <class Optim, class O>
void compare_scaled(O options, const std::vector<float>& at10, const std::vector<float>& at19) {
  Training<Optim> eager(options), compiled(options);
  auto step = compile([&](Tensor x) { return compiled.step(x); });
  for (int i = 0; i < 20; ++i) {
    Tensor a = eager.step(gradient_input(i)), b = step(gradient_input(i));
    EXPECT_EQ(eager.scaler.get_scale(), kScales[static_cast<size_t>(i)]) << i;
    EXPECT_EQ(compiled.scaler.get_scale(), kScales[static_cast<size_t>(i)]) << i;
    EXPECT_EQ(float_of(eager.scaler.state_dict().at("_growth_tracker")),
              kCounts[static_cast<size_t>(i)]);
    EXPECT_EQ(values(eager.p), values(compiled.p)) << i;
    for (const auto& [name, v] : eager.opt.state_dict())
      EXPECT_EQ(doubles(v), doubles(compiled.opt.state_dict().at(name))) << name << " " << i;
    if (i != 10 && i != 19) continue;
    std::vector<float> got = values(eager.p);
    const std::vector<float>& want = i == 10 ? at10 : at19;
    for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(got[k], want[k], 2e-6 * std::abs(want[k]) + 1e-6);
  }
  EXPECT_EQ(step.stats().traces, 1);
}

TEST(GradScaler, SgdAsInPyTorch) {
  compare_scaled<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9},
                             {-0.22147581f, -17.3509808f, -0.050000079f},
                             {-0.0666715056f, -388.371521f, -0.163078189f});
}
TEST(GradScaler, AdamWAsInPyTorch) {
  compare_scaled<optim::AdamW>(optim::AdamWOptions{.lr = 0.05},
                               {0.594528794f, -2.39559221f, 0.104499474f},
                               {0.242616087f, -2.75825286f, -0.117003173f});
}

TEST(GradScaler, ASkippedStepLeavesAll) {
  Training<optim::AdamW> run(optim::AdamWOptions{.lr = 0.05});
  for (int i = 0; i < 4; ++i) run.step(gradient_input(i));
  std::vector<float> p = values(run.p);
  StateDict before = run.opt.state_dict();
  run.step(gradient_input(4));
  EXPECT_EQ(values(run.p), p);
  for (const auto& [name, v] : run.opt.state_dict())
    EXPECT_EQ(v.to_vector<double>(), before.at(name).to_vector<double>()) << name;
  run.step(gradient_input(5));
  EXPECT_NE(values(run.p), p);
  EXPECT_EQ(run.opt.step_count().item<double>(), 5);
}

TEST(GradScaler, TwoOptimizersAndClipping) {
  Param a(ones({2})), b(ones({2}));
  optim::SGD first({a}, {.lr = 0.1}), second({b}, {.lr = 0.1});
  optim::GradScaler scaler({.init_scale = 4});
  auto body = [&](Tensor x, Tensor y) {
    first.zero_grad(), second.zero_grad();
    for (const Tensor& loss : scaler.scale(std::vector<Tensor>{(a * x).sum(), (b * y).sum()}))
      loss.backward();
    scaler.unscale_(first);
    Tensor norm = optim::clip_grad_norm_({a}, 100.0);
    scaler.step(first), scaler.step(second);
    scaler.update();
    return norm;
  };
  EXPECT_EQ(body(full({2}, 3.0), full({2}, 1.0)).item<float>(), std::sqrt(18.0f));
  auto step = compile(body);
  step(full({2}, 3.0), full({2}, INFINITY));
  EXPECT_NEAR(a.value().to_vector<float>()[0], 0.4, 1e-6);
  EXPECT_NEAR(b.value().to_vector<float>()[0], 0.9, 1e-6);
  EXPECT_EQ(scaler.get_scale(), 2);
}

TEST(GradScaler, StateAndErrors) {
  Training<optim::SGD> run(optim::SGDOptions{.lr = 0.1}), other(optim::SGDOptions{.lr = 0.1});
  for (int i = 0; i < 5; ++i) run.step(gradient_input(i));
  other.scaler.load_state_dict(run.scaler.state_dict());
  EXPECT_EQ(other.scaler.get_scale(), run.scaler.get_scale());
  EXPECT_EQ(other.scaler.get_growth_interval(), 3);
  const auto fails = [](auto f) {
    try {
      f();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  optim::GradScaler s;
  EXPECT_EQ(s.get_scale(), 65536);
  EXPECT_EQ(s.get_growth_interval(), 2000);
  EXPECT_NE(fails([&] { s.update(); }).find("no inf checks"), std::string::npos);
  s.unscale_(run.opt);
  EXPECT_NE(fails([&] { s.unscale_(run.opt); }).find("already been called"), std::string::npos);
  s.step(run.opt);
  EXPECT_NE(fails([&] { s.step(run.opt); }).find("since the last update"), std::string::npos);
  EXPECT_NE(fails([&] { s.unscale_(run.opt); }).find("after step()"), std::string::npos);
  s.update();
  EXPECT_NE(fails([&] { s.load_state_dict({}); }).find("disabled instance"), std::string::npos);
  EXPECT_NE(fails([&] { s.set_growth_factor(0.5); }).find("growth_factor"), std::string::npos);
  auto reads = compile([&](Tensor x) { return x * s.get_scale(); });
  EXPECT_NE(fails([&] { reads(ones({1})); }).find("scale_tensor"), std::string::npos);
  optim::GradScaler off({.enabled = false});
  EXPECT_EQ(off.get_scale(), 1);
  EXPECT_TRUE(off.state_dict().empty());
  Tensor x = ones({1});
  EXPECT_EQ(values(off.scale(x)), values(x));
  off.step(run.opt);
  off.update();
}

TEST(Compile, FloatsAreSlots) {
  auto f = compile([](Tensor x, Tensor s) { return x * s; });
  EXPECT_EQ(values(f(ones({2}), 0.5)), (std::vector<float>{0.5, 0.5}));
  EXPECT_EQ(values(f(ones({2}), 0.25f)), (std::vector<float>{0.25, 0.25}));
  EXPECT_EQ(f(ones({2}), 3.0).dtype(), DType::f32);
  EXPECT_EQ(f.stats().traces, 1);
  auto key = compile([](Tensor x, double s) { return s > 1 ? x * s : x; });
  EXPECT_EQ(values(key(ones({1}), 0.5)), (std::vector<float>{1}));
  EXPECT_EQ(values(key(ones({1}), 2.5)), (std::vector<float>{2.5}));
  EXPECT_EQ(key.stats().traces, 2);
  auto both = compile([](Tensor x, double a, Tensor b, int64_t n) { return x * a + b * n; });
  EXPECT_EQ(values(both(ones({1}), 2.0, 3.0, int64_t{2})), (std::vector<float>{8}));
  EXPECT_EQ(values(both(ones({1}), 2.0, 4.0, int64_t{2})), (std::vector<float>{10}));
  EXPECT_EQ(both.stats().traces, 1);
}

}  // namespace
}  // namespace tandem
