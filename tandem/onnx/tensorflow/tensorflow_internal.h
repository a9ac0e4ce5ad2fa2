// SPDX-License-Identifier: Apache-2.0
// What the readers of TensorFlow's and Keras's files share: rows written with ONNX's own, and the
// nodes from which models are built.
#pragma once

#include <initializer_list>

#include "tandem/onnx/import/build_internal.h"
#include "tandem/onnx/import/rows.h"

namespace tandem::onnx {

/// The outputs of ONNX's op (opset 23) on these values, run in the call's frame.
std::vector<OnnxValue> run_as_onnx(OnnxCall& c, const char* op, std::vector<OnnxValue> in,
                                   OnnxAttributes attributes = {}, size_t outputs = 1);
/// The outputs of TensorFlow's op.
std::vector<OnnxValue> run_as_tf(OnnxCall& c, const char* op, std::vector<OnnxValue> in,
                                 OnnxAttributes attributes = {}, size_t outputs = 1);
/// The first of ONNX's as a tensor.
Tensor as_onnx(OnnxCall& c, const char* op, std::vector<OnnxValue> in,
               OnnxAttributes attributes = {});

/// Removes what no output of the graph needs, in the graphs of its nodes as well.
void remove_unused(OnnxGraph& g);

}  // namespace tandem::onnx
