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
/// 16 bits are summed in 64, and multiplied by half of the multiplier's bits, rounded once.
Tensor tflite_times_short(const Tensor& x, const Tensor& multiplier, const Tensor& shift);
Tensor tflite_times_short(const Tensor& x, int64_t multiplier, int64_t shift);
/// Input i less its zero point, in i64.
Tensor tflite_code_less(const OnnxCall& c, size_t i, int64_t zero);
/// The result: y above the zero point, within the bounds, in the type that the attributes say.
void tflite_set_bounded(OnnxCall& c, const Tensor& y);
/// The power of two of the highest bit of numbers from 1 to 2^31 - 1.
Tensor tflite_highest_bit(const Tensor& v);
/// The entries of `table` at x - first, in the shape of x; x is i64.
Tensor tflite_entries(const Tensor& table, const Tensor& x, int64_t first);

void tflite_lstm_row(OnnxCall& c);
void tflite_resize_row(OnnxCall& c);
void tflite_softmax_row(OnnxCall& c);
void tflite_update_row(OnnxCall& c);
void tflite_reduce_row(OnnxCall& c);
void tflite_reduce_prod_row(OnnxCall& c);
void tflite_softmax_bytes_row(OnnxCall& c);
void tflite_l2_norm_row(OnnxCall& c);
void tflite_svdf_row(OnnxCall& c);
void tflite_detections_row(OnnxCall& c);

}  // namespace tandem::onnx
