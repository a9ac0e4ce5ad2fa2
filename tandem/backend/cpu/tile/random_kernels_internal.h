// SPDX-License-Identifier: Apache-2.0
// The inner loops of the random kernels, built twice (random_loops_base.cpp, _avx2.cpp) with the
// same bits. Elements are first .. first + n - 1 of a draw; n is at most kRandomBlock.
#pragma once

#include <cstdint>

#include "tandem/graph/kernel.h"

namespace tandem::detail {

inline constexpr int64_t kRandomBlock = 1024;

struct RandomLoops {
  /// low + span * uniform.
  void (*uniform)(RngKey key, uint64_t first, int64_t n, float low, float span, float* out);
  /// mean + std * normal.
  void (*normal)(RngKey key, uint64_t first, int64_t n, float mean, float std, float* out);
  /// x * scale where uniform < keep, else 0; `mask` (may be null) records where.
  void (*dropout)(RngKey key, uint64_t first, int64_t n, float keep, float scale, const float* x,
                  float* y, bool* mask);
  /// g * scale where mask, else 0; any n.
  void (*masked)(int64_t n, float scale, const float* g, const bool* mask, float* y);
};
extern const RandomLoops kRandomLoopsBase, kRandomLoopsAvx2;

}  // namespace tandem::detail
