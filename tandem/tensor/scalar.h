// SPDX-License-Identifier: Apache-2.0
// Scalar: a number in an expression (`x * 2`) that keeps its category: an int does not promote a
// float tensor, a float promotes an int tensor to the default float (PyTorch's rule).
#pragma once

#include <concepts>
#include <cstdint>

#include "tandem/tensor/dtype.h"

namespace tandem {

struct Scalar {
  union {
    int64_t i = 0;
    double f;
  };
  /// 0 bool, 1 integer, 2 floating: as category(DType).
  uint8_t kind = 1;

  constexpr Scalar() = default;
  template <class T>
    requires std::is_arithmetic_v<T>
  constexpr Scalar(T v) {
    if constexpr (std::floating_point<T>) {
      f = static_cast<double>(v);
      kind = 2;
    } else {
      i = static_cast<int64_t>(v);
      kind = std::same_as<T, bool> ? 0 : 1;
    }
  }
  constexpr double to_double() const { return kind == 2 ? f : static_cast<double>(i); }
  constexpr int64_t to_int() const { return kind == 2 ? static_cast<int64_t>(f) : i; }
  /// The representative dtype of its category: bool, i64, f32.
  constexpr DType dtype() const {
    return kind == 2 ? DType::f32 : kind == 1 ? DType::i64 : DType::b8;
  }
};

}  // namespace tandem
