// SPDX-License-Identifier: Apache-2.0
// Leaves and their gradients: what `w += v` makes of one, and what grad() says of a result of ops.
#include <gtest/gtest.h>

#include <functional>

#include "tandem/tandem.h"
#include "tests/grad/close.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem {
namespace {

TEST(Leaves, GradOfAResultExplainsItself) {
  const Tensor x = ones({2}).requires_grad_();
  const struct {
    const char* name;
    std::function<Tensor()> make;
    std::vector<const char*> says;
  } cases[] = {
      {"+=",
       [] {
         Tensor w = ones({2}).requires_grad_();
         w += 1;
         return w;
       },
       {"the result of add (", "leaf_test.cpp:", "`w.assign_(w + v)`", "NoGradGuard"}},
      {"-= twice",
       [] {
         Tensor w = ones({2}).requires_grad_();
         w -= 1;
         w -= 1;
         return w;
       },
       {"the result of sub (", "`w.assign_(w + v)`"}},
      {"*=",
       [] {
         Tensor w = ones({2}).requires_grad_();
         w *= 2;
         return w;
       },
       {"the result of mul (", "`w.assign_(w + v)`"}},
      {"/= itself",
       [] {
         Tensor w = ones({2}).requires_grad_();
         w /= w;
         return w;
       },
       {"the result of div (", "`w.assign_(w + v)`"}},
      {"assignment",
       [&] {
         Tensor w = x;
         w = w * 2;
         return w;
       },
       {"the result of mul (", "only leaves keep gradients", "grad(loss, x)"}},
      {"cast", [&] { return x.to(float64); }, {"the result of cast (", "only leaves"}},
      {"param",
       [] {
         Tensor w = nn::Linear(2, 2).weight;
         w += 1;
         return w;
       },
       {"the result of add"}},
  };
  for (const auto& c : cases) {
    const Tensor w = c.make();
    (w * 2.0).sum().backward();
    const std::string text = thrown([&] { (void)w.grad(); }, ErrorKind::Value);
    for (const char* part : c.says) EXPECT_TRUE(has(text, part)) << c.name << ": " << text;
  }
}

TEST(Leaves, WithoutADerivativeThereIsNothingToSay) {
  EXPECT_FALSE(ones({2}).grad().defined());
  EXPECT_FALSE((ones({2}) + 1).grad().defined());
  Tensor w = ones({2});
  w += 1;
  EXPECT_FALSE(w.grad().defined());
  Tensor x = ones({2}).requires_grad_();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE((x * 2).detach().grad().defined());
  NoGradGuard no_grad;
  EXPECT_FALSE((x * 2).grad().defined());
}

// The update that PyTorch's users write by hand.
TEST(Leaves, StayLeavesUnderNoGrad) {
  Tensor w = full({2}, 4.0).requires_grad_();
  const Tensor before = w;
  for (int step = 0; step < 3; ++step) {
    (w * w).sum().backward();
    {
      NoGradGuard no_grad;
      w -= 0.25 * w.grad();
      EXPECT_TRUE(w.requires_grad());
      EXPECT_TRUE(w.grad().defined());
    }
    w.zero_grad();
    EXPECT_FALSE(w.grad().defined());
  }
  expect_close(w.detach(), full({2}, 0.5));
  expect_close(before.detach(), full({2}, 4.0));  // other handles keep the old value
}

TEST(Leaves, OnlyOfTheSameKindAndNotOfAParam) {
  NoGradGuard no_grad;
  Tensor w = ones({2}).requires_grad_();
  w += ones({3, 2});  // another shape
  EXPECT_FALSE(w.requires_grad());
  nn::Linear layer(2, 2);
  Tensor value = layer.weight;
  value *= 0.5;  // a copy of the Param's value, as averages want it
  EXPECT_FALSE(value.requires_grad());
}

TEST(Leaves, ArgumentsOfATraceSaySo) {
  auto f = compile([](Tensor x) {
    (x * x).sum().backward();
    return x.grad();
  });
  const std::string text = thrown([&] { f(ones({2}).requires_grad_()); }, ErrorKind::Unsupported);
  EXPECT_TRUE(has(text, "grad(loss, x)")) << text;
}

}  // namespace
}  // namespace tandem
