// SPDX-License-Identifier: Apache-2.0
// Pruning: which entries go, that they stay 0 in training and get no gradient, and that removing a
// mask leaves the same net with plain weights.
#include "tandem/nn/prune.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/compile/compile.h"
#include "tandem/tandem.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::nn {
namespace {

struct PruneNet : Module {
  Conv2d conv{4, 8, 3, ConvOptions{.padding = 1}};
  Linear fc{8, 4};
  PruneNet() { TD_REGISTER(conv, fc); }
  Tensor forward(const Tensor& x) { return fc(relu(conv(x)).mean({2, 3})); }
};
std::vector<double> pruned_values(const Tensor& t) { return t.to_vector<double>(); }
Tensor pruned_mask(const Module& net, const std::string& name) {
  return *net.state_dict().find(name);
}
int64_t pruned_kept(const Tensor& m) { return sum(m.to(DType::i64)).item<int64_t>(); }

TEST(Prune, TheSmallestEntriesGo) {
  Linear fc(4, 2);
  fc.weight.assign_(
      tensor({0.1, -0.2, 0.3, -0.4, 0.5, -0.6, 0.7, -0.8}).to(float32).reshape({2, 4}));
  prune::l1_unstructured(fc, "weight", 0.25);
  EXPECT_EQ(pruned_values(pruned_mask(fc, "weight_mask")),
            (std::vector<double>{0, 0, 1, 1, 1, 1, 1, 1}));
  prune::l1_unstructured(fc, "weight", 0.5);  // of the six that are left
  EXPECT_EQ(pruned_values(pruned_mask(fc, "weight_mask")),
            (std::vector<double>{0, 0, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(prune::sparsity(fc), 0.625);
  const Tensor x = ones({1, 4});
  fc.bias.assign_(0.0);
  const std::vector<double> y = pruned_values(fc(x));
  EXPECT_EQ(y[0], 0);
  EXPECT_FLOAT_EQ(static_cast<float>(y[1]), -0.7f);
  fc(x).sum().backward();
  EXPECT_EQ(pruned_values(fc.weight.grad()), (std::vector<double>{0, 0, 0, 0, 0, 1, 1, 1}));
  prune::remove(fc, "weight");
  EXPECT_FALSE(prune::is_pruned(fc));
  EXPECT_EQ(pruned_values(fc(x)), y);
  EXPECT_EQ(fc.state_dict().size(), 2u);
  EXPECT_EQ(pruned_values(fc.weight)[4], 0);
}

TEST(Prune, SlicesGlobalRandomAndByHand) {
  manual_seed(3);
  PruneNet net;
  const Tensor before = net.conv.weight.value().clone();
  prune::ln_structured(net.conv, "weight", 0.25, 2, 0);
  const std::vector<double> norms = pruned_values(sqrt(sum(square(before), {1, 2, 3}))),
                            left = pruned_values(
                                pruned_mask(net, "conv.weight_mask").to(float32).mean({1, 2, 3}));
  for (size_t i = 0; i < 8; ++i)
    for (size_t j = 0; j < 8; ++j)
      if (left[i] == 0 && left[j] == 1) {
        EXPECT_LT(norms[i], norms[j]);
      }
  EXPECT_EQ(pruned_kept(pruned_mask(net, "conv.weight_mask")), 6 * 36);
  prune::global_unstructured({{&net.conv, "weight"}, {&net.fc, "weight"}}, 0.5);
  EXPECT_EQ(pruned_kept(pruned_mask(net, "conv.weight_mask")) +
                pruned_kept(pruned_mask(net, "fc.weight_mask")),
            (6 * 36 + 32) / 2);
  prune::random_unstructured(net.fc, "bias", 0.5);
  EXPECT_EQ(pruned_kept(pruned_mask(net, "fc.bias_mask")), 2);
  PruneNet other;
  prune::custom_from_mask(other.fc, "weight", pruned_mask(net, "fc.weight_mask").to(float32));
  EXPECT_EQ(pruned_values(pruned_mask(other, "fc.weight_mask")),
            pruned_values(pruned_mask(net, "fc.weight_mask")));
}

TEST(Prune, TwoOfFourAlongTheInputs) {
  manual_seed(4);
  PruneNet net;
  prune::semi_structured(net.conv, "weight");
  prune::semi_structured(net.fc, "weight");
  prune::semi_structured(net.fc, "weight");  // changes nothing more
  const Tensor
      w = abs(net.conv.weight.value()).permute({0, 2, 3, 1}).reshape({-1, 4}),
      m = pruned_mask(net, "conv.weight_mask").to(float32).permute({0, 2, 3, 1}).reshape({-1, 4});
  for (const double n : pruned_values(m.sum({1}))) EXPECT_EQ(n, 2);
  const Tensor least = amin(where(m != 0, w, 1e9), {1}), most = amax(where(m == 0, w, 0.0), {1});
  EXPECT_TRUE((least >= most).all().item<bool>());
  for (const double n :
       pruned_values(pruned_mask(net, "fc.weight_mask").to(float32).reshape({-1, 4}).sum({1})))
    EXPECT_EQ(n, 2);
}

// Masks are values: a compiled step takes the new one without another trace.
TEST(Prune, TrainingKeepsZerosEagerlyAndCompiled) {
  std::vector<StateDict> ends;
  for (const bool planned : {false, true}) {
    manual_seed(5);
    PruneNet net;
    const prune::ScheduleOptions o{.method = prune::Method::global_unstructured,
                                   .final_sparsity = 0.8,
                                   .from = 1,
                                   .to = 7,
                                   .every = 2};
    prune::prepare(net, o);
    optim::AdamW opt(net.parameters(), {.lr = 0.01});
    const auto step = [&](const Tensor& x, const Tensor& t) {
      opt.zero_grad();
      const Tensor loss = cross_entropy(net.forward(x), t);
      loss.backward();
      opt.step();
      return loss.detach();
    };
    auto fast = compile(step);
    double last = 0;
    for (int64_t i = 0; i < 10; ++i) {
      prune::set_step(net, o, i);
      EXPECT_GE(prune::sparsity(net), last);
      last = prune::sparsity(net);
      const Tensor x = randn({8, 4, 5, 5}), t = randint(0, 4, {8});
      planned ? fast(x, t) : step(x, t);
    }
    EXPECT_NEAR(last, 0.8, 0.002);
    ends.push_back(net.state_dict());
    const StateDict plain = prune::plain_state(net.state_dict());
    EXPECT_EQ(plain.find("conv.weight_mask"), nullptr);
    PruneNet bare;
    bare.load_state_dict(plain);
    const Tensor x = randn({3, 4, 5, 5});
    EXPECT_EQ(pruned_values(bare.forward(x)), pruned_values(net.forward(x)));
    const Tensor zeros = (bare.conv.weight.value() == 0).to(float32);
    EXPECT_GE(zeros.mean().item<float>(), 0.5);
  }
  for (const auto& [name, t] : ends[0])
    EXPECT_EQ(pruned_values(t), pruned_values(*ends[1].find(name))) << name;
}

TEST(Prune, AScheduleGrowsByItsFormula) {
  for (const prune::Method method :
       {prune::Method::l1_unstructured, prune::Method::random_unstructured}) {
    manual_seed(6);
    Linear fc(100, 10);
    const prune::ScheduleOptions o{
        .method = method, .final_sparsity = 0.9, .from = 10, .to = 30, .every = 5};
    prune::prepare(fc, o);
    for (int64_t i = 0; i < 40; ++i) {
      prune::set_step(fc, o, i);
      const int64_t at = std::min<int64_t>(i < 10 ? 10 : i / 5 * 5, 30);
      const double left = 1 - static_cast<double>(at - 10) / 20;
      EXPECT_NEAR(prune::sparsity(fc), 0.9 * (1 - left * left * left), 6e-4) << i;
    }
  }
}

TEST(Prune, SaysWhatItWants) {
  const auto refused = [](const char* text, auto f) {
    const std::string got = error_of(f);
    EXPECT_TRUE(has(got, text)) << got;
  };
  Linear fc(6, 2);
  refused("the share 1.5 is to be pruned", [&] { prune::l1_unstructured(fc, "weight", 1.5); });
  refused("the share nan", [&] { prune::l1_unstructured(fc, "weight", std::nan("")); });
  refused("has no parameter 'wait'", [&] { prune::l1_unstructured(fc, "wait", 0.5); });
  refused("must be a multiple of 4", [&] { prune::semi_structured(fc, "weight"); });
  refused("'weight' is not pruned", [&] { prune::remove(fc, "weight"); });
  refused("expected [2, 6]", [&] { prune::custom_from_mask(fc, "weight", ones({6, 2})); });
  refused("from update 4 to update 2", [&] { prune::prepare(fc, {.from = 4, .to = 2}); });
  refused("'conv9' matches no Linear", [&] {
    PruneNet net;
    prune::prepare(net, {.on = {"fc", "conv9"}});
  });
  ReLU none;
  refused("that is to be pruned", [&] { prune::prepare(none, {}); });
}

}  // namespace
}  // namespace tandem::nn
