// SPDX-License-Identifier: Apache-2.0
// matmul_nbits with 4 lanes of what every processor has.
#include <algorithm>
#include <cstring>

#include "tandem/backend/cpu/gemm/nbits_internal.h"
#include "tandem/base/unroll_internal.h"

namespace tandem::detail {
namespace {

struct Lanes {
  using V = float __attribute__((vector_size(16)));
  using I = int32_t __attribute__((vector_size(16)));
  static constexpr int kWidth = 4, kRows = 1;
  static V zero() { return V{}; }
  static V load(const float* p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static void store(float* p, V v) { std::memcpy(p, &v, sizeof v); }
  static V fma(V a, V b, V c) { return a * b + c; }
  static V mul(V a, V b) { return a * b; }
  static V spread(float f) { return V{f, f, f, f}; }
  static V spread(const float* f, int64_t n, int64_t each) {
    V v{};
    for (int64_t i = 0; i < kWidth && i / each < n; ++i) v[i] = f[i / each];
    return v;
  }
  static float sum(V v) { return (v[0] + v[2]) + (v[1] + v[3]); }
  template <int bits>
  static I load_codes(const uint8_t* p) {
    constexpr int32_t kMiddle = static_cast<int32_t>(bits == 8   ? 0x80808080u
                                                     : bits == 4 ? 0x88888888u
                                                                 : 0xaaaaaaaau);
    I v;
    std::memcpy(&v, p, sizeof v);
    return v ^ I { kMiddle, kMiddle, kMiddle, kMiddle };
  }
  template <int bits>
  static V decode(I v, int s) {
    return __builtin_convertvector((v << (32 - bits - bits * s)) >> (32 - bits), V);
  }
};

#include "tandem/backend/cpu/gemm/nbits_loops.inc"

}  // namespace

const NBitsLoops kNBitsBase = kNBitsHere;

}  // namespace tandem::detail
