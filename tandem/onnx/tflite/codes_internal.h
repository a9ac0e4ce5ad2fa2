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
constexpr int64_t kTfliteZeroToOne = 100;  ///< beside the schema's activations: from 0 to 1
/// Throws Format where an activation bounds codes without a scale above 0.
TfliteRange tflite_range(const TfliteCall& c, const TfliteTensor& t, int64_t activation);
/// All codes of a type.
TfliteRange tflite_codes_of(OnnxType type);

/// A factor as 31 bits and a power of two: factor = multiplier / 2^31 * 2^shift. What is not
/// finite is 0.
struct TfliteFactor {
  int64_t multiplier = 0, shift = 0;
  explicit TfliteFactor(double factor);
};

/// Of a tensor with one scale.
inline float scale_of(const TfliteTensor& t) { return t.scales.scale[0]; }
inline int64_t zero_of(const TfliteTensor& t) { return t.scales.zero[0]; }

// ---- for rows that compute codes
/// Whether it has codes of 8 or 16 bits with one scale above 0; and the first inputs and the
/// result.
bool tflite_one_scale(const TfliteTensor& t);
bool tflite_of_codes(const TfliteCall& c, size_t inputs);
/// What nodes say of their result: zero, low, high, to.
OnnxAttributes tflite_result_codes(const TfliteCall& c, int64_t activation);
void add_tflite_factor(OnnxAttributes& a, const char* name, const TfliteFactor& f);
/// The fused activation of the options.
int64_t tflite_activation(const TfliteCall& c);
/// A constant of whole numbers.
std::string tflite_code_list(const TfliteCall& c, const std::vector<int64_t>& v, OnnxType type);

}  // namespace tandem::onnx
