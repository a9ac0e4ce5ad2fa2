// SPDX-License-Identifier: Apache-2.0
// Integer tiles of 12 rows and two vectors of 16 sums: of 16 bits (VPDPWSSD, which multiplies and
// adds at once) and of bytes (VPDPBUSD). Called only where the processor has AVX-512 VNNI.
#include "tandem/backend/cpu/gemm/integer_internal.h"

#ifdef __AVX512VNNI__
#include "tandem/backend/cpu/gemm/integer_vectors_internal.h"

namespace tandem::detail {
namespace {

struct Vnni : IntegerVectors512 {
  static V add_products(V c, V a, V w) { return _mm512_dpwssd_epi32(c, a, w); }
};

#include "tandem/backend/cpu/gemm/integer_loops.inc"

// Two lines of a packed panel, 32 columns of two weights each, are interleaved into 32 columns of
// four. That is done in each 128 bits, so that the first vector holds columns 0-3, 8-11, 16-19 and
// 24-27, the second one those between: sums are brought into order where they are stored.
struct ColumnOrder {
  __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27),
          second = _mm512_setr_epi32(4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31),
          low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23),
          high = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
};

/// sum += x w, in place: with the intrinsic GCC 12 stores each sum in every turn of the loop.
inline void add_bytes(__m512i& sum, __m512i x, __m512i w) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
}

// Few rows have few sums: these are added up in several sets, so that none waits for the one
// before.
template <int R>
void byte_tile(const IntegerTile& t) {
  constexpr int64_t kRow = 64;  // of the packed weight: 32 columns of two
  constexpr int kSets = R == 1 ? 4 : R <= 3 ? 2 : 1;
  using S = Vnni;
  const ColumnOrder order;
  S::V sets[kSets][R][2];
  auto& c = sets[0];
  TD_UNROLL(12)
  for (int i = 0; i < R; ++i) {
    const int32_t* start = t.accumulate ? t.c + i * t.c_row : t.bias;
    const S::V a = start ? S::load(start, t.columns) : S::zero(),
               b = start ? S::load(start + S::kWidth, t.columns - S::kWidth) : S::zero();
    c[i][0] = _mm512_permutex2var_epi32(a, order.first, b);
    c[i][1] = _mm512_permutex2var_epi32(a, order.second, b);
    for (int k = 1; k < kSets; ++k) sets[k][i][0] = sets[k][i][1] = S::zero();
  }
  const auto add = [&](S::V(&to)[R][2], const uint8_t* codes, S::V even, S::V odd) {
    const S::V w0 = _mm512_unpacklo_epi16(even, odd), w1 = _mm512_unpackhi_epi16(even, odd);
    TD_UNROLL(12)
    for (int i = 0; i < R; ++i) {
      int32_t four;
      std::memcpy(&four, codes + i * t.am, sizeof four);
      const S::V x = _mm512_set1_epi32(four);
      add_bytes(to[i][0], x, w0);
      add_bytes(to[i][1], x, w1);
    }
  };
  const char* w = static_cast<const char*>(t.w);
  const char* ahead = t.ahead ? t.ahead : w;
  const int64_t line = t.ahead ? 2 * kRow : 0;
  for (int64_t s = 0; s < t.segments; ++s) {
    const uint8_t* a = t.codes + s * t.a_segment;
    int64_t q = 0;
    if constexpr (kSets > 1)
      for (; q + 2 * kSets <= t.pairs; q += 2 * kSets, ahead += kSets * line)
        for (int k = 0; k < kSets; ++k, a += 4, w += 2 * kRow) {
          __builtin_prefetch(ahead + k * line, 0, 2);
          __builtin_prefetch(ahead + k * line + (line ? kRow : 0), 0, 2);
          add(sets[k], a, _mm512_loadu_si512(w), _mm512_loadu_si512(w + kRow));
        }
    for (; q + 2 <= t.pairs; q += 2, a += 4, w += 2 * kRow, ahead += line) {
      __builtin_prefetch(ahead, 0, 2);
      __builtin_prefetch(ahead + (line ? kRow : 0), 0, 2);
      add(c, a, _mm512_loadu_si512(w), _mm512_loadu_si512(w + kRow));
    }
    if (q < t.pairs) {
      add(c, a, _mm512_loadu_si512(w), S::zero());
      w += kRow;
    }
  }
  TD_UNROLL(12)
  for (int i = 0; i < R; ++i) {
    for (int k = 1; k < kSets; ++k) {
      c[i][0] = _mm512_add_epi32(c[i][0], sets[k][i][0]);
      c[i][1] = _mm512_add_epi32(c[i][1], sets[k][i][1]);
    }
    int32_t* to = t.c + i * t.c_row;
    S::store(to, t.columns, _mm512_permutex2var_epi32(c[i][0], order.low, c[i][1]));
    S::store(to + S::kWidth, t.columns - S::kWidth,
             _mm512_permutex2var_epi32(c[i][0], order.high, c[i][1]));
  }
}

template <int... I>
constexpr IntegerLoops with_bytes(IntegerLoops t, std::integer_sequence<int, I...>) {
  ((t.byte_tile[I] = byte_tile<I + 1>), ...);
  return t;
}

}  // namespace

constinit const IntegerLoops kIntegerVnni =
    with_bytes(integer_table<Vnni>(std::make_integer_sequence<int, Vnni::kRows>()),
               std::make_integer_sequence<int, Vnni::kRows>());

}  // namespace tandem::detail

#else
namespace tandem::detail {
constinit const IntegerLoops kIntegerVnni = {};
}
#endif
