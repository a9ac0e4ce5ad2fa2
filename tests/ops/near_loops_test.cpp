// SPDX-License-Identifier: Apache-2.0
// Loops that look at their operands first give the same bits on either side of the border.
#include <cmath>
#include <limits>

#include "tests/ops/values_helper.h"

namespace tandem::testing_ops {
namespace {

class NearLoops : public OpsTest {};

// 3,000 numbers of many sizes: alone near the border, and with the few that are beyond it.
std::vector<float> spread_numbers(bool edges) {
  std::vector<float> v;
  for (int i = 0; i < 3000; ++i)
    v.push_back(std::ldexp(static_cast<float>(i * 7919 % 2003 - 1001) / 37, i % (edges ? 90 : 9)));
  if (!edges) return v;
  const float inf = std::numeric_limits<float>::infinity();
  const float few[] = {0, -0.0f, inf, -inf, std::nanf(""), 1e-42f, 3e38f, -3e38f};
  for (size_t i = 0; i < 800; ++i) v[i * 3] = few[i / 8 % 8];
  return v;
}

void expect_bits(const Tensor& got, const std::vector<float>& want) {
  const std::vector<float> y = got.to_vector<float>();
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(y[i])) continue;
    ASSERT_EQ(y[i], want[i]) << i;
    ASSERT_EQ(std::signbit(y[i]), std::signbit(want[i])) << i;
  }
}

TEST_F(NearLoops, RemaindersAreExact) {
  for (const bool edges : {false, true}) {
    const std::vector<float> a = spread_numbers(edges);
    std::vector<float> b(a.rbegin(), a.rend()), want;
    if (!edges)
      for (float& x : b) x += x == 0;
    for (size_t i = 0; i < a.size(); ++i) want.push_back(std::fmod(a[i], b[i]));
    expect_bits(fmod(tensor(a), tensor(b)), want);
    for (size_t i = 0; i < a.size(); ++i)
      if (want[i] != 0 && (want[i] < 0) != (b[i] < 0)) want[i] += b[i];
    expect_bits(remainder(tensor(a), tensor(b)), want);
  }
}

// A single exponent runs a loop of its own; one exponent for each element does not.
TEST_F(NearLoops, PowersOfOneExponentAndOfMany) {
  const std::vector<float> a = spread_numbers(true);
  for (const double n : {1.0, 3.0, 4.0, -2.0, 2.5})
    expect_bits(pow(tensor(a), n),
                pow(tensor(a), full({static_cast<int64_t>(a.size())}, n)).to_vector<float>());
  expect_bits(pow(tensor(a), full({3000}, 2)), square(tensor(a)).to_vector<float>());
}

TEST_F(NearLoops, SinesNextToHugeNumbers) {
  const std::vector<float> a = spread_numbers(false);
  std::vector<float> with_huge = a;
  with_huge.push_back(1e30f);
  for (Tensor (*f)(Tensor, SourceLocation) : {sin, cos, tan}) {
    const SourceLocation here = SourceLocation::here();
    expect_bits(f(tensor(with_huge), here), f(tensor(a), here).to_vector<float>());
  }
}

}  // namespace
}  // namespace tandem::testing_ops
