// SPDX-License-Identifier: Apache-2.0
// Sizes of inputs as a user writes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::interop {

/// "1x3x224x224" as sizes. Throws Value unless all are whole numbers above zero.
TD_API std::vector<int64_t> parse_shape(const std::string& text);

/// The sizes that `text` gives the inputs called `names`: "x:1x3x224x224,mask:1x128", or without
/// names in their order. Entry k belongs to names[k] and is empty where nothing is said of it. The
/// only input is meant by any name. Throws Value for a name that no input has, for more shapes than
/// inputs, and for what parse_shape() refuses.
TD_API std::vector<std::vector<int64_t>> named_shapes(const std::string& text,
                                                      const std::vector<std::string>& names);

}  // namespace tandem::interop
