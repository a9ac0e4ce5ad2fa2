// SPDX-License-Identifier: Apache-2.0
// Input sizes in the form that users write.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::onnx {

/// "1x3x224x224" as sizes. Throws Value unless all are whole numbers above zero.
TD_API std::vector<int64_t> parse_shape(const std::string& text);

/// The sizes that `text` gives for the inputs `names`: "x:1x3x224x224,mask:1x128", or without names
/// in their order. Entry k belongs to names[k] and is empty if not given. A sole input matches any
/// name. Throws Value for an unknown input, for more shapes than inputs, and for what parse_shape()
/// rejects.
TD_API std::vector<std::vector<int64_t>> named_shapes(const std::string& text,
                                                      const std::vector<std::string>& names);

}  // namespace tandem::onnx
