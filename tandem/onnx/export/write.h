// SPDX-License-Identifier: Apache-2.0
// Writes an OnnxModelProto as the bytes of a file: the inverse of parse_onnx_model.
#pragma once

#include <map>
#include <string>

#include "tandem/onnx/model.h"

namespace tandem::onnx {

/// Where the bytes of an initializer are stored: in another file below the model's folder.
struct OnnxExternalData {
  std::string location;  ///< relative to the model's folder
  uint64_t offset = 0, length = 0;
};

/// The model's bytes; equal models give equal bytes. Initializers named in `external` point into
/// that file, all others are written as raw_data. Throws Unsupported for sequences as constants,
/// Value beyond the 2 GB that protocol buffer readers accept.
TD_API std::string write_onnx_model(const OnnxModelProto& model,
                                    const std::map<std::string, OnnxExternalData>& external = {});

}  // namespace tandem::onnx
