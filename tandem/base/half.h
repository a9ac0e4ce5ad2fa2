// SPDX-License-Identifier: Apache-2.0
// 16-bit floats as storage: Half (IEEE binary16) and BFloat16. Kernels convert to float, compute,
// and round once at the end. Conversions are branch-free, round to nearest even, keep NaN (made
// quiet), infinities, signed zero and denormals: the bits that F16C and AVX-512 BF16 NaN rules
// give.
#pragma once

#include <bit>
#include <cstdint>

namespace tandem {

namespace detail {

// Select by mask: gcc neither branches on it nor sinks work into an arm, so loops vectorise.
[[gnu::always_inline]] constexpr inline uint32_t select_bits(bool c, uint32_t a, uint32_t b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(c);
  return (a & mask) | (b & ~mask);
}

}  // namespace detail

/// binary16 bits of `x`, rounded to nearest even; beyond 65519.996 it is infinity.
[[gnu::always_inline]] constexpr inline uint16_t float_to_half_bits(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t a = u & 0x7FFFFFFFu;
  // Exponent rebias by -112, plus rounding; a carry out of the mantissa gives the right next value.
  const uint32_t normal = (a - (112u << 23) + 0xFFFu + ((a >> 13) & 1u)) >> 13;
  // Adding 0.5 puts the result's last bit at 2^-24: the adder rounds to nearest even.
  const uint32_t tiny =
      std::bit_cast<uint32_t>(std::bit_cast<float>(a) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  const uint32_t nan = 0x7E00u | ((a >> 13) & 0x3FFu);
  uint32_t r = detail::select_bits(a < 0x38800000u, tiny, normal);
  r = detail::select_bits(a >= 0x47800000u, 0x7C00u, r);
  r = detail::select_bits(a > 0x7F800000u, nan, r);
  return static_cast<uint16_t>(r | sign);
}

/// Value of binary16 bits (exact).
[[gnu::always_inline]] constexpr inline float half_bits_to_float(uint16_t h) {
  const uint32_t sign = (static_cast<uint32_t>(h) & 0x8000u) << 16;
  const uint32_t a = static_cast<uint32_t>(h) & 0x7FFFu;
  const uint32_t normal = (a << 13) + (112u << 23);
  // A denormal as 2^-14 * (1 + m) minus 2^-14; both exact.
  const uint32_t tiny = std::bit_cast<uint32_t>(std::bit_cast<float>((a << 13) + (113u << 23)) -
                                                std::bit_cast<float>(113u << 23));
  const uint32_t special = (a << 13) | 0x7F800000u | (detail::select_bits(a > 0x7C00u, 1, 0) << 22);
  uint32_t r = detail::select_bits(a < 0x400u, tiny, normal);
  r = detail::select_bits(a >= 0x7C00u, special, r);
  return std::bit_cast<float>(r | sign);
}

/// bfloat16 bits of `x`, rounded to nearest even.
[[gnu::always_inline]] constexpr inline uint16_t float_to_bfloat16_bits(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
  const uint32_t nan = (u >> 16) | 0x40u;
  return static_cast<uint16_t>(detail::select_bits((u & 0x7FFFFFFFu) > 0x7F800000u, nan, rounded));
}

/// Value of bfloat16 bits (exact).
[[gnu::always_inline]] constexpr inline float bfloat16_bits_to_float(uint16_t b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}

/// IEEE binary16 storage. Convert to float to compare or compute.
struct Half {
  uint16_t bits;

  Half() = default;
  [[gnu::always_inline]] constexpr explicit Half(float x) : bits(float_to_half_bits(x)) {}
  [[gnu::always_inline]] constexpr operator float() const { return half_bits_to_float(bits); }
  static constexpr Half from_bits(uint16_t b) {
    Half h(0.0f);
    h.bits = b;
    return h;
  }
};

/// bfloat16 storage. Convert to float to compare or compute.
struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  [[gnu::always_inline]] constexpr explicit BFloat16(float x) : bits(float_to_bfloat16_bits(x)) {}
  [[gnu::always_inline]] constexpr operator float() const { return bfloat16_bits_to_float(bits); }
  static constexpr BFloat16 from_bits(uint16_t b) {
    BFloat16 h(0.0f);
    h.bits = b;
    return h;
  }
};

static_assert(sizeof(Half) == 2 && sizeof(BFloat16) == 2);

}  // namespace tandem
