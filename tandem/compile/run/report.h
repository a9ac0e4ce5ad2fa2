// SPDX-License-Identifier: Apache-2.0
// A look inside an Executable: one self-contained HTML page with its steps and its memory over
// time.
#pragma once

#include <string>

#include "tandem/compile/run/executable.h"

namespace tandem {

/// The page: a drawing of the arena (steps from left to right, addresses from bottom to top; a
/// rectangle is a buffer), what is alive at the peak, and every step with layer and line. No other
/// file is needed to show it.
TD_API std::string html_report(const Executable& e, const std::string& title = "compiled function");

}  // namespace tandem
