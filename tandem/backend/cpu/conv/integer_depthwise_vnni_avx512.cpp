// SPDX-License-Identifier: Apache-2.0
// Depthwise convolutions of codes, four taps at a time. Three or four rows of bytes are interleaved
// so that the taps of a channel are neighbours; that leaves four vectors of sums, whose order is
// the one that packing with saturation undoes. Called only where the processor has AVX-512 VNNI.
#include "tandem/backend/cpu/conv/integer_depthwise_internal.h"
#include "tandem/base/unroll_internal.h"

#ifdef __AVX512VNNI__
#include <immintrin.h>

#include <algorithm>
#include <cstring>

namespace tandem::detail {
namespace {

constexpr int64_t kBlock = 16, kFour = 4;  // channels: of a block, of 128 bits of sums
constexpr int64_t kLine = 32;              // elements of two taps of a block of the packed weight

// Vectors with the bytes of 4, 2 or 1 blocks.
struct Four {
  using I = __m512i;
  using F = __m512;
  static constexpr int kBlocks = 4;
  static I load(const void* x) { return _mm512_loadu_si512(x); }
  static void store(void* to, I v) { _mm512_storeu_si512(to, v); }
  static F load_f(const float* x) { return _mm512_loadu_ps(x); }
  static F all(float x) { return _mm512_set1_ps(x); }
  static I all16(int16_t x) { return _mm512_set1_epi16(x); }
  static I flip(I x) { return _mm512_xor_si512(x, _mm512_set1_epi8(-128)); }
  static I low8(I a, I b) { return _mm512_unpacklo_epi8(a, b); }
  static I high8(I a, I b) { return _mm512_unpackhi_epi8(a, b); }
  static I low16(I a, I b) { return _mm512_unpacklo_epi16(a, b); }
  static I high16(I a, I b) { return _mm512_unpackhi_epi16(a, b); }
  static F from_int(I x) { return _mm512_cvtepi32_ps(x); }
  static I to_int(F x) { return _mm512_cvtps_epi32(x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static I pack32(I a, I b) { return _mm512_packs_epi32(a, b); }
  static I pack16(I a, I b) { return _mm512_packus_epi16(a, b); }
  static I add16(I a, I b) { return _mm512_adds_epi16(a, b); }
  // 128 bits of each: sums of 4 channels.
  static void put(int32_t* y, const I (&v)[4]) {
    constexpr int kLow = 0x44, kHigh = 0xee, kEven = 0x88, kOdd = 0xdd;
    const I a = _mm512_shuffle_i32x4(v[0], v[1], kLow), b = _mm512_shuffle_i32x4(v[2], v[3], kLow),
            c = _mm512_shuffle_i32x4(v[0], v[1], kHigh),
            d = _mm512_shuffle_i32x4(v[2], v[3], kHigh);
    store(y, _mm512_shuffle_i32x4(a, b, kEven));
    store(y + kBlock, _mm512_shuffle_i32x4(a, b, kOdd));
    store(y + 2 * kBlock, _mm512_shuffle_i32x4(c, d, kEven));
    store(y + 3 * kBlock, _mm512_shuffle_i32x4(c, d, kOdd));
  }
};
struct Two {
  using I = __m256i;
  using F = __m256;
  static constexpr int kBlocks = 2;
  static I load(const void* x) { return _mm256_loadu_si256(static_cast<const I*>(x)); }
  static void store(void* to, I v) { _mm256_storeu_si256(static_cast<I*>(to), v); }
  static F load_f(const float* x) { return _mm256_loadu_ps(x); }
  static F all(float x) { return _mm256_set1_ps(x); }
  static I all16(int16_t x) { return _mm256_set1_epi16(x); }
  static I flip(I x) { return _mm256_xor_si256(x, _mm256_set1_epi8(-128)); }
  static I low8(I a, I b) { return _mm256_unpacklo_epi8(a, b); }
  static I high8(I a, I b) { return _mm256_unpackhi_epi8(a, b); }
  static I low16(I a, I b) { return _mm256_unpacklo_epi16(a, b); }
  static I high16(I a, I b) { return _mm256_unpackhi_epi16(a, b); }
  static F from_int(I x) { return _mm256_cvtepi32_ps(x); }
  static I to_int(F x) { return _mm256_cvtps_epi32(x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static I pack32(I a, I b) { return _mm256_packs_epi32(a, b); }
  static I pack16(I a, I b) { return _mm256_packus_epi16(a, b); }
  static I add16(I a, I b) { return _mm256_adds_epi16(a, b); }
  static void put(int32_t* y, const I (&v)[4]) {
    constexpr int kLower = 0x20, kUpper = 0x31, kHalf = 8;
    store(y, _mm256_permute2x128_si256(v[0], v[1], kLower));
    store(y + kHalf, _mm256_permute2x128_si256(v[2], v[3], kLower));
    store(y + kBlock, _mm256_permute2x128_si256(v[0], v[1], kUpper));
    store(y + kBlock + kHalf, _mm256_permute2x128_si256(v[2], v[3], kUpper));
  }
};
struct One {
  using I = __m128i;
  using F = __m128;
  static constexpr int kBlocks = 1;
  static I load(const void* x) { return _mm_loadu_si128(static_cast<const I*>(x)); }
  static void store(void* to, I v) { _mm_storeu_si128(static_cast<I*>(to), v); }
  static F load_f(const float* x) { return _mm_loadu_ps(x); }
  static F all(float x) { return _mm_set1_ps(x); }
  static I all16(int16_t x) { return _mm_set1_epi16(x); }
  static I flip(I x) { return _mm_xor_si128(x, _mm_set1_epi8(-128)); }
  static I low8(I a, I b) { return _mm_unpacklo_epi8(a, b); }
  static I high8(I a, I b) { return _mm_unpackhi_epi8(a, b); }
  static I low16(I a, I b) { return _mm_unpacklo_epi16(a, b); }
  static I high16(I a, I b) { return _mm_unpackhi_epi16(a, b); }
  static F from_int(I x) { return _mm_cvtepi32_ps(x); }
  static I to_int(F x) { return _mm_cvtps_epi32(x); }
  static F add(F a, F b) { return _mm_add_ps(a, b); }
  static F mul(F a, F b) { return _mm_mul_ps(a, b); }
  static F div(F a, F b) { return _mm_div_ps(a, b); }
  static F max(F a, F b) { return _mm_max_ps(a, b); }
  static F min(F a, F b) { return _mm_min_ps(a, b); }
  static I pack32(I a, I b) { return _mm_packs_epi32(a, b); }
  static I pack16(I a, I b) { return _mm_packus_epi16(a, b); }
  static I add16(I a, I b) { return _mm_adds_epi16(a, b); }
  static void put(int32_t* y, const I (&v)[4]) {
    for (int k = 0; k < 4; ++k) store(y + k * kFour, v[k]);
  }
};

/// sum += x w, in place: with the intrinsic GCC 12 stores each sum in every turn of the loop.
template <class I>
inline void add_four(I& sum, I x, const void* w) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "m"(*static_cast<const I*>(w)));
}

/// Calls f(first block, blocks, first channel) for each group of channels.
template <class Fn>
void for_groups(int64_t c, Fn f) {
  const int64_t whole = c / kBlock;
  int64_t b = 0;
  while (b < whole) {
    const int64_t left = whole - b, n = left >= 4 ? 4 : left >= 2 ? 2 : 1;
    f(b, n, b * kBlock);
    b += n;
  }
  if (c % kBlock != 0) f(b, int64_t{1}, c - kBlock);
}

// Columns of a group and how its sums end.
template <class S>
struct GroupOf {
  const IntegerDepthwiseBytes& r;
  const int8_t* w;
  const int32_t* bias;
  const float *scale, *add;
  int64_t channel;
  typename S::F by, low, high;
  typename S::I zero;

  GroupOf(const IntegerDepthwiseBytes& row, int64_t block, int64_t first, int64_t line)
      : r(row),
        w(row.weight + block * kBlock * line),
        bias(row.bias + block * kBlock),
        scale(row.scale + block * kBlock),
        add(row.add ? row.add + block * kBlock : nullptr),
        channel(first),
        by(S::all(row.by)),
        low(S::all(row.low)),
        high(S::all(row.high)),
        zero(S::all16(static_cast<int16_t>(row.zero))) {}

  // A call would store all sums and load them again.
  [[gnu::always_inline]] void finish(int64_t o, const typename S::I (&sums)[4]) const {
    if (!r.codes) return S::put(r.y + o * r.c + channel, sums);
    typename S::I q[4];
    TD_UNROLL(4)
    for (int k = 0; k < 4; ++k) {
      const int64_t at = k * S::kBlocks * kFour;
      typename S::F v = S::mul(S::from_int(sums[k]), S::load_f(scale + at));
      if (add) v = S::add(v, S::load_f(add + at));
      if (r.hardswish) {
        const typename S::F six = S::all(6.0F), moved = S::add(v, S::all(3.0F));
        v = S::div(S::mul(v, S::min(six, S::max(S::all(0.0F), moved))), six);
      }
      q[k] = S::to_int(S::min(high, S::max(low, S::mul(v, by))));
    }
    S::store(r.codes + o * r.c + channel, S::pack16(S::add16(S::pack32(q[0], q[1]), zero),
                                                    S::add16(S::pack32(q[2], q[3]), zero)));
  }
};

// P adjacent outputs from output o on. kInside: no column of theirs lies outside.
template <class S, bool Signed, int K, int ST, int P, bool kInside>
inline void outputs(const GroupOf<S>& g, int64_t o) {
  constexpr int kQuads = (K + 3) / 4, kBytes = S::kBlocks * static_cast<int>(kBlock);
  using I = typename S::I;
  const IntegerDepthwiseBytes& r = g.r;
  const int64_t x0 = o * ST - r.left;
  I sums[P][4];
  TD_UNROLL(4)
  for (int p = 0; p < P; ++p) {
    TD_UNROLL(4)
    for (int k = 0; k < 4; ++k) sums[p][k] = S::load(g.bias + k * S::kBlocks * kFour);
  }
  TD_UNROLL(16)
  for (int j = 0; j < (P - 1) * ST + K; ++j) {
    const int64_t column = x0 + j;
    const bool inside = kInside || (column >= 0 && column < r.in_w);
    const auto row = [&](int a) {
      const I x = S::load((inside ? r.rows[a] + column * r.c : r.outside) + g.channel);
      return Signed ? S::flip(x) : x;
    };
    TD_UNROLL(2)
    for (int q = 0; q < kQuads; ++q) {
      const auto tap = [&](int i) { return row(std::min(4 * q + i, K - 1)); };  // beyond: times 0
      const I a = tap(0), b = 4 * q + 1 < K ? tap(1) : a, c = 4 * q + 2 < K ? tap(2) : a,
              d = 4 * q + 3 < K ? tap(3) : c;
      const I low = S::low8(a, b), high = S::high8(a, b), low2 = S::low8(c, d),
              high2 = S::high8(c, d);
      const I x[4] = {S::low16(low, low2), S::high16(low, low2), S::low16(high, high2),
                      S::high16(high, high2)};
      TD_UNROLL(4)
      for (int p = 0; p < P; ++p) {
        const int v = j - p * ST;
        if (v < 0 || v >= K) continue;
        TD_UNROLL(4)
        for (int k = 0; k < 4; ++k)
          add_four(sums[p][k], x[k], g.w + ((v * kQuads + q) * 4 + k) * kBytes);
      }
    }
  }
  TD_UNROLL(4)
  for (int p = 0; p < P; ++p) g.finish(o + p, sums[p]);
}

template <class S, bool Signed, int K, int ST>
void group_row(const IntegerDepthwiseBytes& r, int64_t block, int64_t channel) {
  constexpr int P = 4, kQuads = (K + 3) / 4;
  const GroupOf<S> g(r, block, channel, int64_t{K} * kQuads * 4);
  // Outputs first..last-1 read no column outside.
  const int64_t last =
      std::clamp<int64_t>(r.in_w + r.left >= K ? (r.in_w + r.left - K) / ST + 1 : 0, 0, r.w);
  const int64_t first = std::min((r.left + ST - 1) / ST, last);
  int64_t o = 0;
  for (; o < first; ++o) outputs<S, Signed, K, ST, 1, false>(g, o);
  for (; o + P <= last; o += P) outputs<S, Signed, K, ST, P, true>(g, o);
  for (; o + 2 <= last; o += 2) outputs<S, Signed, K, ST, 2, true>(g, o);
  for (; o < last; ++o) outputs<S, Signed, K, ST, 1, true>(g, o);
  for (; o < r.w; ++o) outputs<S, Signed, K, ST, 1, false>(g, o);
}

template <bool Signed, int K, int ST>
void bytes_row(const IntegerDepthwiseBytes& r) {
  for_groups(r.c, [&](int64_t block, int64_t n, int64_t channel) {
    if (n == 4)
      group_row<Four, Signed, K, ST>(r, block, channel);
    else if (n == 2)
      group_row<Two, Signed, K, ST>(r, block, channel);
    else
      group_row<One, Signed, K, ST>(r, block, channel);
  });
}

// Two lines of the packed weight, pairs of taps of channels 0-3, 8-11, 4-7 and 12-15, become 128
// bits with four taps of each of 4 channels.
bool arrange(const int16_t* packed, int64_t c, int kernel_h, int kernel_w, int8_t* to,
             int32_t* sums) {
  const int64_t pairs = (kernel_h + 1) / 2, quads = (kernel_h + 3) / 4, line = kernel_w * quads;
  const __m512i order = _mm512_set_epi32(0x0f0e0706, 0x0d0c0504, 0x0b0a0302, 0x09080100, 0x0f0e0706,
                                         0x0d0c0504, 0x0b0a0302, 0x09080100, 0x0f0e0706, 0x0d0c0504,
                                         0x0b0a0302, 0x09080100, 0x0f0e0706, 0x0d0c0504, 0x0b0a0302,
                                         0x09080100),
                ones = _mm512_set1_epi8(1);
  __m512i beyond = _mm512_setzero_si512();
  for_groups(c, [&](int64_t block, int64_t n, int64_t) {
    for (int64_t i = 0; i < n; ++i) {
      const int16_t* from = packed + (block + i) * kernel_w * pairs * kLine;
      __m512i all = _mm512_setzero_si512();
      for (int64_t k = 0; k < line; ++k) {
        const int64_t pair = k % quads * 2;
        const int16_t* at = from + (k / quads * pairs + pair) * kLine;
        const __m512i a = _mm512_loadu_si512(at), b = pair + 1 < pairs
                                                          ? _mm512_loadu_si512(at + kLine)
                                                          : _mm512_setzero_si512();
        for (const __m512i& w : {a, b}) {  // -128..127 become 0..255
          const __m512i moved = _mm512_add_epi16(w, _mm512_set1_epi16(128));
          beyond = _mm512_or_si512(beyond, _mm512_and_si512(moved, _mm512_set1_epi16(-256)));
        }
        const __m512i four = _mm512_shuffle_epi8(_mm512_packs_epi16(a, b), order);
        all = _mm512_dpbusd_epi32(all, ones, four);
        int8_t* place = to + 4 * (block * kBlock * line + k * n * kBlock) + i * 4 * kFour;
        const int64_t step = n * 4 * kFour;
        _mm_storeu_si128(reinterpret_cast<__m128i*>(place), _mm512_castsi512_si128(four));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(place + 2 * step),
                         _mm512_extracti32x4_epi32(four, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(place + step),
                         _mm512_extracti32x4_epi32(four, 2));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(place + 3 * step),
                         _mm512_extracti32x4_epi32(four, 3));
      }
      int32_t* place = sums + block * kBlock + i * kFour;
      const int64_t step = n * kFour;
      _mm_storeu_si128(reinterpret_cast<__m128i*>(place), _mm512_castsi512_si128(all));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(place + 2 * step),
                       _mm512_extracti32x4_epi32(all, 1));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(place + step), _mm512_extracti32x4_epi32(all, 2));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(place + 3 * step),
                       _mm512_extracti32x4_epi32(all, 3));
    }
  });
  return _mm512_test_epi16_mask(beyond, beyond) == 0;
}

void arrange_numbers(const void* from, int64_t c, void* to) {
  const auto* x = static_cast<const int32_t*>(from);
  auto* y = static_cast<int32_t*>(to);
  for_groups(c, [&](int64_t block, int64_t n, int64_t channel) {
    for (int64_t i = 0; i < n; ++i)
      for (int64_t k = 0; k < 4; ++k)
        std::memcpy(y + block * kBlock + (k * n + i) * kFour, x + channel + i * kBlock + k * kFour,
                    kFour * sizeof(int32_t));
  });
}

}  // namespace

constinit const IntegerDepthwiseByteLoops kIntegerDepthwiseVnni = {
    arrange,
    arrange_numbers,
    {{{bytes_row<false, 3, 1>, bytes_row<true, 3, 1>},
      {bytes_row<false, 3, 2>, bytes_row<true, 3, 2>}},
     {{bytes_row<false, 5, 1>, bytes_row<true, 5, 1>},
      {bytes_row<false, 5, 2>, bytes_row<true, 5, 2>}}}};

}  // namespace tandem::detail

#else
namespace tandem::detail {
constinit const IntegerDepthwiseByteLoops kIntegerDepthwiseVnni = {};
}
#endif
