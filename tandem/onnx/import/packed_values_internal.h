// SPDX-License-Identifier: Apache-2.0
// Values of a model as tensors beside a text that says how they hang together: what a compiled
// function takes and gives.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tandem/onnx/import/value.h"

namespace tandem::onnx {

struct PackedValues {
  explicit PackedValues(std::span<const OnnxValue> values);
  std::vector<Tensor> tensors;  ///< in order, those in sequences too
  std::string structure;        ///< kinds, element types, lengths of sequences, and all texts
};
/// The values again, with these tensors.
std::vector<OnnxValue> unpack_values(const std::string& structure, std::span<const Tensor> tensors);

}  // namespace tandem::onnx
