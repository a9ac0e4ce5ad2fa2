// SPDX-License-Identifier: Apache-2.0
// The library's messages on stderr, one line each: warnings, and with TANDEM_LOG=debug what it has
// decided where others might want to know. TANDEM_LOG=off silences all.
#pragma once

#include "tandem/base/export.h"
#include "tandem/base/fmt_core.h"

namespace tandem {

TD_API void log_line(const char* level, fmt::string_view format, fmt::format_args args);
/// Are the lines of log_debug() wanted?
TD_API bool logs_debug();

template <class... T>
void log_warning(fmt::format_string<T...> format, const T&... args) {
  log_line("warning", format, fmt::make_format_args(args...));
}

template <class... T>
void log_debug(fmt::format_string<T...> format, const T&... args) {
  if (logs_debug()) log_line("debug", format, fmt::make_format_args(args...));
}

}  // namespace tandem
