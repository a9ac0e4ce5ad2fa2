// SPDX-License-Identifier: Apache-2.0
// The files beside an ONNX file in which its weights lie.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::onnx {

/// The locations that tensors of the ONNX file name as their external data, each once, in the order
/// of the file and as they stand there: nothing says that such a file exists or may be read. Throws
/// Io where the file cannot be read, Format where it is not an ONNX file.
TD_API std::vector<std::string> external_locations(const std::string& path);

}  // namespace tandem::onnx
