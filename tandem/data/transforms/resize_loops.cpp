// SPDX-License-Identifier: Apache-2.0
#include "tandem/data/transforms/resize_loops_internal.h"

#include <algorithm>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tandem/base/processor.h"
#include "tandem/base/unroll_internal.h"
#include "tandem/data/transforms/pixel_loops_internal.h"

namespace tandem::data::detail {
namespace {

constexpr int32_t kHalf = 1 << (kResizeBits - 1);

uint8_t cut(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kResizeBits, 0, 255)); }

void rows_plain(const uint8_t* from, uint8_t* to, int64_t rows, int64_t in, int64_t out,
                int64_t channels, const ResizeWindows& w) {
  for (int64_t y = 0; y < rows; ++y, from += in * channels, to += out * channels)
    for (int64_t x = 0; x < out; ++x)
      for (int64_t c = 0; c < channels; ++c) {
        const uint8_t* p = from + w.first[x] * channels + c;
        const int32_t* k = w.weights + x * w.taps;
        int32_t sum = kHalf;
        for (int64_t i = 0; i < w.count[x]; ++i) sum += p[i * channels] * k[i];
        to[x * channels + c] = cut(sum);
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

/// 128 bytes whose indices have 7 bits: byte (abcdefg) goes to (bcdefga). Three rotations transpose
/// 8 rows of 16 bytes into 16 of 8; four transpose them back.
__attribute__((target("avx2"), always_inline)) inline void rotate(__m128i (&v)[8]) {
  __m128i out[8];
  TD_UNROLL(4)
  for (int k = 0; k < 4; ++k) {
    out[2 * k] = _mm_unpacklo_epi8(v[k], v[k + 4]);
    out[2 * k + 1] = _mm_unpackhi_epi8(v[k], v[k + 4]);
  }
  TD_UNROLL(8)
  for (int k = 0; k < 8; ++k) v[k] = out[k];
}

/// Eight rows of `n` bytes, `stride` apart, to n rows of eight; n is a multiple of 16.
__attribute__((target("avx2"))) void turn(const uint8_t* from, int64_t stride, int64_t n,
                                          uint8_t* to) {
  for (int64_t x = 0; x < n; x += 16) {
    __m128i v[8];
    TD_UNROLL(8)
    for (int k = 0; k < 8; ++k)
      v[k] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + k * stride + x));
    rotate(v);
    rotate(v);
    rotate(v);
    TD_UNROLL(8)
    for (int k = 0; k < 8; ++k)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 8 * x + 16 * k), v[k]);
  }
}
/// The inverse of turn().
__attribute__((target("avx2"))) void turn_back(const uint8_t* from, uint8_t* to, int64_t stride,
                                               int64_t n) {
  for (int64_t x = 0; x < n; x += 16) {
    __m128i v[8];
    TD_UNROLL(8)
    for (int k = 0; k < 8; ++k)
      v[k] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 8 * x + 16 * k));
    TD_UNROLL(4)
    for (int level = 0; level < 4; ++level) rotate(v);
    TD_UNROLL(8)
    for (int k = 0; k < 8; ++k)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + k * stride + x), v[k]);
  }
}

/// Eight sums rounded and clamped to bytes, in the lower half.
__attribute__((target("avx2"))) __m128i cut8(__m256i sum) {
  sum = _mm256_srai_epi32(sum, kResizeBits);
  const __m128i words =
      _mm_packs_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  return _mm_packus_epi16(words, words);
}

/// Eight rows at once, transposed so that a pixel of all eight is one load.
__attribute__((target("avx2"))) void rows_avx2(const uint8_t* from, uint8_t* to, int64_t rows,
                                               int64_t in, int64_t out, const ResizeWindows& w) {
  const int64_t whole_in = in / 16 * 16, whole_out = out / 16 * 16;
  std::vector<uint8_t> turned(static_cast<size_t>(8 * in)), made(static_cast<size_t>(8 * out));
  int64_t y = 0;
  for (; y + 8 <= rows; y += 8, from += 8 * in, to += 8 * out) {
    turn(from, in, whole_in, turned.data());
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
    turn_back(made.data(), to, out, whole_out);
    for (int64_t x = whole_out; x < out; ++x)
      for (int64_t i = 0; i < 8; ++i) to[i * out + x] = made[static_cast<size_t>(8 * x + i)];
  }
  _mm256_zeroupper();  // GCC 12 leaves it out of such functions, and plain code after it is slow
  rows_plain(from, to, rows - y, in, out, 1, w);
}

// Weights have 22 bits and pixels 8: a 16-bit multiplication takes a weight in two halves.
constexpr int kLowBits = 11;

/// The two sums of a pair of rows, rounded: each half holds a row's three colours.
__attribute__((target("avx2"), always_inline)) inline __m256i rounded(__m256i high0, __m256i low0,
                                                                      __m256i high1, __m256i low1) {
  const __m256i row0 = _mm256_add_epi32(_mm256_slli_epi32(high0, kLowBits), low0);
  const __m256i row1 = _mm256_add_epi32(_mm256_slli_epi32(high1, kLowBits), low1);
  const __m256i sum = _mm256_add_epi32(_mm256_permute2x128_si256(row0, row1, 0x20),
                                       _mm256_permute2x128_si256(row0, row1, 0x31));
  return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(kHalf)), kResizeBits);
}

/// Four rows of three-byte pixels, `step` bytes apart; reads up to 13 bytes past a row.
__attribute__((target("avx2"))) void pixels_avx2(const uint8_t* from, int64_t step, uint8_t* to,
                                                 int64_t to_step, int64_t out,
                                                 const ResizeWindows& w) {
  // The first two of five pixels in the lower half, the next two in the upper: red, red, green,
  // green, blue, blue as words.
  const __m256i pick =
      _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1,  //
                       6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  const auto four = [pick](const uint8_t* p) __attribute__((target("avx2"), always_inline)) {
    return _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), pick);
  };
  const int64_t fours = (w.taps + 3) / 4;
  const auto* halves = reinterpret_cast<const __m256i*>(w.halves);
  for (int64_t x = 0; x < out; ++x, to += 3) {
    const uint8_t* p = from + 3 * w.first[x];
    const __m256i* k = halves + 2 * x * fours;
    __m256i kh = _mm256_loadu_si256(k), kl = _mm256_loadu_si256(k + 1);
    __m256i high[4], low[4];
    TD_UNROLL(4)
    for (int r = 0; r < 4; ++r) {
      const __m256i v = four(p + r * step);
      high[r] = _mm256_madd_epi16(v, kh);
      low[r] = _mm256_madd_epi16(v, kl);
    }
    for (int64_t i = 4; i < w.count[x]; i += 4) {
      p += 12;
      k += 2;
      kh = _mm256_loadu_si256(k);
      kl = _mm256_loadu_si256(k + 1);
      TD_UNROLL(4)
      for (int r = 0; r < 4; ++r) {
        const __m256i v = four(p + r * step);
        high[r] = _mm256_add_epi32(high[r], _mm256_madd_epi16(v, kh));
        low[r] = _mm256_add_epi32(low[r], _mm256_madd_epi16(v, kl));
      }
    }
    __m256i bytes = _mm256_packs_epi32(rounded(high[0], low[0], high[1], low[1]),
                                       rounded(high[2], low[2], high[3], low[3]));
    bytes = _mm256_packus_epi16(bytes, bytes);  // rows 0 and 2, then 1 and 3
    const __m128i even = _mm256_castsi256_si128(bytes), odd = _mm256_extracti128_si256(bytes, 1);
    const int32_t pixel[4] = {_mm_cvtsi128_si32(even), _mm_cvtsi128_si32(odd),
                              _mm_extract_epi32(even, 1), _mm_extract_epi32(odd, 1)};
    if (x + 1 < out) {  // the fourth byte belongs to the next position, which is written later
      TD_UNROLL(4)
      for (int r = 0; r < 4; ++r) std::memcpy(to + r * to_step, &pixel[r], 4);
    } else {
      for (int r = 0; r < 4; ++r) std::memcpy(to + r * to_step, &pixel[r], 3);
    }
  }
  _mm256_zeroupper();
}

/// The last rows are processed in a copy: windows extend up to three pixels past their last weight,
/// where the image has none.
__attribute__((target("avx2"))) void rows_of_pixels_avx2(const uint8_t* from, uint8_t* to,
                                                         int64_t rows, int64_t in, int64_t out,
                                                         const ResizeWindows& w) {
  const int64_t step = 3 * in, to_step = 3 * out;
  int64_t y = 0;
  for (; y + 4 < rows; y += 4)
    pixels_avx2(from + y * step, step, to + y * to_step, to_step, out, w);
  const int64_t left = rows - y;
  std::vector<uint8_t> last(static_cast<size_t>(4 * step + 16)),
      made(static_cast<size_t>(4 * to_step));
  std::memcpy(last.data(), from + y * step, static_cast<size_t>(left * step));
  pixels_avx2(last.data(), step, made.data(), to_step, out, w);
  std::memcpy(to + y * to_step, made.data(), static_cast<size_t>(left * to_step));
}

/// Thirty-two columns at once, then eight.
__attribute__((target("avx2"))) void columns_avx2(const uint8_t* from, uint8_t* to, int64_t width,
                                                  int64_t out, const ResizeWindows& w) {
  const int64_t whole = width / 32 * 32, eights = width / 8 * 8;
  for (int64_t y = 0; y < out; ++y) {
    const uint8_t* first = from + w.first[y] * width;
    const int32_t* k = w.weights + y * w.taps;
    for (int64_t x = 0; x < whole; x += 32) {
      __m256i sum[4];
      TD_UNROLL(4)
      for (int j = 0; j < 4; ++j) sum[j] = _mm256_set1_epi32(kHalf);
      const uint8_t* p = first + x;
      for (int64_t i = 0; i < w.count[y]; ++i, p += width) {
        const __m256i weight = _mm256_set1_epi32(k[i]);
        TD_UNROLL(4)
        for (int j = 0; j < 4; ++j) {
          const __m256i v =
              _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * j)));
          sum[j] = _mm256_add_epi32(sum[j], _mm256_mullo_epi32(v, weight));
        }
      }
      TD_UNROLL(4)
      for (int j = 0; j < 4; ++j)
        _mm_storel_epi64(reinterpret_cast<__m128i*>(to + y * width + x + 8 * j), cut8(sum[j]));
    }
    for (int64_t x = whole; x < eights; x += 8) {
      __m256i sum = _mm256_set1_epi32(kHalf);
      for (int64_t i = 0; i < w.count[y]; ++i) {
        const __m256i v = _mm256_cvtepu8_epi32(
            _mm_loadl_epi64(reinterpret_cast<const __m128i*>(first + i * width + x)));
        sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(v, _mm256_set1_epi32(k[i])));
      }
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to + y * width + x), cut8(sum));
    }
  }
  _mm256_zeroupper();
  columns_plain(from, to, eights, width, out, w);
}

#endif

}  // namespace

std::vector<int16_t> halves_of(const int32_t* weights, int64_t taps, int64_t n) {
  std::vector<int16_t> out;
#if defined(__x86_64__)
  const int64_t fours = (taps + 3) / 4;
  out.resize(static_cast<size_t>(n * fours * 32));
  int16_t* to = out.data();
  for (int64_t i = 0; i < n; ++i)
    for (int64_t four = 0; four < fours; ++four, to += 32)
      for (int64_t j = 0; j < 16; ++j) {  // words of `pick` in pixels_avx2
        const int64_t k = 4 * four + 2 * (j / 8) + j % 2;
        if (k >= taps || j % 8 >= 6) continue;
        const int32_t v = weights[i * taps + k];
        to[j] = static_cast<int16_t>(v >> kLowBits);
        to[16 + j] = static_cast<int16_t>(v & ((1 << kLowBits) - 1));
      }
#else
  (void)weights, (void)taps, (void)n;
#endif
  return out;
}

void resize_rows(const uint8_t* from, uint8_t* to, int64_t rows, int64_t in, int64_t out,
                 int64_t channels, const ResizeWindows& w) {
#if defined(__x86_64__)
  if (cpu_features().avx2 && channels == 1) return rows_avx2(from, to, rows, in, out, w);
  if (cpu_features().avx2 && channels == 3 && in >= 5)
    return rows_of_pixels_avx2(from, to, rows, in, out, w);
#endif
  rows_plain(from, to, rows, in, out, channels, w);
}

void resize_columns(const uint8_t* from, uint8_t* to, int64_t width, int64_t out,
                    const ResizeWindows& w) {
#if defined(__x86_64__)
  if (cpu_features().avx2) return columns_avx2(from, to, width, out, w);
#endif
  columns_plain(from, to, 0, width, out, w);
}

}  // namespace tandem::data::detail
