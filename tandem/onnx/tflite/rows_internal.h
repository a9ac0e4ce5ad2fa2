// SPDX-License-Identifier: Apache-2.0
// Rows of the domain "tflite" that stand in files of their own.
#pragma once

#include "tandem/onnx/import/rows.h"

namespace tandem::onnx {

void tflite_resize_row(OnnxCall& c);
void tflite_update_row(OnnxCall& c);
void tflite_detections_row(OnnxCall& c);

}  // namespace tandem::onnx
