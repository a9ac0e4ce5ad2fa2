// SPDX-License-Identifier: Apache-2.0
// Single functions out of the text that emitted C begins with (codegen/prelude_text.h): those that
// a piece of C calls, and what these call.
#pragma once

#include <string>

namespace tandem::edge {

/// The typedefs and functions that `text` needs, in an order that compiles.
std::string prelude_for(const std::string& text);

}  // namespace tandem::edge
