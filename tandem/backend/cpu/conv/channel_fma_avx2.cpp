// SPDX-License-Identifier: Apache-2.0
// Channel loops for AVX2 with FMA. Called only where the processor supports them.
#include "tandem/backend/cpu/conv/channel_loops.h"
#include "tandem/backend/cpu/partial_store_internal.h"
#include "tandem/base/unroll_internal.h"

#ifdef __AVX2__
#include <immintrin.h>

namespace tandem::detail {
namespace {

const int32_t kMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

struct S {
  using V = __m256;
  struct Mask {
    int n = 8;
    __m256i bits() const {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMasks + 8 - n));
    }
  };
  static constexpr int kWidth = 8;
  static Mask mask(int n) { return {n >= 8 ? 8 : n}; }
  static V zero() { return _mm256_setzero_ps(); }
  static V set1(float x) { return _mm256_set1_ps(x); }
  static V load(const float* p) { return _mm256_loadu_ps(p); }
  static V load_part(const float* p, Mask m) { return _mm256_maskload_ps(p, m.bits()); }
  static void store(float* p, V v) { _mm256_storeu_ps(p, v); }
  static void store_part(float* p, Mask m, V v) { store_first(p, m.n, v); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
};

#include "tandem/backend/cpu/conv/channel_loops.inc"

}  // namespace

constinit const ChannelLoops kChannelAvx2 = kLoops;

}  // namespace tandem::detail

#else
namespace tandem::detail {
constinit const ChannelLoops kChannelAvx2 = {};
}
#endif
