// SPDX-License-Identifier: Apache-2.0
// Codes of TFLite's quantised tensors as numbers, and what nodes of the domain "tflite" say of
// them.
#pragma once

#include "tandem/onnx/tflite/builder_internal.h"

namespace tandem::onnx {

/// What the codes stand for, in f32.
Tensor tflite_numbers(const Tensor& codes, const TfliteScales& s);
/// The attributes "scale", "zero" and, of several scales, "axis"; with a prefix for each name.
OnnxAttributes tflite_attributes(const TfliteScales& s, const std::string& prefix = "");

/// The codes that an activation leaves.
struct TfliteRange {
  int64_t low, high;
};
TfliteRange tflite_range(const TfliteCall& c, const TfliteTensor& t, int64_t activation);

/// A factor as 31 bits and a power of two: factor = multiplier / 2^31 * 2^shift.
struct TfliteFactor {
  int64_t multiplier = 0, shift = 0;
  explicit TfliteFactor(double factor);
};

/// Of a tensor with one scale.
inline float scale_of(const TfliteTensor& t) { return t.scales.scale[0]; }

}  // namespace tandem::onnx
