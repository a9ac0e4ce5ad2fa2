// SPDX-License-Identifier: Apache-2.0
// The arguments of x[...]: a range, and an index with the caller's line.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "tandem/base/source_location.h"

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
/// The index of x[...] with the caller's line, since operators have no default arguments.
template <class T>
struct Located {
  T value;
  SourceLocation loc;
  template <class U>
    requires(std::is_convertible_v<U&&, T>&& std::is_integral_v<std::remove_cvref_t<U>> ==
             std::is_same_v<T, int64_t>)
  Located(U&& v, SourceLocation loc = SourceLocation::here())
      : value(static_cast<T>(std::forward<U>(v))), loc(loc) {}
};
}  // namespace detail

}  // namespace tandem
