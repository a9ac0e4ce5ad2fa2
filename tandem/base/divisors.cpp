// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/divisors.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {

std::string divisor_hint(const char* name, int64_t wanted, int64_t total) {
  if (total < 1) return fmt::format("What {} divides must be positive.", name);
  // Divisors come in pairs, so those up to the root tell all of them.
  int64_t below = 1, above = total;
  for (int64_t d = 1; d <= total / d && d <= (int64_t{1} << 24); ++d) {
    if (total % d != 0) continue;
    for (const int64_t one : {d, total / d}) {
      if (one < wanted) below = std::max(below, one);
      if (one > wanted) above = std::min(above, one);
    }
  }
  if (below == above || wanted < 1)
    return fmt::format("Take {} = {}: it divides {}.", name, below, total);
  if (wanted > total) return fmt::format("Take {} = {} at most.", name, total);
  return fmt::format("Take {} = {} or {}: these divide {}.", name, below, above, total);
}

}  // namespace tandem
