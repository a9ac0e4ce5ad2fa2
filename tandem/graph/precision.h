// SPDX-License-Identifier: Apache-2.0
// How exactly matmuls and convolutions of f32 tensors are computed on devices that have a faster
// way.
#pragma once

#include "tandem/base/export.h"

namespace tandem {

enum class MatmulPrecision : unsigned char {
  strict,  ///< products of f32 values, as on the CPU
  tf32,    ///< factors rounded to 10 bits of mantissa where the device has units for that
};

/// For the whole process; strict at first. Calls and compiled functions from here on follow it;
/// f16, bf16, f64 and the CPU are not concerned. PyTorch:
/// torch.set_float32_matmul_precision("highest", "high").
TD_API void set_float32_matmul_precision(MatmulPrecision precision);
TD_API MatmulPrecision float32_matmul_precision();

}  // namespace tandem
