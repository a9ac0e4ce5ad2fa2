// SPDX-License-Identifier: Apache-2.0
// The text that stands above emitted C: the math prelude and the scalar ops, written into the
// library when it is built (cmake/PreludeText.cmake), so no source file is read at run time.
#pragma once

#include <string_view>

namespace tandem::codegen {

extern const std::string_view kPreludeText;
/// The same with all macros expanded: typedefs and functions one after the other.
extern const std::string_view kPreludeFunctions;

}  // namespace tandem::codegen
