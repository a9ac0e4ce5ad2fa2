// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

namespace tandem::distributed::detail {

/// Elements [begin, end) of n that rank r of `ranks` has; the first ranks have one more where they
/// do not divide.
inline std::pair<int64_t, int64_t> share_of(int64_t n, int64_t r, int64_t ranks) {
  const int64_t each = n / ranks, more = n % ranks;
  const auto at = [&](int64_t i) { return i * each + (i < more ? i : more); };
  return {at(r), at(r + 1)};
}

}  // namespace tandem::distributed::detail
