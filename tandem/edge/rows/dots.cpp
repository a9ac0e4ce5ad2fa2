// SPDX-License-Identifier: Apache-2.0
// Dot products of codes as functions of the file, which all products of codes share. Every form of
// them computes the same integers: plain C, which compilers make vector code of, and the
// instructions of ARM that multiply two pairs at once (SMLAD), which compilers do not find.
#include "tandem/edge/rows_internal.h"

namespace tandem::edge {
namespace {

// Four codes a step: pairs of 16 bits in the order of memory.
constexpr const char* kTwoColumns =
    R"C(/* sums[0] = sum of x[k] * w[k], sums[1] = sum of x[n + k] * w[k] */
static void {name}(const int16_t *x, const int8_t *w, int32_t n, int32_t *sums) {
  const int16_t *y = x + n;
  int32_t a = 0, b = 0, k = 0;
#if defined(__ARM_FEATURE_SIMD32) && defined(__ARM_FEATURE_UNALIGNED) && !defined(__ARM_BIG_ENDIAN)
  for (; k + 4 <= n; k += 4) {
    uint32_t v, even, odd, p, q;
    __builtin_memcpy(&v, w + k, 4);
    __asm__("sxtb16 %0, %1" : "=r"(even) : "r"(v));
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(odd) : "r"(v));
    __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(v) : "r"(even), "r"(odd));
    __asm__("pkhtb %0, %1, %2, asr #16" : "=r"(odd) : "r"(odd), "r"(even));
    __builtin_memcpy(&p, x + k, 4);
    __builtin_memcpy(&q, x + k + 2, 4);
    __asm__("smlad %0, %1, %2, %0" : "+r"(a) : "r"(p), "r"(v));
    __asm__("smlad %0, %1, %2, %0" : "+r"(a) : "r"(q), "r"(odd));
    __builtin_memcpy(&p, y + k, 4);
    __builtin_memcpy(&q, y + k + 2, 4);
    __asm__("smlad %0, %1, %2, %0" : "+r"(b) : "r"(p), "r"(v));
    __asm__("smlad %0, %1, %2, %0" : "+r"(b) : "r"(q), "r"(odd));
  }
#endif
  for (; k < n; ++k) {
    a += x[k] * w[k];
    b += y[k] * w[k];
  }
  sums[0] = a;
  sums[1] = b;
}
)C";

constexpr const char* kCodes = R"C(/* the sum of x[k] * w[k] */
static int32_t {name}(const {type} *x, const int8_t *w, int32_t n) {
  int32_t sum = 0, k = 0;
#if defined(__ARM_FEATURE_SIMD32) && defined(__ARM_FEATURE_UNALIGNED) && !defined(__ARM_BIG_ENDIAN)
  for (; k + 4 <= n; k += 4) {
    uint32_t u, v, p, q;
    __builtin_memcpy(&u, x + k, 4);
    __builtin_memcpy(&v, w + k, 4);
    __asm__("{extend}tb16 %0, %1" : "=r"(p) : "r"(u));
    __asm__("sxtb16 %0, %1" : "=r"(q) : "r"(v));
    __asm__("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(p), "r"(q));
    __asm__("{extend}tb16 %0, %1, ror #8" : "=r"(p) : "r"(u));
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(q) : "r"(v));
    __asm__("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(p), "r"(q));
  }
#endif
  for (; k < n; ++k) sum += x[k] * w[k];
  return sum;
}
)C";

struct DotFunction {
  const char *name, *text, *type, *extend;
};
constexpr DotFunction kDots[] = {{kDotsOfTaps, kTwoColumns, "", ""},
                                 {kDotOfBytes, kCodes, "uint8_t", "ux"},
                                 {kDotOfSigned, kCodes, "int8_t", "sx"}};

}  // namespace

const char* dot_of(DType codes) { return codes == DType::u8 ? kDotOfBytes : kDotOfSigned; }

std::string dots_for(const std::string& text) {
  std::string all;
  for (const DotFunction& d : kDots) {
    if (text.find(std::string(d.name) + "(") == std::string::npos) continue;
    std::string s = d.text;
    for (const auto& [key, value] :
         {std::pair{"{name}", d.name}, {"{type}", d.type}, {"{extend}", d.extend}})
      replace_all(s, key, value);
    all += s + "\n";
  }
  return all;
}

}  // namespace tandem::edge
