// SPDX-License-Identifier: Apache-2.0
#include "tandem/data/resize_loops_internal.h"

#include <algorithm>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tandem::data::detail {
namespace {

constexpr int32_t kHalf = 1 << (kResizeBits - 1);

uint8_t cut(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kResizeBits, 0, 255)); }

void rows_plain(const uint8_t* from, uint8_t* to, int64_t rows, int64_t in, int64_t out,
                const ResizeWindows& w) {
  for (int64_t y = 0; y < rows; ++y)
    for (int64_t x = 0; x < out; ++x) {
      const uint8_t* p = from + y * in + w.first[x];
      const int32_t* k = w.weights + x * w.taps;
      int32_t sum = kHalf;
      for (int64_t i = 0; i < w.count[x]; ++i) sum += p[i] * k[i];
      to[y * out + x] = cut(sum);
    }
}

void columns_plain(const uint8_t* from, uint8_t* to, int64_t begin, int64_t width, int64_t out,
                   const ResizeWindows& w) {
  for (int64_t y = 0; y < out; ++y)
    for (int64_t x = begin; x < width; ++x) {
      int32_t sum = kHalf;
      for (int64_t i = 0; i < w.count[y]; ++i)
        sum += from[(w.first[y] + i) * width + x] * w.weights[y * w.taps + i];
      to[y * width + x] = cut(sum);
    }
}

#if defined(__x86_64__)

/// Eight rows of eight bytes turned: byte j of row i becomes byte i of row j.
__attribute__((target("avx2"))) void turn(const uint8_t* from, int64_t stride, uint8_t* to,
                                          int64_t to_stride) {
  const auto row = [&](int64_t i) __attribute__((target("avx2"))) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i * stride));
  };
  const __m128i a = _mm_unpacklo_epi8(row(0), row(1)), b = _mm_unpacklo_epi8(row(2), row(3));
  const __m128i c = _mm_unpacklo_epi8(row(4), row(5)), d = _mm_unpacklo_epi8(row(6), row(7));
  const __m128i e = _mm_unpacklo_epi16(a, b), f = _mm_unpackhi_epi16(a, b);
  const __m128i g = _mm_unpacklo_epi16(c, d), h = _mm_unpackhi_epi16(c, d);
  const __m128i out[4] = {_mm_unpacklo_epi32(e, g), _mm_unpackhi_epi32(e, g),
                          _mm_unpacklo_epi32(f, h), _mm_unpackhi_epi32(f, h)};
  for (int k = 0; k < 4; ++k) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to + 2 * k * to_stride), out[k]);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to + (2 * k + 1) * to_stride),
                     _mm_unpackhi_epi64(out[k], out[k]));
  }
}

/// Eight sums rounded and cut to bytes, in the lower half.
__attribute__((target("avx2"))) __m128i cut8(__m256i sum) {
  sum = _mm256_srai_epi32(sum, kResizeBits);
  const __m128i words =
      _mm_packs_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  return _mm_packus_epi16(words, words);
}

/// Eight rows at once, turned so that a pixel of all eight is one load.
__attribute__((target("avx2"))) void rows_avx2(const uint8_t* from, uint8_t* to, int64_t rows,
                                               int64_t in, int64_t out, const ResizeWindows& w) {
  const int64_t whole_in = in / 8 * 8, whole_out = out / 8 * 8;
  std::vector<uint8_t> turned(static_cast<size_t>(8 * in)), made(static_cast<size_t>(8 * out));
  int64_t y = 0;
  for (; y + 8 <= rows; y += 8, from += 8 * in, to += 8 * out) {
    for (int64_t x = 0; x < whole_in; x += 8) turn(from + x, in, turned.data() + 8 * x, 8);
    for (int64_t x = whole_in; x < in; ++x)
      for (int64_t i = 0; i < 8; ++i) turned[static_cast<size_t>(8 * x + i)] = from[i * in + x];
    for (int64_t x = 0; x < out; ++x) {
      const uint8_t* p = turned.data() + 8 * w.first[x];
      const int32_t* k = w.weights + x * w.taps;
      __m256i sum = _mm256_set1_epi32(kHalf);
      for (int64_t i = 0; i < w.count[x]; ++i) {
        const __m256i v =
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * i)));
        sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(v, _mm256_set1_epi32(k[i])));
      }
      _mm_storel_epi64(reinterpret_cast<__m128i*>(made.data() + 8 * x), cut8(sum));
    }
    for (int64_t x = 0; x < whole_out; x += 8) turn(made.data() + 8 * x, 8, to + x, out);
    for (int64_t x = whole_out; x < out; ++x)
      for (int64_t i = 0; i < 8; ++i) to[i * out + x] = made[static_cast<size_t>(8 * x + i)];
  }
  _mm256_zeroupper();  // GCC 12 leaves it out of such functions, and plain code after it is slow
  rows_plain(from, to, rows - y, in, out, w);
}

/// Thirty-two columns at once.
__attribute__((target("avx2"))) void columns_avx2(const uint8_t* from, uint8_t* to, int64_t width,
                                                  int64_t out, const ResizeWindows& w) {
  const int64_t whole = width / 32 * 32;
  for (int64_t y = 0; y < out; ++y) {
    const uint8_t* first = from + w.first[y] * width;
    const int32_t* k = w.weights + y * w.taps;
    for (int64_t x = 0; x < whole; x += 32) {
      __m256i sum[4];
      for (__m256i& s : sum) s = _mm256_set1_epi32(kHalf);
      const uint8_t* p = first + x;
      for (int64_t i = 0; i < w.count[y]; ++i, p += width) {
        const __m256i weight = _mm256_set1_epi32(k[i]);
        for (int j = 0; j < 4; ++j) {
          const __m256i v =
              _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * j)));
          sum[j] = _mm256_add_epi32(sum[j], _mm256_mullo_epi32(v, weight));
        }
      }
      for (int j = 0; j < 4; ++j)
        _mm_storel_epi64(reinterpret_cast<__m128i*>(to + y * width + x + 8 * j), cut8(sum[j]));
    }
  }
  _mm256_zeroupper();
  columns_plain(from, to, whole, width, out, w);
}

bool has_avx2() {
  static const bool yes = __builtin_cpu_supports("avx2");
  return yes;
}

#endif

}  // namespace

void resize_rows(const uint8_t* from, uint8_t* to, int64_t rows, int64_t in, int64_t out,
                 const ResizeWindows& w) {
#if defined(__x86_64__)
  if (has_avx2()) return rows_avx2(from, to, rows, in, out, w);
#endif
  rows_plain(from, to, rows, in, out, w);
}

void resize_columns(const uint8_t* from, uint8_t* to, int64_t width, int64_t out,
                    const ResizeWindows& w) {
#if defined(__x86_64__)
  if (has_avx2()) return columns_avx2(from, to, width, out, w);
#endif
  columns_plain(from, to, 0, width, out, w);
}

}  // namespace tandem::data::detail
