// SPDX-License-Identifier: Apache-2.0
// Sums of products of codes, as C: four rows of weights at a time, so that codes are loaded once
// for all of them, and planes of one channel. Every form computes the same integers: plain C, which
// compilers make vector code of; the vectors of AVX2, SSE, NEON and WebAssembly, by one text over a
// few functions of each; those of Helium; and the pairs of ARM's DSP instructions (SMLAD).
#include "tandem/edge/rows/functions_internal.h"

namespace tandem::edge {

const char* const kCodeVectors =
    R"C(/* Vectors for sums of codes. -DTDM_PLAIN leaves them out, and so does -Os: the integers are the same. */
#if !defined(TDM_PLAIN) && !defined(__OPTIMIZE_SIZE__)
#define TDM_INLINE static inline __attribute__((unused, always_inline))
#if defined(__AVX2__) && defined(__x86_64__)
#include <immintrin.h>
#define TDM_LANES 16
typedef __m256i tdm_codes, tdm_sums;
#define TDM_16(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
#define TDM_32(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define tdm_load_i16(p) TDM_32(p)
#define tdm_load_i8(p) _mm256_cvtepi8_epi16(TDM_16(p))
#define tdm_load_u8(p) _mm256_cvtepu8_epi16(TDM_16(p))
#define tdm_and(a, b) _mm256_and_si256(a, b)
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define tdm_add(s, x, w) _mm256_dpwssd_epi32(s, x, w)
#define tdm_add_u8(s, x, w) _mm256_dpbusd_epi32(s, TDM_32(x), TDM_32(w))
#elif defined(__AVXVNNI__)
#define tdm_add(s, x, w) _mm256_dpwssd_avx_epi32(s, x, w)
#define tdm_add_u8(s, x, w) _mm256_dpbusd_avx_epi32(s, TDM_32(x), TDM_32(w))
#else
#define tdm_add(s, x, w) _mm256_add_epi32(s, _mm256_madd_epi16(x, w))
#endif
#define TDM_BYTES 32
#define tdm_same(v) _mm256_set1_epi32(v)
#define tdm_add_low(s, x, y, w) tdm_add(s, _mm256_unpacklo_epi16(x, y), w)
#define tdm_add_high(s, x, y, w) tdm_add(s, _mm256_unpackhi_epi16(x, y), w)
TDM_INLINE void tdm_store(tdm_sums low, tdm_sums high, int32_t *to) {
  _mm256_storeu_si256((__m256i *)(void *)to, _mm256_permute2x128_si256(low, high, 0x20));
  _mm256_storeu_si256((__m256i *)(void *)(to + 8), _mm256_permute2x128_si256(low, high, 0x31));
}
TDM_INLINE void tdm_totals(tdm_sums a, tdm_sums b, tdm_sums c, tdm_sums d, int32_t *to) {
  a = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
  _mm_storeu_si128((__m128i *)(void *)to,
                   _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)));
}
#elif defined(__SSE2__) && defined(__x86_64__)
#ifdef __SSE4_1__
#include <smmintrin.h>
#define tdm_load_i8(p) _mm_cvtepi8_epi16(TDM_8(p))
#else
#include <emmintrin.h>
#define tdm_load_i8(p) _mm_srai_epi16(_mm_unpacklo_epi8(TDM_8(p), TDM_8(p)), 8)
#endif
#define TDM_LANES 8
typedef __m128i tdm_codes, tdm_sums;
#define TDM_8(p) _mm_loadl_epi64((const __m128i *)(const void *)(p))
#define tdm_load_i16(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
#define tdm_load_u8(p) _mm_unpacklo_epi8(TDM_8(p), _mm_setzero_si128())
#define tdm_and(a, b) _mm_and_si128(a, b)
#define tdm_add(s, x, w) _mm_add_epi32(s, _mm_madd_epi16(x, w))
#define tdm_same(v) _mm_set1_epi32(v)
#define tdm_add_low(s, x, y, w) tdm_add(s, _mm_unpacklo_epi16(x, y), w)
#define tdm_add_high(s, x, y, w) tdm_add(s, _mm_unpackhi_epi16(x, y), w)
TDM_INLINE void tdm_store(tdm_sums low, tdm_sums high, int32_t *to) {
  _mm_storeu_si128((__m128i *)(void *)to, low);
  _mm_storeu_si128((__m128i *)(void *)(to + 4), high);
}
TDM_INLINE void tdm_totals(tdm_sums a, tdm_sums b, tdm_sums c, tdm_sums d, int32_t *to) {
  a = _mm_add_epi32(_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b));
  c = _mm_add_epi32(_mm_unpacklo_epi32(c, d), _mm_unpackhi_epi32(c, d));
  a = _mm_add_epi32(_mm_unpacklo_epi64(a, c), _mm_unpackhi_epi64(a, c));
  _mm_storeu_si128((__m128i *)(void *)to, a);
}
#elif defined(__ARM_NEON) && !defined(__ARM_BIG_ENDIAN)
#include <arm_neon.h>
#define TDM_LANES 8
typedef int16x8_t tdm_codes;
typedef int32x4_t tdm_sums;
#define tdm_load_i16(p) vld1q_s16(p)
#define tdm_load_i8(p) vmovl_s8(vld1_s8(p))
#define tdm_load_u8(p) vreinterpretq_s16_u16(vmovl_u8(vld1_u8(p)))
#define tdm_and(a, b) vandq_s16(a, b)
TDM_INLINE tdm_sums tdm_add(tdm_sums s, tdm_codes x, tdm_codes w) {
  s = vmlal_s16(s, vget_low_s16(x), vget_low_s16(w));
  return vmlal_s16(s, vget_high_s16(x), vget_high_s16(w));
}
#define tdm_same(v) vreinterpretq_s16_s32(vdupq_n_s32(v))
#define tdm_add_low(s, x, y, w) tdm_add_taps(s, vget_low_s16(x), vget_low_s16(y), vget_low_s16(w))
#define tdm_add_high(s, x, y, w) tdm_add_taps(s, vget_high_s16(x), vget_high_s16(y), vget_low_s16(w))
TDM_INLINE tdm_sums tdm_add_taps(tdm_sums s, int16x4_t x, int16x4_t y, int16x4_t w) {
  return vmlal_lane_s16(vmlal_lane_s16(s, x, w, 0), y, w, 1);
}
#ifdef __ARM_FEATURE_DOTPROD
#define TDM_BYTES 16
#define tdm_add_i8(s, x, w) vdotq_s32(s, vld1q_s8(x), vld1q_s8(w))
#ifdef __ARM_FEATURE_MATMUL_INT8
#define tdm_add_u8(s, x, w) vusdotq_s32(s, vld1q_u8(x), vld1q_s8(w))
#else /* x - 128, and 64 twice */
#define tdm_add_u8(s, x, w) tdm_add_unsigned(s, x, vld1q_s8(w))
TDM_INLINE tdm_sums tdm_add_unsigned(tdm_sums s, const uint8_t *x, int8x16_t w) {
  const int8x16_t v = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(x), vdupq_n_u8(128)));
  return vdotq_s32(vdotq_s32(vdotq_s32(s, v, w), vdupq_n_s8(64), w), vdupq_n_s8(64), w);
}
#endif
#endif
TDM_INLINE void tdm_store(tdm_sums low, tdm_sums high, int32_t *to) {
  vst1q_s32(to, low);
  vst1q_s32(to + 4, high);
}
TDM_INLINE int32x2_t tdm_pair(tdm_sums a, tdm_sums b) {
  return vpadd_s32(vadd_s32(vget_low_s32(a), vget_high_s32(a)), vadd_s32(vget_low_s32(b), vget_high_s32(b)));
}
TDM_INLINE void tdm_totals(tdm_sums a, tdm_sums b, tdm_sums c, tdm_sums d, int32_t *to) {
  vst1q_s32(to, vcombine_s32(tdm_pair(a, b), tdm_pair(c, d)));
}
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
#define TDM_LANES 8
typedef v128_t tdm_codes, tdm_sums;
#define tdm_load_i16(p) wasm_v128_load(p)
#define tdm_load_i8(p) wasm_i16x8_load8x8(p)
#define tdm_load_u8(p) wasm_u16x8_load8x8(p)
#define tdm_and(a, b) wasm_v128_and(a, b)
#define tdm_add(s, x, w) wasm_i32x4_add(s, wasm_i32x4_dot_i16x8(x, w))
#define tdm_same(v) wasm_i32x4_splat(v)
#define tdm_add_low(s, x, y, w) tdm_add(s, wasm_i16x8_shuffle(x, y, 0, 8, 1, 9, 2, 10, 3, 11), w)
#define tdm_add_high(s, x, y, w) tdm_add(s, wasm_i16x8_shuffle(x, y, 4, 12, 5, 13, 6, 14, 7, 15), w)
TDM_INLINE void tdm_store(tdm_sums low, tdm_sums high, int32_t *to) {
  wasm_v128_store(to, low);
  wasm_v128_store(to + 4, high);
}
TDM_INLINE v128_t tdm_pair(v128_t a, v128_t b) {
  return wasm_i32x4_add(wasm_i32x4_shuffle(a, b, 0, 4, 2, 6), wasm_i32x4_shuffle(a, b, 1, 5, 3, 7));
}
TDM_INLINE void tdm_totals(tdm_sums a, tdm_sums b, tdm_sums c, tdm_sums d, int32_t *to) {
  a = tdm_pair(a, b), c = tdm_pair(c, d);
  a = wasm_i32x4_add(wasm_i32x4_shuffle(a, c, 0, 1, 4, 5), wasm_i32x4_shuffle(a, c, 2, 3, 6, 7));
  wasm_v128_store(to, a);
}
#endif
#endif
#if defined(__ARM_FEATURE_MVE) && !defined(TDM_PLAIN)
#include <arm_mve.h>
#define TDM_HELIUM 1
#elif !defined(TDM_PLAIN) && !defined(TDM_LANES) && defined(__ARM_ARCH_PROFILE) && \
    (__ARM_ARCH_PROFILE == 'M' || defined(__ARM_FEATURE_SIMD32))
#define TDM_CONTROLLER 1 /* two rows at a time, sums in registers */
#if defined(__ARM_FEATURE_SIMD32) && defined(__ARM_FEATURE_UNALIGNED) && !defined(__ARM_BIG_ENDIAN)
#define TDM_DSP 1
typedef uint32_t tdm_word __attribute__((aligned(1), may_alias));
#define TDM_WORD(v, p) __asm__ volatile("ldr %0, %1" : "=r"(v) : "m"(*(const tdm_word *)(const void *)(p)))
/* Bytes 0 and 2 as 16 bits each, and 1 and 3; the former two and the latter two; s += both products. */
#define TDM_HALVES(even, odd, v, extend) \
  __asm__ volatile(extend " %0, %1" : "=r"(even) : "r"(v)); \
  __asm__ volatile(extend " %0, %1, ror #8" : "=r"(odd) : "r"(v))
#define TDM_PAIRS(low, high, v) \
  TDM_HALVES(high, low, v, "sxtb16"); \
  __asm__ volatile("pkhtb %0, %1, %2, asr #16" : "=r"(v) : "r"(low), "r"(high)); \
  __asm__ volatile("pkhbt %0, %1, %2, lsl #16" : "=r"(low) : "r"(high), "r"(low)); \
  high = v
#define TDM_SMLAD(s, p, q) __asm__ volatile("smlad %0, %1, %2, %0" : "+r"(s) : "r"(p), "r"(q))
#endif
#endif
#ifdef TDM_LANES
/* Adds the products of both columns with four rows from k on. */
TDM_INLINE void tdm_add_rows(tdm_sums *s, tdm_codes u, tdm_codes v, const int8_t *const *w, int32_t k) {
  const tdm_codes a = tdm_load_i8(w[0] + k), b = tdm_load_i8(w[1] + k);
  s[0] = tdm_add(s[0], u, a), s[4] = tdm_add(s[4], v, a);
  s[1] = tdm_add(s[1], u, b), s[5] = tdm_add(s[5], v, b);
  const tdm_codes c = tdm_load_i8(w[2] + k), d = tdm_load_i8(w[3] + k);
  s[2] = tdm_add(s[2], u, c), s[6] = tdm_add(s[6], v, c);
  s[3] = tdm_add(s[3], u, d), s[7] = tdm_add(s[7], v, d);
}
TDM_INLINE void tdm_add_row(tdm_sums *s, tdm_codes v, const int8_t *const *w, int32_t k) {
  s[0] = tdm_add(s[0], v, tdm_load_i8(w[0] + k)), s[1] = tdm_add(s[1], v, tdm_load_i8(w[1] + k));
  s[2] = tdm_add(s[2], v, tdm_load_i8(w[2] + k)), s[3] = tdm_add(s[3], v, tdm_load_i8(w[3] + k));
}
/* The last r of n lanes are set in what is loaded from tdm_last + 32 - n + r. */
static const int8_t tdm_last[64] __attribute__((unused)) = {
    0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,
    0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
    -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
#endif
)C";

const char* const kDotsOfColumns =
    R"C(/* sums[4 * b + r] = the sum of x[b * n + k] * w[r * n + k]: two columns b, `rows` <= 4 rows r */
static void {name}(const int16_t *x, const int8_t *w, int32_t n, int32_t rows, int32_t *sums) {
  const int16_t *y = x + n;
#ifdef TDM_HELIUM
  for (int32_t r = 0; r < rows; r += 2) {
    const int8_t *w0 = w + r * n, *w1 = r + 1 < rows ? w0 + n : w0;
    int32_t a = 0, b = 0, c = 0, d = 0, k = 0;
    for (; k < (n & ~7); k += 8) {
      const int16x8_t u = vldrhq_s16(x + k), v = vldrhq_s16(y + k);
      const int16x8_t e = vldrbq_s16(w0 + k), f = vldrbq_s16(w1 + k);
      a = vmladavaq_s16(a, u, e), b = vmladavaq_s16(b, v, e);
      c = vmladavaq_s16(c, u, f), d = vmladavaq_s16(d, v, f);
    }
    if (k < n) {
      const mve_pred16_t p = vctp16q((uint32_t)(n - k));
      const int16x8_t u = vldrhq_z_s16(x + k, p), v = vldrhq_z_s16(y + k, p);
      const int16x8_t e = vldrbq_z_s16(w0 + k, p), f = vldrbq_z_s16(w1 + k, p);
      a = vmladavaq_s16(a, u, e), b = vmladavaq_s16(b, v, e);
      c = vmladavaq_s16(c, u, f), d = vmladavaq_s16(d, v, f);
    }
    sums[r] = a, sums[r + 4] = b, sums[r + 1] = c, sums[r + 5] = d;
  }
#else
#ifdef TDM_LANES
  if (n >= TDM_LANES) {
    const int8_t *const v[] = {w, rows > 1 ? w + n : w, rows > 2 ? w + 2 * n : w, rows > 3 ? w + 3 * n : w};
    tdm_sums s[8];
    int32_t k = 0;
    __builtin_memset(s, 0, sizeof s);
    for (; k <= n - TDM_LANES; k += TDM_LANES) tdm_add_rows(s, tdm_load_i16(x + k), tdm_load_i16(y + k), v, k);
    if (k < n) {
      const tdm_codes last = tdm_load_i8(tdm_last + 32 - TDM_LANES + n - k);
      k = n - TDM_LANES;
      tdm_add_rows(s, tdm_and(tdm_load_i16(x + k), last), tdm_and(tdm_load_i16(y + k), last), v, k);
    }
    tdm_totals(s[0], s[1], s[2], s[3], sums);
    tdm_totals(s[4], s[5], s[6], s[7], sums + 4);
    return;
  }
#endif
#ifdef TDM_CONTROLLER
  for (int32_t r = 0; r < rows; r += 2) {
    const int8_t *w0 = w + r * n, *w1 = r + 1 < rows ? w0 + n : w0;
    int32_t a = 0, b = 0, c = 0, d = 0, k = 0;
#ifdef TDM_DSP
    for (; k < (n & ~3); k += 4) {
      uint32_t e, f, g, h, v;
      TDM_WORD(v, w0 + k);
      TDM_PAIRS(e, f, v);
      TDM_WORD(v, w1 + k);
      TDM_PAIRS(g, h, v);
      TDM_WORD(v, x + k);
      TDM_SMLAD(a, v, e);
      TDM_SMLAD(c, v, g);
      TDM_WORD(v, x + k + 2);
      TDM_SMLAD(a, v, f);
      TDM_SMLAD(c, v, h);
      TDM_WORD(v, x + n + k);
      TDM_SMLAD(b, v, e);
      TDM_SMLAD(d, v, g);
      TDM_WORD(v, x + n + k + 2);
      TDM_SMLAD(b, v, f);
      TDM_SMLAD(d, v, h);
    }
#endif
    for (; k < n; ++k) {
      a += x[k] * w0[k], b += y[k] * w0[k];
      c += x[k] * w1[k], d += y[k] * w1[k];
    }
    sums[r] = a, sums[r + 4] = b, sums[r + 1] = c, sums[r + 5] = d;
  }
#else
  for (int32_t r = 0; r < rows; ++r, w += n) {
    int32_t a = 0, b = 0;
    for (int32_t k = 0; k < n; ++k) a += x[k] * w[k], b += y[k] * w[k];
    sums[r] = a, sums[r + 4] = b;
  }
#endif
#endif
}
)C";

const char* const kDotsOfCodes =
    R"C(/* sums[r] = the sum of x[k] * w[r * n + k]: `rows` <= 4 rows r */
static void {name}(const {type} *x, const int8_t *w, int32_t n, int32_t rows, int32_t *sums) {
#ifdef TDM_HELIUM
  const int8_t *w1 = rows > 1 ? w + n : w, *w2 = rows > 2 ? w1 + n : w, *w3 = rows > 3 ? w2 + n : w;
  int32_t a = 0, b = 0, c = 0, d = 0, k = 0;
  for (; k < (n & ~7); k += 8) {
    const int16x8_t v = (int16x8_t)vldrbq_{wide}(x + k);
    a = vmladavaq_s16(a, v, vldrbq_s16(w + k)), b = vmladavaq_s16(b, v, vldrbq_s16(w1 + k));
    c = vmladavaq_s16(c, v, vldrbq_s16(w2 + k)), d = vmladavaq_s16(d, v, vldrbq_s16(w3 + k));
  }
  if (k < n) {
    const mve_pred16_t p = vctp16q((uint32_t)(n - k));
    const int16x8_t v = (int16x8_t)vldrbq_z_{wide}(x + k, p);
    a = vmladavaq_s16(a, v, vldrbq_z_s16(w + k, p)), b = vmladavaq_s16(b, v, vldrbq_z_s16(w1 + k, p));
    c = vmladavaq_s16(c, v, vldrbq_z_s16(w2 + k, p)), d = vmladavaq_s16(d, v, vldrbq_z_s16(w3 + k, p));
  }
  sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d;
#else
#ifdef TDM_LANES
  if (n >= TDM_LANES) {
    const int8_t *const r[] = {w, rows > 1 ? w + n : w, rows > 2 ? w + 2 * n : w, rows > 3 ? w + 3 * n : w};
    tdm_sums s[4];
    int32_t k = 0;
    __builtin_memset(s, 0, sizeof s);
#ifdef tdm_add_{code}
    for (; k <= n - TDM_BYTES; k += TDM_BYTES) {
      s[0] = tdm_add_{code}(s[0], x + k, r[0] + k), s[1] = tdm_add_{code}(s[1], x + k, r[1] + k);
      s[2] = tdm_add_{code}(s[2], x + k, r[2] + k), s[3] = tdm_add_{code}(s[3], x + k, r[3] + k);
    }
#endif
    for (; k <= n - TDM_LANES; k += TDM_LANES) tdm_add_row(s, tdm_load_{code}(x + k), r, k);
    if (k < n) {
      const tdm_codes last = tdm_load_i8(tdm_last + 32 - TDM_LANES + n - k);
      k = n - TDM_LANES;
      tdm_add_row(s, tdm_and(tdm_load_{code}(x + k), last), r, k);
    }
    tdm_totals(s[0], s[1], s[2], s[3], sums);
    return;
  }
#endif
#ifdef TDM_CONTROLLER
  for (int32_t r = 0; r < rows; r += 2) {
    const int8_t *w0 = w + r * n, *w1 = r + 1 < rows ? w0 + n : w0;
    int32_t a = 0, b = 0, k = 0;
#ifdef TDM_DSP
    for (; k < (n & ~3); k += 4) {
      uint32_t u, v, p, q;
      TDM_WORD(q, x + k);
      TDM_HALVES(u, v, q, "{extend}tb16");
      TDM_WORD(q, w0 + k);
      TDM_HALVES(p, q, q, "sxtb16");
      TDM_SMLAD(a, u, p);
      TDM_SMLAD(a, v, q);
      TDM_WORD(q, w1 + k);
      TDM_HALVES(p, q, q, "sxtb16");
      TDM_SMLAD(b, u, p);
      TDM_SMLAD(b, v, q);
    }
#endif
    for (; k < n; ++k) a += x[k] * w0[k], b += x[k] * w1[k];
    sums[r] = a, sums[r + 1] = b;
  }
#else
  for (int32_t r = 0; r < rows; ++r, w += n) {
    int32_t sum = 0;
    for (int32_t k = 0; k < n; ++k) sum += x[k] * w[k];
    sums[r] = sum;
  }
#endif
#endif
}
)C";

const char* const kSumsOfPlane =
    R"C(/* sums[k] = the sum of w[t] * x[place of tap t + k], for `many` k. s: taps down and across, steps between them */
static void {name}(const int16_t *x, const int8_t *w, const int32_t *s, int32_t many, int32_t *sums) {
#ifdef TDM_HELIUM
  if (many >= 4) {
    for (int32_t k = 0; k < many; k += 4) {
      const int32_t at = k + 4 <= many ? k : many - 4;
      const int8_t *tap = w;
      int32x4_t sum = vdupq_n_s32(0);
      for (int32_t h = 0; h < s[0]; ++h) {
        const int16_t *in = x + at + h * s[2];
        for (int32_t v = 0; v < s[1]; ++v, in += s[3]) sum = vmlaq_n_s32(sum, vldrhq_s32(in), *tap++);
      }
      vstrwq_s32(sums + at, sum);
    }
    return;
  }
#endif
#ifdef TDM_LANES
  enum { pairs = 16 };
  const int32_t taps = s[0] * s[1];
  if (many >= TDM_LANES && taps < 2 * pairs) {
    const int16_t *in[2 * pairs];
    tdm_codes v[pairs];
    for (int32_t t = 0; t < taps; ++t) in[t] = x + t / s[1] * s[2] + t % s[1] * s[3];
    in[taps] = x;
    for (int32_t t = 0; t < taps; t += 2)
      v[t / 2] = tdm_same((int32_t)((uint16_t)w[t] | (t + 1 < taps ? (uint32_t)w[t + 1] << 16 : 0)));
    for (int32_t k = 0; k < many; k += TDM_LANES) {
      const int32_t at = k + TDM_LANES <= many ? k : many - TDM_LANES;
      tdm_sums a, b;
      __builtin_memset(&a, 0, sizeof a), b = a;
      for (int32_t t = 0; t < taps; t += 2) {
        const tdm_codes y = tdm_load_i16(in[t] + at), z = tdm_load_i16(in[t + 1] + at);
        a = tdm_add_low(a, y, z, v[t / 2]), b = tdm_add_high(b, y, z, v[t / 2]);
      }
      tdm_store(a, b, sums + at);
    }
    return;
  }
#endif
#ifdef TDM_CONTROLLER
  if (many >= 4) { /* sums in registers */
    for (int32_t k = 0; k < many; k += 4) {
      const int32_t at = k + 4 <= many ? k : many - 4;
      const int8_t *tap = w;
      int32_t a = 0, b = 0, c = 0, d = 0;
      for (int32_t h = 0; h < s[0]; ++h) {
        const int16_t *in = x + at + h * s[2];
        for (int32_t v = s[1]; v > 0; --v, in += s[3], ++tap)
          a += *tap * in[0], b += *tap * in[1], c += *tap * in[2], d += *tap * in[3];
      }
      sums[at] = a, sums[at + 1] = b, sums[at + 2] = c, sums[at + 3] = d;
    }
    return;
  }
#endif
  for (int32_t k = 0; k < many; ++k) sums[k] = 0;
  for (int32_t h = 0; h < s[0]; ++h)
    for (int32_t v = 0; v < s[1]; ++v) {
      const int16_t tap = w[h * s[1] + v], *in = x + h * s[2] + v * s[3];
      for (int32_t k = 0; k < many; ++k) sums[k] += tap * in[k];
    }
}
)C";

}  // namespace tandem::edge
