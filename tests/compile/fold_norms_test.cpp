// SPDX-License-Identifier: Apache-2.0
// Batch norm folded into convolutions: where it happens, where it must not, and that results follow
// eager ones through changed weights and statistics.
#include <gtest/gtest.h>

#include "tandem/base/parallel.h"
#include "tandem/ops/matmul/packed.h"
#include "tandem/tandem.h"
#include "tests/compile/helpers.h"

namespace tandem {
namespace {

using test::count_ops;

const CompileOptions kFold{.same_bits = false};

struct Block : nn::Module {
  nn::Conv2d conv;
  nn::BatchNorm2d bn;
  Block(int64_t in, int64_t out, bool bias, int64_t groups, bool affine)
      : conv(in, out, {3}, {.padding = {1}, .groups = groups, .bias = bias}),
        bn(out, {.affine = affine}) {
    TD_REGISTER(conv, bn);
  }
  Tensor forward(Tensor x) { return relu(bn(conv(x))); }
};

// Statistics and scales that differ from a fresh layer's.
void disturb(Block& b) {
  b.bn.running_mean.assign_(randn(b.bn.running_mean.shape()));
  b.bn.running_var.assign_(rand(b.bn.running_var.shape()) + 0.5);
  if (!b.bn.weight.defined()) return;
  b.bn.weight.assign_(rand(b.bn.weight.shape()) + 0.5);
  b.bn.bias.assign_(randn(b.bn.bias.shape()));
}

void expect_close(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(got.shape().to_string(), want.shape().to_string()) << what;
  const double scale = std::max(1.0, want.abs().max().item<double>());
  EXPECT_LE((got - want).abs().max().item<double>(), 2e-5 * scale) << what;
}

TEST(FoldNorms, FollowsEagerThroughChanges) {
  manual_seed(3);
  struct Case {
    int64_t in, out;
    bool bias;
    int64_t groups;
    bool affine;
  };
  for (const Case& k : {Case{3, 8, false, 1, true},
                        {5, 7, true, 1, true},
                        {6, 9, true, 3, true},
                        {8, 8, false, 8, false},
                        {1, 17, true, 1, false}})
    for (int threads : {1, 2, 8}) {
      set_num_threads(threads);
      Block b(k.in, k.out, k.bias, k.groups, k.affine);
      b.eval();
      auto fast = compile([&](Tensor x) { return b.forward(x); },
                          {.dynamic = {{0, "batch"}}, .same_bits = false});
      for (int round = 0; round < 3; ++round) {
        disturb(b);
        b.conv.weight.assign_(randn(b.conv.weight.shape()));
        Tensor x = randn({2 + round, k.in, 12, 11});
        NoGradGuard no_grad;
        expect_close(fast(x), b.forward(x), fmt::format("{} -> {} round {}", k.in, k.out, round));
      }
      EXPECT_EQ(count_ops(fast.executable(), op::batch_norm_infer), 0);
      // The weights do not change between calls: packed once, where that pays off.
      int convolutions = 0;
      for (const OpDef* op : {&op::conv, &op::packed_conv, &op::depthwise_conv, &op::winograd_conv,
                              &op::packed_matmul})
        convolutions += count_ops(fast.executable(), *op);
      EXPECT_EQ(convolutions, 1) << fast.executable()->to_string();
    }
  set_num_threads(0);
}

// Another module in training mode shows that weights change: they are scaled in every call, where
// that is less work than the norm.
TEST(FoldNorms, LeavesLargeWeightsTrainingAndSharedResults) {
  manual_seed(4);
  Block b(32, 64, false, 1, true);
  disturb(b);
  nn::Dropout off(0.0);
  auto changing = compile([&](Tensor x) { return off(b.forward(x)); }, kFold);
  auto run = compile([&](Tensor x) { return b.forward(x); }, kFold);
  auto both = compile(
      [&](Tensor x) {
        Tensor y = b.conv(x);
        return b.bn(y) + y;
      },
      kFold);
  NoGradGuard no_grad;
  b.eval();
  Tensor small = randn({1, 32, 4, 4}), large = randn({4, 32, 16, 16});
  expect_close(changing(small), b.forward(small), "few pixels");
  EXPECT_EQ(count_ops(changing.executable(), op::batch_norm_infer), 1);
  expect_close(changing(large), b.forward(large), "many pixels");
  EXPECT_EQ(count_ops(changing.executable(), op::batch_norm_infer), 0);
  expect_close(run(small), b.forward(small), "few pixels, weights that stay");
  EXPECT_EQ(count_ops(run.executable(), op::batch_norm_infer), 0);
  expect_close(run(large), b.forward(large), "many pixels, weights that stay");
  Tensor y = b.conv(large);
  expect_close(both(large), b.bn(y) + y, "read twice");
  EXPECT_EQ(count_ops(both.executable(), op::batch_norm_infer), 1);
  b.train();
  Block other(32, 64, false, 1, true);
  other.load_state_dict(b.state_dict());
  expect_close(run(large), other.forward(large), "training");
  expect_close(b.bn.running_mean, other.bn.running_mean, "running mean");
}

// Gradients of a net in eval mode (a frozen backbone, say).
TEST(FoldNorms, GradientsInEvalMode) {
  manual_seed(5);
  Block b(4, 6, true, 2, true), same(4, 6, true, 2, true);
  disturb(b);
  same.load_state_dict(b.state_dict());
  b.eval();
  same.eval();
  auto fast = compile(
      [&](Tensor x) {
        Tensor loss = b.forward(x).square().mean();
        loss.backward();
        return loss;
      },
      kFold);
  Tensor x = randn({3, 4, 9, 9});
  Tensor got = fast(x), want = same.forward(x).square().mean();
  want.backward();
  expect_close(got, want, "loss");
  auto mine = b.named_parameters(), theirs = same.named_parameters();
  ASSERT_EQ(mine.size(), theirs.size());
  for (size_t i = 0; i < mine.size(); ++i)
    expect_close(mine[i].second.grad(), theirs[i].second.grad(), mine[i].first);
}

}  // namespace
}  // namespace tandem
