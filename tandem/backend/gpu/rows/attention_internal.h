// SPDX-License-Identifier: Apache-2.0
// Text of fused attention for warps that multiply matrices: scores live in registers, a block of
// keys after the other, and never in memory (Dao, FlashAttention-2, arXiv 2307.08691). Weights are
// powers of 2, not of e. The derivative is two kernels, one for blocks of keys and one for blocks
// of queries, which both rebuild the scores: nothing is added by atomics, each run has the same
// bits.
#pragma once

#include "tandem/backend/gpu/kernel_source.h"
#include "tandem/base/export.h"

namespace tandem::gpu {

struct TD_API AttentionText {
  enum Mask : uint8_t { none, visible, added };

  DType dtype = DType::bf16;  ///< of q, k, v, y and their gradients: f16 or bf16
  int e = 0, f = 0;           ///< features of q and k, of v
  bool causal = false;
  bool lse = true;  ///< forward() writes it
  Mask mask = none;
  DType mask_type = DType::b8;
  /// All lines begin at multiples of 16 bytes, have elements side by side and lie less than
  /// kFarLines elements apart.
  bool aligned = true;

  static constexpr int kMostFeatures = 128;
  static constexpr int64_t kFarLines = 1 << 24;  ///< times rows(), it fits 32 bits
  static constexpr int kWarps = 4, kThreads = kWarps * kWarp;
  static constexpr int kKeys = 64;    ///< of a block of keys, forward
  static constexpr int kOthers = 32;  ///< keys or queries of a block that a derivative walks over
  static constexpr int kDeltaRows = kThreads / 16;  ///< rows of a block of delta()

  /// Queries of a block, and keys of a block of backward_keys().
  int rows() const { return 16 * kWarps * tiles(); }
  /// Tiles of 16 rows of one warp.
  int tiles() const { return e <= 64 && f <= 64 ? 2 : 1; }

  KernelSource forward() const;
  /// delta = sum over features of gy * y, minus glse: one f32 a line of y.
  KernelSource delta(bool glse) const;
  KernelSource backward_queries() const;
  KernelSource backward_keys() const;
};

}  // namespace tandem::gpu
