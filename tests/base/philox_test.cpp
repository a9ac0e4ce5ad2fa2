// SPDX-License-Identifier: Apache-2.0
// Philox: the known answers of Random123, the counter layout, and the distributions built on it.
#include "tandem/base/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace tandem {
namespace {

void expect_words(const PhiloxBlock& b, uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3) {
  EXPECT_EQ(b.w[0], w0);
  EXPECT_EQ(b.w[1], w1);
  EXPECT_EQ(b.w[2], w2);
  EXPECT_EQ(b.w[3], w3);
}

// kat_vectors of Random123, philox4x32 with 10 rounds.
TEST(Philox, KnownAnswers) {
  expect_words(philox4x32(0, 0, 0, 0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  const uint32_t f = 0xffffffff;
  expect_words(philox4x32(f, f, f, f, f, f), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
  expect_words(philox4x32(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0),
               0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1);
  static_assert(philox4x32(0, 0, 0, 0, 0, 0).w[0] == 0x6627e8d5);
}

TEST(Philox, CounterIsOffsetDrawElementAndKeyIsSeed) {
  const PhiloxBlock want =
      philox4x32(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0);
  const PhiloxBlock got =
      philox(0x299f31d0a4093822ull, 0x243f6a88, 0x0370734413198a2eull, 0x85a308d3);
  expect_words(got, want.w[0], want.w[1], want.w[2], want.w[3]);
  EXPECT_EQ(want.word64(0), 0x94fdccebd16cfe09ull);
  EXPECT_EQ(want.word64(1), 0x24126ea15001e420ull);
}

TEST(Philox, UniformEdges) {
  EXPECT_EQ(uniform_f32(0), 0.0f);
  EXPECT_EQ(uniform_f32(0xffffffff), 1.0f - 0x1p-24f);
  EXPECT_EQ(uniform_f32(0x80000000), 0.5f);
  EXPECT_EQ(uniform_f32(0xff), 0.0f);
  EXPECT_EQ(uniform_f64(~0ull), 1.0 - 0x1p-53);
  EXPECT_EQ(uniform_f64(1ull << 63), 0.5);
  EXPECT_EQ(uniform_f64(0x7ff), 0.0);
}

TEST(Philox, UniformIntegers) {
  EXPECT_EQ(uniform_u64(~0ull, 10), 9u);
  EXPECT_EQ(uniform_u64(0, 10), 0u);
  EXPECT_EQ(uniform_u64(12345, 0), 12345u);
  uint64_t w = 1;
  for (int i = 0; i < 1000; ++i) {
    const PhiloxBlock b = philox(7, 0, static_cast<uint64_t>(i));
    const uint64_t range = b.word64(1) >> (i % 64);
    w = b.word64(0);
    if (range == 0) continue;
    const auto wide = static_cast<unsigned __int128>(w) * range;
    ASSERT_EQ(uniform_u64(w, range), static_cast<uint64_t>(wide >> 64));
  }
  const int64_t lo = std::numeric_limits<int64_t>::min(), hi = std::numeric_limits<int64_t>::max();
  PhiloxBlock zero{{0, 0, 0, 0}}, ones{{~0u, ~0u, ~0u, ~0u}};
  EXPECT_EQ(uniform_int(zero, lo, hi), lo);
  EXPECT_EQ(uniform_int(ones, lo, hi), hi - 1);
  EXPECT_EQ(uniform_int(zero, -3, 4), -3);
  EXPECT_EQ(uniform_int(ones, -3, 4), 3);
}

TEST(Philox, SmallRangeIsEven) {
  std::vector<int> counts(7, 0);
  PhiloxStream stream(1234, 5);
  for (int i = 0; i < 70000; ++i) ++counts[stream.next_below(7)];
  double chi2 = 0;
  for (int c : counts) chi2 += (c - 10000.0) * (c - 10000.0) / 10000.0;
  EXPECT_LT(chi2, 22.5);  // 0.1 % point for 6 degrees of freedom
}

template <class Draw>
void check_moments(Draw draw, double mean, double var, double third, double fourth) {
  const int n = 200000;
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
  for (int i = 0; i < n; ++i) {
    const double x = draw(static_cast<uint64_t>(i)) - mean;
    m1 += x, m2 += x * x, m3 += x * x * x, m4 += x * x * x * x;
  }
  const double se = std::sqrt(fourth / n);  // of m2, an upper bound for the rest after scaling
  EXPECT_NEAR(m1 / n, 0, 4 * std::sqrt(var / n));
  EXPECT_NEAR(m2 / n, var, 4 * se);
  EXPECT_NEAR(m3 / n, third, 20 * se);
  EXPECT_NEAR(m4 / n, fourth, 20 * se);
}

TEST(Philox, UniformMoments) {
  check_moments([](uint64_t i) { return uniform_f32(philox(3, 1, i).w[0]); }, 0.5, 1.0 / 12, 0,
                1.0 / 80);
  check_moments([](uint64_t i) { return uniform_f64(philox(3, 2, i).word64(1)); }, 0.5, 1.0 / 12, 0,
                1.0 / 80);
}

TEST(Philox, NormalMomentsAndTails) {
  check_moments([](uint64_t i) { return normal_f32(philox(3, 3, i)); }, 0, 1, 0, 3);
  check_moments([](uint64_t i) { return normal_f64(philox(3, 4, i)); }, 0, 1, 0, 3);
  EXPECT_EQ(normal_f32(PhiloxBlock{{0, 0, 0, 0}}), 0.0f);
  EXPECT_NEAR(normal_f32(PhiloxBlock{{~0u, 0, 0, 0}}), std::sqrt(48 * std::log(2.0)), 1e-6);
  EXPECT_NEAR(normal_f64(PhiloxBlock{{~0u, ~0u, 0, 0}}), std::sqrt(106 * std::log(2.0)), 1e-14);
}

TEST(Philox, StreamIsTheDrawsOfOneElement) {
  PhiloxStream stream(42, 7, 9);
  for (uint32_t d = 0; d < 5; ++d) {
    EXPECT_EQ(stream.next_block().word64(0), philox(42, 7, 9, d).word64(0));
  }
}

}  // namespace
}  // namespace tandem
