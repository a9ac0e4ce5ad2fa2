// SPDX-License-Identifier: Apache-2.0
// Depthwise convolutions of codes, 16 channels at a time. Called only where the processor has AVX2.
#include "tandem/backend/cpu/conv/integer_depthwise_internal.h"
#include "tandem/base/unroll_internal.h"

#ifdef __AVX2__
#include <immintrin.h>

namespace tandem::detail {
namespace {

constexpr int64_t kBlock = 16, kHalf = 16, kSums = 8;  // channels; weights of 16 bits, and sums

template <bool Signed>
__m256i widen(const uint8_t* from) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return Signed ? _mm256_cvtepi8_epi16(codes) : _mm256_cvtepu8_epi16(codes);
}

// Sums of 16 channels, in the order of the packed weight: 0-3 and 8-11, 4-7 and 12-15.
struct Sixteen {
  __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();

  void add(__m256i x_low, __m256i x_high, const int16_t* w) {
    const auto* line = reinterpret_cast<const __m256i*>(w);
    low = _mm256_add_epi32(low, _mm256_madd_epi16(x_low, _mm256_loadu_si256(line)));
    high = _mm256_add_epi32(high, _mm256_madd_epi16(x_high, _mm256_loadu_si256(line + 1)));
  }
  void store(int32_t* y, const int32_t* bias) const {
    constexpr int kLower = 0x20, kUpper = 0x31;
    put(y, bias, _mm256_permute2x128_si256(low, high, kLower));
    put(y + kSums, bias + kSums, _mm256_permute2x128_si256(low, high, kUpper));
  }

 private:
  static void put(int32_t* y, const int32_t* bias, __m256i v) {
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bias));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), _mm256_add_epi32(v, b));
  }
};

int64_t pairs_of(int64_t kernel_h) { return (kernel_h + 1) / 2; }
int64_t block_start(const IntegerDepthwiseRow& r, int64_t i) {
  return i * kBlock + kBlock <= r.c ? i * kBlock : r.c - kBlock;
}

// P adjacent outputs from column x0 of x on, with all taps inside; channels i..i + 15.
template <bool Signed, int KH, int KW, int ST, int P>
inline void inner(const IntegerDepthwiseRow& r, int64_t x0, int64_t i, const int16_t* w,
                  int32_t* y) {
  constexpr int kPairs = (KH + 1) / 2;
  Sixteen sums[P];
  TD_UNROLL(16)
  for (int j = 0; j < (P - 1) * ST + KW; ++j) {
    const int64_t at = (x0 + j) * r.c + i;
    TD_UNROLL(4)
    for (int a = 0; a < kPairs; ++a) {
      const __m256i first = widen<Signed>(r.rows[2 * a] + at);
      const __m256i second = 2 * a + 1 < KH ? widen<Signed>(r.rows[2 * a + 1] + at) : first;
      const __m256i low = _mm256_unpacklo_epi16(first, second),
                    high = _mm256_unpackhi_epi16(first, second);
      TD_UNROLL(8)
      for (int p = 0; p < P; ++p)
        if (j - p * ST >= 0 && j - p * ST < KW)
          sums[p].add(low, high, w + ((j - p * ST) * kPairs + a) * 2 * kHalf);
    }
  }
  TD_UNROLL(8)
  for (int p = 0; p < P; ++p) sums[p].store(y + p * r.c + i, r.bias + i);
}

// One output of any kernel, whose taps may lie outside.
template <bool Signed>
void edge(const IntegerDepthwiseRow& r, int64_t o) {
  const int64_t pairs = pairs_of(r.kernel_h), x0 = o * r.stride - r.left;
  const int16_t* w = r.weight;
  for (int64_t k = 0; k * kBlock < r.c; ++k) {
    const int64_t i = block_start(r, k);
    Sixteen sums;
    for (int64_t b = x0; b < x0 + r.kernel_w; ++b) {
      const bool inside = b >= 0 && b < r.in_w;
      for (int64_t a = 0; a < pairs; ++a, w += 2 * kHalf) {
        const __m256i first = widen<Signed>(inside ? r.rows[2 * a] + b * r.c + i : r.outside + i),
                      second =
                          widen<Signed>(inside ? r.rows[2 * a + 1] + b * r.c + i : r.outside + i);
        sums.add(_mm256_unpacklo_epi16(first, second), _mm256_unpackhi_epi16(first, second), w);
      }
    }
    sums.store(r.y + o * r.c + i, r.bias + i);
  }
}

template <bool Signed, int KH, int KW, int ST, int P>
inline void pixels(const IntegerDepthwiseRow& r, int64_t o) {
  constexpr int64_t kStep = int64_t{KW} * ((KH + 1) / 2) * 2 * kHalf;
  const int16_t* w = r.weight;
  for (int64_t k = 0; k * kBlock < r.c; ++k, w += kStep)
    inner<Signed, KH, KW, ST, P>(r, o * ST - r.left, block_start(r, k), w, r.y + o * r.c);
}

template <bool Signed, int K, int ST>
void row_of(const IntegerDepthwiseRow& r, int64_t first, int64_t last) {
  constexpr int P = 4;
  int64_t o = first;
  for (; o + P <= last; o += P) pixels<Signed, K, K, ST, P>(r, o);
  for (; o < last; ++o) pixels<Signed, K, K, ST, 1>(r, o);
}

template <bool Signed>
void depthwise_row(const IntegerDepthwiseRow& r) {
  // Outputs first..last-1 read no column outside.
  int64_t first = (r.left + r.stride - 1) / r.stride;
  int64_t last = r.in_w + r.left >= r.kernel_w ? (r.in_w + r.left - r.kernel_w) / r.stride + 1 : 0;
  if (last > r.w) last = r.w;
  if (first > last) first = last;
  const int kind = r.kernel_h != r.kernel_w || r.stride > 2 ? 0 : r.kernel_h * 10 + r.stride;
  switch (kind) {
    case 31:
      row_of<Signed, 3, 1>(r, first, last);
      break;
    case 32:
      row_of<Signed, 3, 2>(r, first, last);
      break;
    case 51:
      row_of<Signed, 5, 1>(r, first, last);
      break;
    case 52:
      row_of<Signed, 5, 2>(r, first, last);
      break;
    default:
      first = last = 0;
  }
  for (int64_t o = 0; o < first; ++o) edge<Signed>(r, o);
  for (int64_t o = last; o < r.w; ++o) edge<Signed>(r, o);
}

}  // namespace

constinit const IntegerDepthwiseLoops kIntegerDepthwiseAvx2 = {depthwise_row<false>,
                                                               depthwise_row<true>};

}  // namespace tandem::detail

#else
namespace tandem::detail {
constinit const IntegerDepthwiseLoops kIntegerDepthwiseAvx2 = {};
}
#endif
