// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/bytes_in_words.h"

#include <fmt/format.h>

#include <iterator>

namespace tandem {

std::string bytes_in_words(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  for (; bytes >= 10240 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, kUnits[unit]);
}

}  // namespace tandem
