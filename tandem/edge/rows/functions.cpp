// SPDX-License-Identifier: Apache-2.0
// Functions of the file, which all bodies share.
#include "tandem/edge/rows/functions_internal.h"
#include "tandem/edge/rows_internal.h"

namespace tandem::edge {
namespace {

constexpr const char* kFloats = R"C(/* the sum of x[k] * w[k], in eight partial sums */
static {type} {name}(const {type} *x, const {type} *w, int32_t n) {
  {type} sum = 0, part[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  int32_t k = 0;
#ifdef __OPTIMIZE_SIZE__
  for (; k < (n & ~7); ++k) part[k & 7] += x[k] * w[k];
#else
  for (; k + 8 <= n; k += 8)
    for (int32_t l = 0; l < 8; ++l) part[l] += x[k + l] * w[k + l];
#endif
  for (int32_t half = 4; half > 0; half /= 2)
    for (int32_t l = 0; l < half; ++l) part[l] += part[l + half];
  for (; k < n; ++k) sum += x[k] * w[k];
  return sum + part[0];
}
)C";

constexpr const char* kBlock = R"C(#ifndef __OPTIMIZE_SIZE__
#if defined(__AVX__)
#define TDM_LANES 8
#elif defined(__SSE2__) || defined(__ARM_NEON) || defined(__wasm_simd128__) || defined(__ALTIVEC__)
#define TDM_LANES 4
#endif
#ifdef TDM_LANES
typedef float tdm_lanes __attribute__((vector_size(4 * TDM_LANES)));
#else
#define TDM_LANES 1
typedef float tdm_lanes;
#endif
__attribute__((noinline)) /* one copy for all convolutions */
#endif
/* Sums of w[r * wn + k] * t[k * tn + l] for `rows` channels r and 16 positions l, of which `many` are stored
   at y[r * yn + l]. They begin as the bias (0 without one), or as what is there where `adds`. */
static void {name}(const float *w, int32_t wn, int32_t rows, const float *t, int32_t tn, int32_t n,
                   const float *bias, int adds, float *y, int32_t yn, int32_t many) {
#ifdef __OPTIMIZE_SIZE__
  for (int32_t r = 0; r < rows; ++r)
    for (int32_t l = 0; l < many; ++l) {
      float sum = adds ? y[r * yn + l] : bias ? bias[r] : 0;
      for (int32_t k = 0; k < n; ++k) sum += t[k * tn + l] * w[r * wn + k];
      y[r * yn + l] = sum;
    }
#else
  for (int32_t r = 0; r < rows; r += 4) {
    float sums[4][16];
    const float *v[4];
    for (int32_t q = 0; q < 4; ++q) {
      const int32_t row = r + q < rows ? r + q : rows - 1;
      v[q] = w + row * wn;
      for (int32_t l = 0; l < 16; ++l)
        sums[q][l] = !adds ? (bias ? bias[row] : 0) : l < many ? y[row * yn + l] : 0;
    }
    for (int32_t l = 0; l < 16; l += 2 * TDM_LANES) {
      tdm_lanes a[8], e, f;
      for (int32_t q = 0; q < 4; ++q) __builtin_memcpy(a + 2 * q, sums[q] + l, 2 * sizeof e);
      for (int32_t k = 0; k < n; ++k) {
        __builtin_memcpy(&e, t + k * tn + l, sizeof e);
        __builtin_memcpy(&f, t + k * tn + l + TDM_LANES, sizeof f);
        a[0] += e * v[0][k], a[1] += f * v[0][k];
        a[2] += e * v[1][k], a[3] += f * v[1][k];
        a[4] += e * v[2][k], a[5] += f * v[2][k];
        a[6] += e * v[3][k], a[7] += f * v[3][k];
      }
      for (int32_t q = 0; q < 4; ++q) __builtin_memcpy(sums[q] + l, a + 2 * q, 2 * sizeof e);
    }
    for (int32_t q = 0; q < 4 && r + q < rows; ++q)
      for (int32_t l = 0; l < many; ++l) y[(r + q) * yn + l] = sums[q][l];
  }
#endif
}
)C";

constexpr const char* kGather =
    R"C(/* t[(c * taps + tap) * 16 + l]: what a tap of channel c sees at position from + l, 0 beside the plane. s: height
   and width of x, width of y, taps, strides, paddings and dilations down and across, floats of a plane of x */
static void {name}(const float *x, const int32_t *s, int32_t from, int32_t many, int32_t channels, float *t) {
  int32_t down[16], across[16], at[16], h = from / s[2], v = from % s[2];
  for (int32_t l = 0; l < 16; ++l) {
    down[l] = l < many ? h * s[5] - s[7] : -s[3] * s[9];
    across[l] = v * s[6] - s[8];
    if (++v == s[2]) v = 0, ++h;
  }
  for (int32_t kh = 0; kh < s[3]; ++kh)
    for (int32_t kw = 0; kw < s[4]; ++kw) {
#ifndef __OPTIMIZE_SIZE__
      int32_t straight = 1;
#endif
      for (int32_t l = 0; l < 16; ++l) {
        const int32_t i = down[l] + kh * s[9], j = across[l] + kw * s[10];
        at[l] = i >= 0 && i < s[0] && j >= 0 && j < s[1] ? i * s[1] + j : -1;
#ifndef __OPTIMIZE_SIZE__
        straight &= at[l] >= 0 && at[l] == at[0] + l;
#endif
      }
      for (int32_t c = 0; c < channels; ++c) {
        const float *in = x + c * s[11];
        float *to = t + ((c * s[3] + kh) * s[4] + kw) * 16;
#ifndef __OPTIMIZE_SIZE__
        if (straight)
          __builtin_memcpy(to, in + at[0], 16 * sizeof *to);
        else
#endif
          for (int32_t l = 0; l < 16; ++l) to[l] = at[l] < 0 ? 0 : in[at[l]];
      }
    }
}
)C";

// Stockham's order: before a step a[q * done + j] is element j of the transform of every (n /
// done)-th number from q on.
constexpr const char* kFft =
    R"C(/* The Fourier transform of the n complex numbers of x, in place; roots[k] = exp(-2 pi i k / n), b: room for n.
   A step combines p transforms of `done` numbers into one, p the least factor of what is left. */
static void {name}({type} *x, {type} *b, const {type} *roots, int32_t n) {
  {type} *a = x;
  for (int32_t left = n, done = 1; left > 1;) {
    int32_t p = 2;
    while (left % p != 0) p = (p + 1) * p > left ? left : p + 1;
    left /= p;
    for (int32_t q = 0; q < left; ++q)
      for (int32_t j = 0; j < done; ++j)
        for (int32_t s = 0; s < p; ++s) {
          {type} re = a[2 * (q * done + j)], im = a[2 * (q * done + j) + 1];
          for (int32_t r = 1, turn = 0; r < p; ++r) {
            turn += j + done * s;
            if (turn >= done * p) turn -= done * p;
            const {type} *v = a + 2 * ((q + left * r) * done + j), *w = roots + 2 * turn * left;
            re += v[0] * w[0] - v[1] * w[1];
            im += v[0] * w[1] + v[1] * w[0];
          }
          b[2 * ((q * p + s) * done + j)] = re;
          b[2 * ((q * p + s) * done + j) + 1] = im;
        }
    {type} *swap = a;
    a = b;
    b = swap;
    done *= p;
  }
  if (a != x)
    for (int32_t k = 0; k < 2 * n; ++k) x[k] = a[k];
}
)C";

struct FileFunction {
  const char *name, *text, *type = "";
  const char *code = "", *wide = "", *extend = "";  ///< of codes: with 16 bits, an instruction
};
const FileFunction kFunctions[] = {
    {kDotsOfTaps, kDotsOfColumns},
    {kDotsOfBytes, kDotsOfCodes, "uint8_t", "u8", "u16", "ux"},
    {kDotsOfSigned, kDotsOfCodes, "int8_t", "i8", "s16", "sx"},
    {kPlaneOfTaps, kSumsOfPlane},
    {kDotOfFloats, kFloats, "float"},
    {kDotOfDoubles, kFloats, "double"},
    {kConvBlock, kBlock},
    {kGatherTaps, kGather},
    {kFftOfFloats, kFft, "float"},
    {kFftOfDoubles, kFft, "double"},
};

bool calls(const std::string& text, const char* function) {
  return text.find(std::string(function) + "(") != std::string::npos;
}

}  // namespace

const char* dot_of(DType t) {
  return t == DType::u8    ? kDotsOfBytes
         : t == DType::i8  ? kDotsOfSigned
         : t == DType::f32 ? kDotOfFloats
                           : kDotOfDoubles;
}

std::string functions_for(const std::string& text) {
  std::string all;
  for (const char* sums : {kDotsOfTaps, kDotsOfBytes, kDotsOfSigned, kPlaneOfTaps})
    if (all.empty() && calls(text, sums)) all = std::string(kCodeVectors) + "\n";
  for (const FileFunction& f : kFunctions) {
    if (!calls(text, f.name)) continue;
    std::string s = f.text;
    for (const auto& [key, value] : {std::pair{"{name}", f.name},
                                     {"{type}", f.type},
                                     {"{code}", f.code},
                                     {"{wide}", f.wide},
                                     {"{extend}", f.extend}})
      replace_all(s, key, value);
    all += s + "\n";
  }
  return all;
}

}  // namespace tandem::edge
