// SPDX-License-Identifier: Apache-2.0
// What optimizers guarantee beyond PyTorch's numbers: groups, states, equal bits on every path, one
// region for all parameters, averages and batch statistics.
#include <gtest/gtest.h>

#include "tandem/tandem.h"
#include "tests/support/init.h"

namespace tandem {
namespace {

std::vector<Param> make_params(uint64_t seed) {
  manual_seed(seed);
  std::vector<Param> p;
  for (Shape s : {Shape{300, 70}, Shape{70}, Shape{1}, Shape{5, 3, 2}}) p.emplace_back(randn(s));
  return p;
}
void give_grads(const std::vector<Param>& params, uint64_t seed) {
  manual_seed(seed);
  for (const Param& p : params) p.set_grad(randn(p.shape()));
}
void expect_equal(const std::vector<Param>& a, const std::vector<Param>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(a[i].value().to_vector<float>(), b[i].value().to_vector<float>()) << i;
}

TEST(Groups, OptionsAndParameters) {
  std::vector<Param> p = make_params(1);
  optim::AdamW opt({{.params = {p[0], p[1]}, .lr = 1e-4, .weight_decay = 0.0}, {.params = {p[2]}}},
                   {.lr = 1e-3, .weight_decay = 0.1});
  opt.add_param_group({.params = {p[3]}, .betas = {{0.5, 0.6}}});
  ASSERT_EQ(opt.num_groups(), 3u);
  EXPECT_EQ(opt.lr(0), 1e-4);
  EXPECT_EQ(opt.option("weight_decay", 0), 0.0);
  EXPECT_EQ(opt.lr(1), 1e-3);
  EXPECT_EQ(opt.option("weight_decay", 1), 0.1);
  EXPECT_EQ(opt.option("beta2", 2), 0.6);
  EXPECT_EQ(opt.params(0).size(), 2u);
  EXPECT_EQ(opt.params().size(), 4u);
  opt.set_lr(0.5, 1);
  EXPECT_EQ(opt.lr(1), 0.5);
  opt.set_lr(0.25);
  EXPECT_EQ(opt.lr(0), 0.25);
  EXPECT_EQ(opt.lr(2), 0.25);
  StateDict s = opt.state_dict();
  EXPECT_EQ(s.at("param_groups.2.params").to_vector<int64_t>(), (std::vector<int64_t>{3}));
  EXPECT_EQ(s.at("param_groups.2.beta1").item<double>(), 0.5);
  EXPECT_EQ(s.at("0.step").item<float>(), 0.0f);
}

TEST(Groups, LoadTakesPyTorchsKeys) {
  std::vector<Param> p = make_params(1), q = make_params(1);
  optim::AdamW a(p, {.lr = 0.1}), b(q, {.lr = 0.3});
  give_grads(p, 2);
  a.step();
  StateDict torch;
  for (const auto& [name, v] : a.state_dict())
    torch[name.rfind("param_groups", 0) == 0 ? name : "state." + name] = v;
  b.load_state_dict(torch);
  for (size_t i = 0; i < p.size(); ++i) q[i].assign_(p[i].value());
  give_grads(p, 3);
  give_grads(q, 3);
  a.step();
  b.step();
  expect_equal(p, q);
}

// The first step of a parameter that gets its gradient later takes the gradient as its buffer.
TEST(Steps, FirstGradientLater) {
  Param a(zeros({2})), b(zeros({2}));
  optim::SGD opt({a, b}, {.lr = 1.0, .momentum = 0.9, .dampening = 0.5});
  a.set_grad(ones({2}));
  opt.step();
  a.set_grad(ones({2}));
  b.set_grad(ones({2}));
  opt.step();
  EXPECT_FLOAT_EQ(b.value().to_vector<float>()[0], -1.0f);
  EXPECT_FLOAT_EQ(a.value().to_vector<float>()[0], -2.4f);
}

// All parameters in one region, or one by one under a hook: equal bits, at any thread count,
// whether or not somebody holds the old values.
TEST(Steps, OneRegionGivesTheSameBits) {
  struct Hook : OpHook {
    int n = 0;
    void after(const OpDef&, std::span<const Tensor>) override { ++n; }
  };
  std::vector<Param> one = make_params(3);
  optim::AdamW first(one, {.lr = 0.01, .amsgrad = true});
  for (uint64_t t = 0; t < 3; ++t) {
    give_grads(one, t);
    Hook hook;
    HookGuard watch(hook);
    first.step();
    EXPECT_GE(hook.n, 4);
  }
  for (int threads : {1, 2, 8})
    for (bool held : {false, true}) {
      set_num_threads(threads);
      std::vector<Param> many = make_params(3);
      std::vector<Tensor> old;
      optim::AdamW opt(many, {.lr = 0.01, .amsgrad = true});
      for (uint64_t t = 0; t < 3; ++t) {
        give_grads(many, t);
        if (held)
          for (const Param& p : many) old.push_back(p.value());
        std::vector<float> before = many[0].value().to_vector<float>();
        opt.step();
        if (held) {
          EXPECT_EQ(old[4 * t].to_vector<float>(), before);
        }
      }
      expect_equal(one, many);
    }
  set_num_threads(0);
}

TEST(Steps, ViewsAndOtherTypesGoOneByOne) {
  Param p(ones({3, 4})), q(ones({2}, float64));
  optim::SGD opt({p, q}, {.lr = 1.0});
  p.set_grad(arange(12).to(float32).reshape({4, 3}).t());
  q.set_grad(ones({2}, float64));
  opt.step();
  EXPECT_EQ(p.value().select(0, 1).to_vector<float>(), (std::vector<float>{0, -3, -6, -9}));
  EXPECT_EQ(q.value().to_vector<double>(), (std::vector<double>{0, 0}));
}

TEST(Steps, ClosureIsEvaluatedFirst) {
  Param p(ones({2}));
  optim::SGD opt({p}, {.lr = 0.5});
  Tensor loss = opt.step([&] {
    opt.zero_grad();
    Tensor y = p.value().square().sum();
    y.backward();
    return y;
  });
  EXPECT_EQ(loss.item<float>(), 2.0f);
  EXPECT_EQ(p.value().to_vector<float>(), (std::vector<float>{0, 0}));
}

struct NormNet : nn::Module {
  nn::Linear fc{3, 4};
  nn::BatchNorm1d bn{4};
  NormNet() { TD_REGISTER(fc, bn); }
  Tensor forward(Tensor x) { return bn(fc(x)); }
};

TEST(Averages, UpdateBatchNorm) {
  manual_seed(4);
  NormNet net;
  std::vector<Tensor> batches = {randn({8, 3}), randn({8, 3}) + 2.0};
  net.eval();
  optim::update_bn(batches, net);
  EXPECT_FALSE(net.is_training());
  EXPECT_EQ(*net.bn.options.momentum, 0.1);
  Tensor want;
  {
    NoGradGuard no_grad;
    want = (net.fc(batches[0]).mean({0}) + net.fc(batches[1]).mean({0})) / 2.0;
  }
  std::vector<float> got = net.bn.running_mean.value().to_vector<float>(),
                     mean = want.to_vector<float>();
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[i], mean[i], 1e-5);
  EXPECT_EQ(net.bn.num_batches_tracked.value().item<int64_t>(), 2);
}

TEST(Averages, BuffersAndState) {
  NormNet net;
  optim::AveragedModel<NormNet> latest(net, {.decay = 0.5}),
      mean(net, {.decay = 0.5, .use_buffers = true});
  for (double v : {1.0, 3.0}) {
    net.bn.running_mean.assign_(v);
    latest.update_parameters(net);
    mean.update_parameters(net);
  }
  EXPECT_FLOAT_EQ(latest.module.bn.running_mean.value().to_vector<float>()[0], 3.0f);
  EXPECT_FLOAT_EQ(mean.module.bn.running_mean.value().to_vector<float>()[0], 2.0f);
  NormNet other;
  optim::AveragedModel<NormNet> copy(other);
  copy.load_state_dict(mean.state_dict());
  EXPECT_EQ(copy.n_averaged().item<int64_t>(), 2);
  EXPECT_EQ(copy.module.fc.weight.value().to_vector<float>(),
            mean.module.fc.weight.value().to_vector<float>());
}

}  // namespace
}  // namespace tandem
