// SPDX-License-Identifier: Apache-2.0
// Half and BFloat16: all 2^16 values, round trips, and rounding against an independent reference.
#include "tandem/base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace tandem {
namespace {

// Value by the definition of a binary format with `mant` mantissa bits and exponent bias `bias`.
double decode(uint32_t bits, int exp_bits, int mant) {
  const int bias = (1 << (exp_bits - 1)) - 1;
  const int e = static_cast<int>(bits >> mant) & ((1 << exp_bits) - 1);
  const double m = bits & ((1u << mant) - 1);
  const double sign = (bits >> (exp_bits + mant)) != 0 ? -1.0 : 1.0;
  if (e == (1 << exp_bits) - 1) {
    return m != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
  }
  if (e == 0) return sign * std::ldexp(m, 1 - bias - mant);
  return sign * std::ldexp(m + (1 << mant), e - bias - mant);
}

// Rounds by arithmetic in f64: nearest multiple of the quantum, ties to even.
double round_to(double x, int exp_bits, int mant) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int bias = (1 << (exp_bits - 1)) - 1;
  const int e = std::max(std::ilogb(x), 1 - bias);
  const double r = std::ldexp(std::nearbyint(std::ldexp(x, mant - e)), e - mant);
  return std::fabs(r) >= std::ldexp(1.0, bias + 1) ? std::copysign(HUGE_VAL, x) : r;
}

bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

bool is_signalling(uint32_t bits, int exp_bits, int mant) {
  return std::isnan(decode(bits, exp_bits, mant)) && (bits >> (mant - 1) & 1u) == 0;
}

TEST(Half, AllValuesDecodeAndRoundTrip) {
  for (uint32_t b = 0; b < 0x10000; ++b) {
    const Half h = Half::from_bits(static_cast<uint16_t>(b));
    ASSERT_TRUE(same(float{h}, decode(b, 5, 10))) << b;
    const uint32_t want = is_signalling(b, 5, 10) ? b | 0x200u : b;
    ASSERT_EQ(Half(float{h}).bits, want) << b;
  }
}

TEST(BFloat16, AllValuesDecodeAndRoundTrip) {
  for (uint32_t b = 0; b < 0x10000; ++b) {
    const BFloat16 h = BFloat16::from_bits(static_cast<uint16_t>(b));
    ASSERT_TRUE(same(float{h}, decode(b, 8, 7))) << b;
    const uint32_t want = is_signalling(b, 8, 7) ? b | 0x40u : b;
    ASSERT_EQ(BFloat16(float{h}).bits, want) << b;
  }
}

// Every tie, its two neighbours, and a stride through all floats.
std::vector<float> probes() {
  std::vector<float> out;
  for (uint64_t u = 0; u < (1ull << 32); u += 4099) {
    out.push_back(std::bit_cast<float>(static_cast<uint32_t>(u)));
  }
  for (uint32_t b = 0; b < 0x10000; ++b) {
    const uint32_t half_tie = (b & 0x8000u) << 16 | (((b & 0x7FFFu) << 13) + 0x38001000u);
    for (uint32_t base : {b << 16 | 0x8000u, half_tie}) {
      for (uint32_t d : {0u, 1u, ~0u}) out.push_back(std::bit_cast<float>(base + d));
    }
  }
  for (int i = 0; i < 2048; ++i) {  // ties between denormal halves
    const float tie = (static_cast<float>(i) + 0.5f) * 0x1p-24f;
    for (float f : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 1.0f)}) {
      out.push_back(f);
      out.push_back(-f);
    }
  }
  return out;
}

TEST(Half, RoundsToNearestEven) {
  for (float x : probes()) {
    ASSERT_TRUE(same(float{Half(x)}, round_to(x, 5, 10))) << std::bit_cast<uint32_t>(x);
  }
}

TEST(BFloat16, RoundsToNearestEven) {
  for (float x : probes()) {
    ASSERT_TRUE(same(float{BFloat16(x)}, round_to(x, 8, 7))) << std::bit_cast<uint32_t>(x);
  }
}

TEST(Half, KnownBits) {
  EXPECT_EQ(Half(1.0f).bits, 0x3C00);
  EXPECT_EQ(Half(-2.0f).bits, 0xC000);
  EXPECT_EQ(Half(65504.0f).bits, 0x7BFF);
  EXPECT_EQ(Half(65519.99f).bits, 0x7BFF);
  EXPECT_EQ(Half(65520.0f).bits, 0x7C00);
  EXPECT_EQ(Half(0x1p-24f).bits, 0x0001);
  EXPECT_EQ(Half(0x1p-25f).bits, 0x0000);
  EXPECT_EQ(Half(-0.0f).bits, 0x8000);
  EXPECT_EQ(BFloat16(1.0f).bits, 0x3F80);
  EXPECT_EQ(BFloat16(3.4e38f).bits, 0x7F80);
  static_assert(Half(0.5f).bits == 0x3800 && static_cast<float>(BFloat16(-4.0f)) == -4.0f);
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) uint16_t f16c_encode(float x) {
  typedef float V4 __attribute__((vector_size(16)));
  typedef short V8 __attribute__((vector_size(16)));
  const V8 r = reinterpret_cast<V8>(__builtin_ia32_vcvtps2ph(V4{x, 0, 0, 0}, 0));
  return static_cast<uint16_t>(r[0]);
}

TEST(Half, SameBitsAsF16C) {
  // clang 14 cannot ask for f16c; no processor has AVX2 without it.
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no F16C here";
  for (float x : probes()) ASSERT_EQ(Half(x).bits, f16c_encode(x)) << std::bit_cast<uint32_t>(x);
}
#endif

}  // namespace
}  // namespace tandem
