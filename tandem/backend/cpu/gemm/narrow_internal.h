// SPDX-License-Identifier: Apache-2.0
// Loops of a few rows with a bf16 weight that is read where it lies. An element is a sum, in
// order, of chains of multiply-adds over kGemmDepth inputs, as in the f32 GEMM (gemm_internal.h):
// the same bits.
#pragma once

#include <cstdint>

namespace tandem::detail {

inline constexpr int64_t kNarrowRows = 4;  ///< of x at a time

/// y[r, j] = bias[j] (or 0) + sum over k of x[r, k] w[k, j], for columns j0 <= j < j1.
struct NarrowCall {
  int64_t k = 0;
  const float* x = nullptr;  ///< [rows, k]
  const uint16_t* w = nullptr;
  int64_t w_step = 0;  ///< of columns, whose inputs are adjacent; or of inputs, whose columns are
  const float* bias = nullptr;  ///< [all columns]
  float* y = nullptr;           ///< [rows, y_row], from column j0 on
  int64_t y_row = 0;
  float* sums = nullptr;  ///< room for kNarrowRows * (j1 - j0), of by_input
};

struct NarrowLoops {
  const char* name;  ///< none: the compiler lacks the instructions
  /// The inputs of a column are adjacent; [rows - 1].
  void (*by_column[kNarrowRows])(const NarrowCall& c, int64_t j0, int64_t j1);
  /// The columns of an input are adjacent.
  void (*by_input[kNarrowRows])(const NarrowCall& c, int64_t j0, int64_t j1);
};
extern const NarrowLoops kNarrowAvx2;

}  // namespace tandem::detail
