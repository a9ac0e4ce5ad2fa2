// SPDX-License-Identifier: Apache-2.0
// Activations that a node names in an attribute: those of RNN, GRU and LSTM, and of fused ops.
#pragma once

#include <string>

#include "tandem/tensor/tensor.h"

namespace tandem::onnx {

struct OnnxActivation {
  std::string name;  ///< in lower case
  double alpha = 0, beta = 0, gamma = 0;
};
/// The activation of this name, in any case, with ONNX's defaults for its parameters; those of clip
/// are its limits.
OnnxActivation onnx_activation(std::string name);
/// Throws Unsupported for an unknown name.
Tensor onnx_activate(const OnnxActivation& a, const Tensor& x);

}  // namespace tandem::onnx
