// SPDX-License-Identifier: Apache-2.0
// Snappy, as far as reading needs it: the tables of TensorFlow's checkpoints are compressed so.
// https://github.com/google/snappy/blob/main/format_description.txt
#pragma once

#include <string>
#include <string_view>

#include "tandem/base/export.h"

namespace tandem::io {

/// The bytes that `packed`, one raw snappy stream, stands for; `what` is used in errors. Throws
/// Format when it is damaged or asks for more than the open Budget has.
TD_API std::string snappy_decompress(std::string_view packed, const std::string& what);

}  // namespace tandem::io
