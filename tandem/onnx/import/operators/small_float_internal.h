// SPDX-License-Identifier: Apache-2.0
// The layouts of ONNX's small floats.
#pragma once

#include <string>

#include "tandem/onnx/import/value.h"

namespace tandem::onnx {

struct SmallFloat {
  int exponent, mantissa;  ///< bits
  int bias;
  float largest;       ///< finite number
  bool infinite;       ///< has infinities
  bool unsigned_zero;  ///< only one zero
};
/// Throws Internal for other types, and for float8e8m0, which is a power of two.
SmallFloat small_float(OnnxType type);

/// f32 numbers as the nearest ones of a small float; ties go to even. `mode` rounds float8e8m0: up,
/// down or nearest. `saturate`: see encode_small_float().
Tensor round_to_small_float(const Tensor& x, OnnxType to, bool saturate, const std::string& mode);

}  // namespace tandem::onnx
