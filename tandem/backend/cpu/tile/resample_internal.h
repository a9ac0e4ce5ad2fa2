// SPDX-License-Identifier: Apache-2.0
// The inner loop of the resampling kernels, built per instruction set (resample_loops_base.cpp,
// _avx2.cpp, _avx512.cpp) with the same bits.
#pragma once

#include <cstdint>

namespace tandem::detail {

/// The taps of one output line: `count` input lines, at[k] from the first, and their weights.
template <class T>
struct Taps {
  const int64_t* at;
  const T* weight;
  int64_t count;
};

struct ResampleLoops {
  /// out[i] = sum of weight[k] * in[at[k] * n + i] for i < n, in the order of the taps.
  void (*combine32)(const Taps<float>& l, const float* in, float* out, int64_t n);
  void (*combine64)(const Taps<double>& l, const double* in, double* out, int64_t n);
};
extern const ResampleLoops kResampleBase, kResampleAvx2, kResampleAvx512;

}  // namespace tandem::detail
