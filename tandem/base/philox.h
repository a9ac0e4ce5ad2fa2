// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, the only random source, used by the random ops, the loader and the initialisers. A
// draw is a pure function of (seed, offset, element, draw): no state, so eager, compiled, threaded
// and resumed runs give the same bits. Salmon et al., "Parallel random numbers: as easy as 1, 2,
// 3".
#pragma once

#include <cstdint>

#include "tandem/base/math_prelude.h"

namespace tandem {

/// Four 32-bit words of one Philox block.
struct PhiloxBlock {
  uint32_t w[4];

  /// Words 0-1 (`i` = 0) or 2-3 (`i` = 1) as one 64-bit word.
  constexpr uint64_t word64(int i) const {
    return static_cast<uint64_t>(w[2 * i + 1]) << 32 | w[2 * i];
  }
};

/// Philox4x32-10 of counter {c0, c1, c2, c3} under key {k0, k1}.
[[gnu::always_inline]] constexpr inline PhiloxBlock philox4x32(uint32_t c0, uint32_t c1,
                                                               uint32_t c2, uint32_t c3,
                                                               uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c0;
    const uint64_t b = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(b);
    c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return PhiloxBlock{{c0, c1, c2, c3}};
}

/// The block of `draw` number `draw` inside `element`, for the random op at `offset`.
/// Counter = {offset (32), draw (32), element (64)}, key = seed (64).
[[gnu::always_inline]] constexpr inline PhiloxBlock philox(uint64_t seed, uint32_t offset,
                                                           uint64_t element, uint32_t draw = 0) {
  return philox4x32(offset, draw, static_cast<uint32_t>(element),
                    static_cast<uint32_t>(element >> 32), static_cast<uint32_t>(seed),
                    static_cast<uint32_t>(seed >> 32));
}

/// Uniform f32 in [0, 1): the upper 24 bits of `w`.
[[gnu::always_inline]] constexpr inline float uniform_f32(uint32_t w) {
  return static_cast<float>(static_cast<int32_t>(w >> 8)) * 0x1p-24f;
}

/// Uniform f64 in [0, 1): the upper 53 bits of `w`.
[[gnu::always_inline]] constexpr inline double uniform_f64(uint64_t w) {
  return static_cast<double>(static_cast<int64_t>(w >> 11)) * 0x1p-53;
}

/// Standard normal f32 by Box-Muller from words 0 and 1. |result| < 6.
[[gnu::always_inline]] inline float normal_f32(const PhiloxBlock& b) {
  const float u = 1.0f - uniform_f32(b.w[0]);  // (0, 1], so that log is finite
  const float angle = uniform_f32(b.w[1]) * 6.28318530717958647692f;
  return tdm_sqrtf(-2.0f * tdm_logf(u)) * tdm_cosf(angle);
}

/// Standard normal f64 by Box-Muller from the whole block. |result| < 9.
[[gnu::always_inline]] inline double normal_f64(const PhiloxBlock& b) {
  const double u = 1.0 - uniform_f64(b.word64(0));
  const double angle = uniform_f64(b.word64(1)) * 6.28318530717958647692;
  return tdm_sqrt(-2.0 * tdm_log(u)) * tdm_cos(angle);
}

/// Integer in [0, range) from 64 random bits by multiply-high; range 0 means 2^64. The bias of any
/// value is below range / 2^64.
[[gnu::always_inline]] constexpr inline uint64_t uniform_u64(uint64_t w, uint64_t range) {
  if (range == 0) return w;
  const uint64_t wl = w & 0xFFFFFFFFu, wh = w >> 32;
  const uint64_t rl = range & 0xFFFFFFFFu, rh = range >> 32;
  const uint64_t mid = wh * rl + (wl * rl >> 32);
  const uint64_t mid2 = wl * rh + (mid & 0xFFFFFFFFu);
  return wh * rh + (mid >> 32) + (mid2 >> 32);
}

/// Integer in [low, high) from one block; low < high must hold (checked by the op's shape rule).
[[gnu::always_inline]] constexpr inline int64_t uniform_int(const PhiloxBlock& b, int64_t low,
                                                            int64_t high) {
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  return static_cast<int64_t>(static_cast<uint64_t>(low) + uniform_u64(b.word64(0), range));
}

/// A sequence of blocks for host code that draws one by one (samplers, initialisers, tests):
/// element `element` of the stream (seed, offset), draw 0, 1, 2 ...
class PhiloxStream {
 public:
  constexpr explicit PhiloxStream(uint64_t seed, uint32_t offset = 0, uint64_t element = 0,
                                  uint32_t draw = 0)
      : seed_(seed), element_(element), offset_(offset), draw_(draw) {}

  constexpr PhiloxBlock next_block() { return philox(seed_, offset_, element_, draw_++); }
  /// Integer in [0, range).
  constexpr uint64_t next_below(uint64_t range) {
    return uniform_u64(next_block().word64(0), range);
  }
  constexpr float next_uniform() { return uniform_f32(next_block().w[0]); }
  float next_normal() { return normal_f32(next_block()); }

  /// The position: a stream constructed from these values continues with the same draws.
  constexpr uint64_t seed() const { return seed_; }
  constexpr uint32_t offset() const { return offset_; }
  constexpr uint64_t element() const { return element_; }
  constexpr uint32_t draw() const { return draw_; }

 private:
  uint64_t seed_;
  uint64_t element_;
  uint32_t offset_;
  uint32_t draw_;
};

}  // namespace tandem
