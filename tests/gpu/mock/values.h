// SPDX-License-Identifier: Apache-2.0
// Elements of the floating types for the libraries of this folder.
#pragma once

#include <cmath>
#include <cstdint>

#include "tandem/base/half.h"

namespace tandem::mock {

enum class Type { f32, f64, f16, bf16 };

inline double load(const void* from, Type type, int64_t at) {
  if (type == Type::f32) return static_cast<const float*>(from)[at];
  if (type == Type::f64) return static_cast<const double*>(from)[at];
  const uint16_t bits = static_cast<const uint16_t*>(from)[at];
  return type == Type::f16 ? half_bits_to_float(bits) : bfloat16_bits_to_float(bits);
}

inline void store(void* to, Type type, int64_t at, double value) {
  const auto v = static_cast<float>(value);
  if (type == Type::f32) {
    static_cast<float*>(to)[at] = v;
  } else if (type == Type::f64) {
    static_cast<double*>(to)[at] = value;
  } else {
    static_cast<uint16_t*>(to)[at] =
        type == Type::f16 ? float_to_half_bits(v) : float_to_bfloat16_bits(v);
  }
}

/// With 10 bits of mantissa behind the leading one, as units have f32 that may be tf32.
inline double as_tf32(double v) {
  int exponent = 0;
  const double mantissa = std::frexp(v, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, 11)), exponent - 11);
}

}  // namespace tandem::mock
