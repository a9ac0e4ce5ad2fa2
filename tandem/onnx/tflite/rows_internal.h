// SPDX-License-Identifier: Apache-2.0
// Rows of the domain "tflite" that stand in files of their own.
#pragma once

#include "tandem/onnx/import/rows.h"

namespace tandem::onnx {

/// x * multiplier / 2^31 * 2^shift in i64, rounded to 31 bits (halves up), then to the shift
/// (halves away from zero).
Tensor tflite_times_factor(const Tensor& x, const Tensor& multiplier, const Tensor& shift);
Tensor tflite_times_factor(const Tensor& x, int64_t multiplier, int64_t shift);
/// Whether an attribute is such a multiplier and shift.
bool is_tflite_factor(const std::vector<int64_t>& f);
/// The entries of `table` at x - first, in the shape of x; x is i64.
Tensor tflite_entries(const Tensor& table, const Tensor& x, int64_t first);

void tflite_lstm_row(OnnxCall& c);
void tflite_resize_row(OnnxCall& c);
void tflite_softmax_row(OnnxCall& c);
void tflite_update_row(OnnxCall& c);
void tflite_detections_row(OnnxCall& c);

}  // namespace tandem::onnx
