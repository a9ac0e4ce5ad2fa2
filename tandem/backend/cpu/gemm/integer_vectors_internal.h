// SPDX-License-Identifier: Apache-2.0
// The vectors of integer tiles with AVX-512, but for how products are added.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "tandem/base/unroll_internal.h"

namespace tandem::detail {
namespace {

struct IntegerVectors512 {
  using V = __m512i;
  static constexpr int kWidth = 16, kRows = 12;
  static V zero() { return _mm512_setzero_si512(); }
  static V pair(const int16_t* a) {
    int32_t two;
    std::memcpy(&two, a, sizeof two);
    return _mm512_set1_epi32(two);
  }
  static V weight(const int8_t* w) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)));
  }
  static __mmask16 mask(int64_t n) {
    return n >= kWidth ? __mmask16(0xffff) : n <= 0 ? __mmask16(0) : __mmask16((1u << n) - 1);
  }
  static V load(const int32_t* from, int64_t n) { return _mm512_maskz_loadu_epi32(mask(n), from); }
  static void store(int32_t* to, int64_t n, V v) { _mm512_mask_storeu_epi32(to, mask(n), v); }
};

}  // namespace
}  // namespace tandem::detail
