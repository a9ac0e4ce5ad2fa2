// SPDX-License-Identifier: Apache-2.0
// The library's messages on stderr: warnings only, one line each. TANDEM_LOG=off silences them.
#pragma once

#include "tandem/base/export.h"
#include "tandem/base/fmt_core.h"

namespace tandem {

TD_API void log_line(const char* level, fmt::string_view format, fmt::format_args args);

template <class... T>
void log_warning(fmt::format_string<T...> format, const T&... args) {
  log_line("warning", format, fmt::make_format_args(args...));
}

}  // namespace tandem
