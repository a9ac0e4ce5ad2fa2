// SPDX-License-Identifier: Apache-2.0
// Codes of TFLite's quantised tensors as numbers, and what nodes of the domain "tflite" say of
// them.
#pragma once

#include "tandem/onnx/import/build_internal.h"
#include "tandem/onnx/tflite/model_internal.h"

namespace tandem::onnx {

/// What the codes stand for, in f32.
Tensor tflite_numbers(const Tensor& codes, const TfliteScales& s);
/// The attributes "scale", "zero" and, of several scales, "axis"; with a prefix for each name.
OnnxAttributes tflite_attributes(const TfliteScales& s, const std::string& prefix = "");

}  // namespace tandem::onnx
