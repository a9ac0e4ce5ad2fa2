// SPDX-License-Identifier: Apache-2.0
// FlexBuffers, as far as options of custom operators are written in them: a map from words to
// numbers. https://flatbuffers.dev/internals (FlexBuffers)
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tandem/base/export.h"

namespace tandem::io {

/// The numbers and conditions of the map that `bytes` hold; entries of other kinds are left out.
/// Throws Format, naming `what`, where they hold no map.
TD_API std::map<std::string, double> flexbuffer_numbers(std::string_view bytes,
                                                        const std::string& what);

}  // namespace tandem::io
