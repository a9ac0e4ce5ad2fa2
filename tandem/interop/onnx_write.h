// SPDX-License-Identifier: Apache-2.0
// An OnnxModelProto as the bytes of a file: the opposite of parse_onnx_model.
#pragma once

#include <map>
#include <string>

#include "tandem/interop/onnx_model.h"

namespace tandem::interop {

/// Where the bytes of an initializer lie: in another file beneath the model's folder.
struct OnnxExternalData {
  std::string location;  ///< relative to the model's folder
  uint64_t offset = 0, length = 0;
};

/// The model's bytes; the same model gives the same ones. Initializers named in `external` point
/// into that file, all others are written as raw_data. Throws Unsupported for sequences as
/// constants, Value beyond the 2 GB that readers of protocol buffers take.
TD_API std::string write_onnx_model(const OnnxModelProto& model,
                                    const std::map<std::string, OnnxExternalData>& external = {});

}  // namespace tandem::interop
