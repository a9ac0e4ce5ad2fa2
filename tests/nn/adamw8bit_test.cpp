// SPDX-License-Identifier: Apache-2.0
// AdamW8bit: near AdamW on moments of codes, a quarter of the memory, the same bits compiled and
// after its state was saved and loaded.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/compile/compile.h"
#include "tandem/tandem.h"
#include "tests/support/init.h"

namespace tandem::optim {
namespace {

std::vector<double> listed(const Tensor& t) { return t.to_vector<double>(); }
// 2,600 elements: ten blocks and a part.
Tensor gradient(int64_t step) {
  manual_seed(static_cast<uint64_t>(50 + step));
  return randn({52, 50}) * tandem::exp(randn({52, 50}));
}
template <class O, class Options>
Tensor stepped(const Options& options, int64_t steps) {
  manual_seed(9);
  Param p(randn({52, 50}));
  O opt({p}, options);
  for (int64_t i = 0; i < steps; ++i) {
    p.set_grad(gradient(i));
    opt.step();
  }
  return p.value();
}

TEST(AdamW8bit, StaysNearAdamW) {
  const Tensor start = stepped<AdamW>(AdamWOptions{}, 0),
               want = stepped<AdamW>(AdamWOptions{.lr = 0.01}, 30),
               got = stepped<AdamW8bit>(AdamW8bitOptions{.lr = 0.01, .min_8bit_size = 256}, 30);
  const double moved = sqrt(mean(square(want - start))).item<double>(),
               apart = sqrt(mean(square(got - want))).item<double>();
  EXPECT_GT(apart, 0);
  EXPECT_LT(apart, 0.05 * moved);
  // Below min_8bit_size it is AdamW itself.
  EXPECT_EQ(listed(stepped<AdamW8bit>(AdamW8bitOptions{.lr = 0.01}, 5)),
            listed(stepped<AdamW>(AdamWOptions{.lr = 0.01}, 5)));
}

// One step from nothing: moments are 0.1 g and 0.001 g^2 to the nearest numbers of the data type.
TEST(AdamW8bit, CodesAreTheNearestNumbers) {
  Param p(zeros({300}));
  AdamW8bit opt({p}, {.betas = {0.5, 0.5}, .min_8bit_size = 1});
  std::vector<float> g(300, 0.0f);
  g[0] = 2;        // the largest of its block: 1, code 255
  g[1] = -2;       // no number below -0.9961 or so: the nearest
  g[2] = 2e-9f;    // rounds to 0; its square, too small for any number, is kept above 0
  g[299] = -0.5f;  // a block of 44 elements
  p.set_grad(tensor(g));
  opt.step();
  const StateDict s = opt.state_dict();
  const Tensor m = *s.find("0.exp_avg"), v = *s.find("0.exp_avg_sq");
  EXPECT_EQ(m.dtype(), DType::u8);
  EXPECT_EQ(m.numel(), 512);
  EXPECT_EQ(listed(*s.find("0.exp_avg_absmax")), (std::vector<double>{1, 0.25}));
  EXPECT_EQ(listed(*s.find("0.exp_avg_sq_absmax")), (std::vector<double>{2, 0.125}));
  const std::vector<double> codes = listed(m), squares = listed(v);
  EXPECT_EQ(codes[0], 255);
  EXPECT_EQ(codes[1], 0);
  EXPECT_EQ(codes[2], 127);
  EXPECT_EQ(codes[3], 127);
  EXPECT_EQ(codes[299], 0);
  EXPECT_EQ(squares[0], 255);
  EXPECT_EQ(squares[1], 255);
  EXPECT_EQ(squares[2], 1);
  EXPECT_EQ(squares[3], 0);
  EXPECT_EQ(squares[299], 255);
  const std::vector<double> moved = listed(p);
  EXPECT_NEAR(moved[0], -1e-3, 1e-8);
  EXPECT_EQ(moved[3], 0);
  for (const double x : moved) EXPECT_TRUE(std::isfinite(x));
}

TEST(AdamW8bit, CompiledSavedAndSmall) {
  const AdamW8bitOptions options{.lr = 0.01, .min_8bit_size = 256};
  const std::vector<double> want = listed(stepped<AdamW8bit>(options, 6));
  manual_seed(9);
  Param p(randn({52, 50})), q(zeros({52, 50}));
  AdamW8bit opt({p}, options), later({q}, options);
  auto fast = compile([&](const Tensor& g) {
    opt.zero_grad();
    (p.value() * g).sum().backward();
    opt.step();
    return g.sum();
  });
  for (int64_t i = 0; i < 3; ++i) fast(gradient(i));
  int64_t bytes = 0;
  for (const auto& [name, t] : opt.state_dict())
    if (name.find("exp_avg") != std::string::npos)
      bytes += t.numel() * static_cast<int64_t>(size_of(t.dtype()));
  EXPECT_EQ(bytes, 2 * (11 * 256 + 11 * 4));
  EXPECT_LT(bytes, 52 * 50 * 8 * 0.28);
  // Three more steps by another optimizer that takes its state.
  q.assign_(p.value());
  later.load_state_dict(opt.state_dict());
  for (int64_t i = 3; i < 6; ++i) {
    q.set_grad(gradient(i));
    later.step();
  }
  EXPECT_EQ(listed(q), want);
  for (int64_t i = 3; i < 6; ++i) fast(gradient(i));
  EXPECT_EQ(listed(p), want);
}

}  // namespace
}  // namespace tandem::optim
