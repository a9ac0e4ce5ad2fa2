// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/log.h"

#include <cstdlib>
#include <cstring>

namespace tandem {

void log_line(const char* level, fmt::string_view format, fmt::format_args args) {
  static const bool off = [] {
    const char* v = std::getenv("TANDEM_LOG");
    return v && std::strcmp(v, "off") == 0;
  }();
  if (off) return;
  std::string text = fmt::vformat(format, args);
  fmt::print(stderr, "tandem {}: {}\n", level, text);
}

}  // namespace tandem
