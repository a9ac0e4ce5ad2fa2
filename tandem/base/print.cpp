// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/print.h"

#include <fmt/format.h>

#include <cstdio>

namespace tandem::detail {

void write_lines(std::string text) noexcept {
  if (text.empty() || text.back() != '\n') text.push_back('\n');
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void print_formatted(fmt::string_view format, fmt::format_args args) {
  write_lines(fmt::vformat(format, args));
}

}  // namespace tandem::detail
