// SPDX-License-Identifier: Apache-2.0
// Sums of products of codes that become codes again: what the loop after a convolution of codes
// mostly is. Kernels that know this form write the codes while the sums are in registers, with the
// bits of the loop.
#pragma once

#include <cstdint>

namespace tandem {

/// For each sum, v = sum * scale[column] (+ bias[column]), or what hardswish makes of it; then a
/// rounding: v is held between
/// `least` and `most`, and its code is that of round(v * by) + zero. Where there is a residual, v =
/// (code - away) * step + residual, and the second rounding follows. What is stored is the last
/// code, or what it stands for, (code - away) * step, or both. Codes are u8, or i8 if is_signed.
struct Requantise {
  struct Rounding {
    float least = 0, most = 0, by = 1;
    int32_t zero = 0;
    float away = 0, step = 1;
  };
  const float* scale = nullptr;  ///< nullptr: one_scale for all columns
  float one_scale = 1;
  const float *bias = nullptr, *residual = nullptr;  ///< nullptr: none; [columns], [rows, columns]
  Rounding rounding[2];
  bool hardswish = false;  ///< v * min(max(v + 3, 0), 6) / 6
  bool is_signed = false;
  int64_t columns = 0;  ///< of a row of the result and of the residual
  void* codes = nullptr;
  float* values = nullptr;
};

}  // namespace tandem
