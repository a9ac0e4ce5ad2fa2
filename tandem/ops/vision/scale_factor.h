// SPDX-License-Identifier: Apache-2.0
// ScaleFactor: one number for all spatial dimensions, or one for each; an option of interpolate and
// fractional_max_pool2d.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

namespace tandem {

/// A scale factor for all spatial dimensions, or one for each: `2.0`, `{2.0, 1.5}`.
class ScaleFactor {
 public:
  ScaleFactor() = default;
  template <class... N>
    requires(sizeof...(N) >= 1 && sizeof...(N) <= 3 && (std::is_arithmetic_v<N> && ...))
  ScaleFactor(N... n) : v_{static_cast<double>(n)...}, n_(sizeof...(N)) {}
  int count() const { return n_; }
  double operator[](int i) const { return v_[static_cast<size_t>(n_ == 1 ? 0 : i)]; }

 private:
  std::array<double, 3> v_{};
  int n_ = 0;
};

}  // namespace tandem
