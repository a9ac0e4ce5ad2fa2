// SPDX-License-Identifier: Apache-2.0
// Channel loops for AVX-512. Called only where the processor supports it.
#include "tandem/backend/cpu/conv/channel_loops.h"
#include "tandem/base/unroll_internal.h"

#ifdef __AVX512F__
#include <immintrin.h>

namespace tandem::detail {
namespace {

struct S {
  using V = __m512;
  using Mask = __mmask16;
  static constexpr int kWidth = 16;
  static Mask mask(int n) { return n >= 16 ? Mask(0xffff) : Mask((1u << n) - 1); }
  static V zero() { return _mm512_setzero_ps(); }
  static V set1(float x) { return _mm512_set1_ps(x); }
  static V load(const float* p) { return _mm512_loadu_ps(p); }
  static V load_part(const float* p, Mask m) { return _mm512_maskz_loadu_ps(m, p); }
  static void store(float* p, V v) { _mm512_storeu_ps(p, v); }
  static void store_part(float* p, Mask m, V v) { _mm512_mask_storeu_ps(p, m, v); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
};

#include "tandem/backend/cpu/conv/channel_loops.inc"

}  // namespace

constinit const ChannelLoops kChannelAvx512 = kLoops;

}  // namespace tandem::detail

#else
namespace tandem::detail {
constinit const ChannelLoops kChannelAvx512 = {};
}
#endif
