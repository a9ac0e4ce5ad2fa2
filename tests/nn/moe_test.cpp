// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts against a loop over tokens; limits of capacity, the loss that balances.
#include "tandem/nn/moe.h"

#include <gtest/gtest.h>

#include "tandem/compile/compile.h"
#include "tandem/grad/transforms.h"
#include "tandem/ops/ops.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem {
namespace {

// Token by token: its experts by falling probability, without any who have no room left.
Tensor by_token(nn::MoE& m, const Tensor& x, int64_t capacity) {
  const int64_t tokens = x.size(0), k = m.options.top_k;
  const Tensor p = softmax(m.gate(x), 1);
  const auto [scores, chosen] = topk(p, k, 1);
  const std::vector<int64_t> expert = chosen.flatten().to_vector<int64_t>();
  std::vector<int64_t> used(static_cast<size_t>(m.options.experts), 0);
  std::vector<Tensor> out(static_cast<size_t>(tokens), zeros({m.width}, x.dtype()));
  for (int64_t choice = 0; choice < k; ++choice)
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t e = expert[static_cast<size_t>(t * k + choice)];
      if (used[static_cast<size_t>(e)]++ >= capacity) continue;
      Tensor y = mv(select(m.up_proj, 0, e), select(x, 0, t));
      if (m.options.gated) {
        const auto half = y.chunk(2);
        y = silu(half[0]) * half[1];
      } else {
        y = gelu(y);
      }
      Tensor w = scores[t][choice];
      if (m.options.normalize) w = w / scores[t].sum();
      out[static_cast<size_t>(t)] =
          out[static_cast<size_t>(t)] + mv(select(m.down_proj, 0, e), y) * w;
    }
  return stack(out, 0);
}

TEST(MoE, IsTheWeightedSumOfEachTokensExperts) {
  manual_seed(1);
  const Tensor x = randn({11, 6}, DType::f64);
  for (const bool gated : {false, true})
    for (const bool normalize : {false, true})
      for (const int64_t k : {1, 2, 4}) {
        nn::MoE m(6, {.experts = 4,
                      .top_k = k,
                      .hidden = 5,
                      .gated = gated,
                      .activation = gated ? "silu" : "gelu",
                      .normalize = normalize,
                      .dtype = DType::f64});
        EXPECT_EQ(m.up_proj.shape(), Shape({4, gated ? 10 : 5, 6}));
        const Tensor y = m(x.reshape({1, 11, 6}));
        EXPECT_EQ(y.shape(), Shape({1, 11, 6}));
        EXPECT_TRUE(allclose(y.squeeze(0), by_token(m, x, 11), 1e-6, 1e-6)) << gated << k;
      }
}

TEST(MoE, ExpertsWithoutRoomAreLeftOut) {
  manual_seed(2);
  for (const double factor : {0.25, 0.5, 1.0, 1.5}) {
    nn::MoE m(
        6, {.experts = 4, .top_k = 2, .hidden = 5, .capacity_factor = factor, .dtype = DType::f64});
    const Tensor x = randn({16, 6}, DType::f64);
    const auto capacity = static_cast<int64_t>(16 * 2 / 4 * factor);
    EXPECT_TRUE(allclose(m(x), by_token(m, x, capacity), 1e-6, 1e-6)) << factor;
  }
}

TEST(MoE, GradientsReachRouterAndExperts) {
  manual_seed(3);
  nn::MoE m(4, {.experts = 3, .top_k = 2, .hidden = 3, .dtype = DType::f64});
  const Tensor x = randn({5, 4}, DType::f64);
  gradcheck(
      [&](std::span<const Tensor> v) {
        return functional_call({{m.gate.weight, v[1]}, {m.up_proj, v[2]}, {m.down_proj, v[3]}},
                               [&] { return Tensors{m(v[0])}; });
      },
      {x, m.gate.weight.value(), m.up_proj.value(), m.down_proj.value()});
}

TEST(MoE, CompiledHasTheSameBits) {
  manual_seed(4);
  for (const double factor : {0.0, 1.0}) {
    nn::MoE m(8, {.experts = 4, .top_k = 2, .hidden = 6, .capacity_factor = factor});
    const auto step = [&](const Tensor& x) {
      m.zero_grad();
      Tensor loss = m(x).square().sum();
      loss = loss + m.aux_loss() * 0.01;
      loss.backward();
      return std::vector<Tensor>{loss, m.up_proj.grad(), m.gate.weight.grad()};
    };
    const Tensor x = randn({12, 8});
    const std::vector<Tensor> eager = step(x);
    const std::vector<Tensor> compiled = compile(step)(x);
    for (size_t i = 0; i < eager.size(); ++i) {
      if (factor > 0) {
        EXPECT_TRUE(same_bits(compiled[i], eager[i])) << i;
      } else {  // planned for the worst case: other shapes
        EXPECT_TRUE(allclose(compiled[i], eager[i], 1e-5, 1e-5)) << i;
      }
    }
  }
}

TEST(MoE, AuxLossIsOneForEqualSharesAndGrowsWithThem) {
  nn::MoE m(4, {.experts = 4, .top_k = 1, .hidden = 3});
  EXPECT_TRUE(has(thrown([&] { (void)m.aux_loss(); }, ErrorKind::Value), "there was none yet"));
  const NoGradGuard no_grad;
  m.gate.weight.assign_(eye(4) * 20.0);
  (void)m(eye(4));
  EXPECT_NEAR(m.aux_loss().item<float>(), 1, 1e-3);
  (void)m(stack({eye(4)[0], eye(4)[0]}, 0));
  EXPECT_NEAR(m.aux_loss().item<float>(), 4, 1e-3);
}

TEST(MoE, WrongOptionsAreRefused) {
  const auto refused = [](int64_t width, nn::MoEOptions o, const std::string& text) {
    const std::string said = thrown([&] { nn::MoE(width, o); }, ErrorKind::Value);
    EXPECT_TRUE(has(said, text)) << said;
  };
  refused(0, {}, "sizes > 0");
  refused(4, {.experts = 2, .top_k = 3}, "top_k is 3, expected 1 to 2");
  refused(4, {.capacity_factor = -1}, "capacity_factor >= 0");
  refused(4, {.activation = "tanh"}, "expected gelu, relu or silu");
  nn::MoE m(4);
  EXPECT_TRUE(has(thrown(
                      [&] {
                        (void)m(ones({3, 5}));
                      },
                      ErrorKind::Shape),
                  "[..., 4], got [3, 5]"));
}

}  // namespace
}  // namespace tandem
