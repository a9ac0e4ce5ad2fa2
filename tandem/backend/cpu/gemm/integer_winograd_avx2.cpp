// SPDX-License-Identifier: Apache-2.0
// Winograd's transforms over codes, 16 channels or 8 sums at a time. Called only where the
// processor has AVX2.
#include "tandem/backend/cpu/gemm/integer_internal.h"

#ifdef __AVX2__
#include <immintrin.h>

#include <cstring>

namespace tandem::detail {
namespace {

constexpr int kVectors = 4, kSums = 8, kChannels = 16, kSide = 4;

__m256i load_vector(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
void store_vector(void* to, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(to), v); }

template <bool Signed>
__m256i wide_codes(const void* from) {
  const __m128i codes = _mm_loadu_si128(static_cast<const __m128i*>(from));
  return Signed ? _mm256_cvtepi8_epi16(codes) : _mm256_cvtepu8_epi16(codes);
}

// B^T d with the rows of B^T: (1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1).
void times_b(const __m256i (&d)[kSide], __m256i (&y)[kSide]) {
  y[0] = _mm256_sub_epi16(d[0], d[2]);
  y[1] = _mm256_add_epi16(d[1], d[2]);
  y[2] = _mm256_sub_epi16(d[2], d[1]);
  y[3] = _mm256_sub_epi16(d[1], d[3]);
}

template <bool Signed>
void winograd_in(const IntegerWinogradLoops::In& t) {
  const __m256i zero = _mm256_set1_epi16(static_cast<int16_t>(t.zero));
  for (int64_t k = 0; k < t.c; k += kChannels) {
    __m256i rows[kSide][kSide], d[kSide], y[kSide];
    for (int i = 0; i < kSide; ++i) {
      for (int j = 0; j < kSide; ++j) {
        d[j] = _mm256_setzero_si256();
        if (i < t.r0 || i >= t.r1 || j < t.q0 || j >= t.q1) continue;
        const uint8_t* from = t.x + i * t.row + j * t.step + k;
        uint8_t last[kChannels] = {};
        if (t.c - k < kChannels)
          from = static_cast<uint8_t*>(std::memcpy(last, from, static_cast<size_t>(t.c - k)));
        d[j] = _mm256_sub_epi16(wide_codes<Signed>(from), zero);
      }
      times_b(d, rows[i]);
    }
    for (int j = 0; j < kSide; ++j) {
      for (int i = 0; i < kSide; ++i) d[i] = rows[i][j];
      times_b(d, y);
      for (int i = 0; i < kSide; ++i) store_vector(t.v + (i * kSide + j) * t.plane + k, y[i]);
    }
  }
}

// A^T m with the rows of A^T: (1, 1, 1, 0), (0, 1, -1, -1).
void times_a(const __m256i (&m)[kSide], __m256i& y0, __m256i& y1) {
  y0 = _mm256_add_epi32(_mm256_add_epi32(m[0], m[1]), m[2]);
  y1 = _mm256_sub_epi32(_mm256_sub_epi32(m[1], m[2]), m[3]);
}

void winograd_out(const IntegerWinogradLoops::Out& t) {
  int32_t part[2][2][kVectors * kSums];
  const bool whole = t.rows == 2 && t.columns == 2 && t.channels == kVectors * kSums;
  for (int v = 0; v < kVectors; ++v) {
    __m256i rows[2][kSide], m[kSide], y[2];
    for (int j = 0; j < kSide; ++j) {
      for (int i = 0; i < kSide; ++i)
        m[i] = load_vector(t.m + (i * kSide + j) * t.plane + v * kSums);
      times_a(m, rows[0][j], rows[1][j]);
    }
    const __m256i bias = load_vector(t.bias + v * kSums);
    for (int i = 0; i < 2; ++i) {
      times_a(rows[i], y[0], y[1]);
      for (int j = 0; j < 2; ++j)
        store_vector(whole ? t.y + i * t.row + j * t.step + v * kSums : part[i][j] + v * kSums,
                     _mm256_add_epi32(_mm256_srai_epi32(y[j], 2), bias));
    }
  }
  if (whole) return;
  for (int i = 0; i < t.rows; ++i)
    for (int j = 0; j < t.columns; ++j)
      std::memcpy(t.y + i * t.row + j * t.step, part[i][j],
                  static_cast<size_t>(t.channels) * sizeof(int32_t));
}

}  // namespace

constinit const IntegerWinogradLoops kIntegerWinogradAvx2 = {winograd_in<false>, winograd_in<true>,
                                                             winograd_out};

}  // namespace tandem::detail

#else
namespace tandem::detail {
constinit const IntegerWinogradLoops kIntegerWinogradAvx2 = {};
}
#endif
