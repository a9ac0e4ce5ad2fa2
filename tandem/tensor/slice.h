// SPDX-License-Identifier: Apache-2.0
// What x[...] takes: a range, and an index with the caller's line.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "tandem/base/where.h"

namespace tandem {

/// A range for indexing: `x[Slice(1, 5)]`, `x.index({Slice(), 0})`. Ends may be negative.
struct Slice {
  static constexpr int64_t kEnd = INT64_MAX;
  int64_t start = 0, end = kEnd, step = 1;
  constexpr Slice() = default;
  constexpr Slice(int64_t start, int64_t end = kEnd, int64_t step = 1)
      : start(start), end(end), step(step) {}
};

namespace detail {
/// The index of x[...] and the caller's line: an operator has no defaulted parameters.
template <class T>
struct Located {
  T value;
  Where where;
  template <class U>
    requires(std::is_convertible_v<U&&, T>&& std::is_integral_v<std::remove_cvref_t<U>> ==
             std::is_same_v<T, int64_t>)
  Located(U&& v, Where where = Where::here())
      : value(static_cast<T>(std::forward<U>(v))), where(where) {}
};
}  // namespace detail

}  // namespace tandem
