// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/log.h"

#include <cstdlib>
#include <cstring>

namespace tandem {
namespace {
bool log_is(const char* word) {
  const char* v = std::getenv("TANDEM_LOG");
  return v && std::strcmp(v, word) == 0;
}
}  // namespace

bool logs_debug() {
  static const bool on = log_is("debug");
  return on;
}

void log_line(const char* level, fmt::string_view format, fmt::format_args args) {
  static const bool off = log_is("off");
  if (off) return;
  std::string text = fmt::vformat(format, args);
  fmt::print(stderr, "tandem {}: {}\n", level, text);
}

}  // namespace tandem
