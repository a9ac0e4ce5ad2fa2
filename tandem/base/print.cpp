// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/print.h"

#include <fmt/format.h>

#include <cstdio>

namespace tandem::detail {

void write_stdout(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void print_formatted(fmt::string_view format, fmt::format_args args) {
  write_stdout(fmt::vformat(format, args));
}

}  // namespace tandem::detail
