// SPDX-License-Identifier: Apache-2.0
// The draws of the random rows for single elements. The references loop over these; vector kernels
// must give the same bits. Not installed.
#pragma once

#include <type_traits>

#include "tandem/base/philox.h"
#include "tandem/graph/kernel.h"
#include "tandem/tensor/dtype.h"

namespace tandem::detail {

/// Calls f(T{}) with T the element type of a floating dtype.
template <class F>
void visit_floating(DType t, F&& f) {
  switch (t) {
    case DType::f64:
      return f(double{});
    case DType::f16:
      return f(Half{});
    case DType::bf16:
      return f(BFloat16{});
    default:
      return f(float{});
  }
}
/// The type in which elements of type T are computed.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Uniform in [0, 1) with as many bits as T has, so that rounding never gives 1.
template <class T>
inline auto uniform_as(const PhiloxBlock& b) {
  if constexpr (std::is_same_v<T, double>)
    return uniform_f64(b.word64(0));
  else if constexpr (std::is_same_v<T, Half>)
    return static_cast<float>(static_cast<int32_t>(b.w[0] >> 21)) * 0x1p-11f;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return static_cast<float>(static_cast<int32_t>(b.w[0] >> 24)) * 0x1p-8f;
  else
    return uniform_f32(b.w[0]);
}

/// Whether the element of this block is kept with probability `keep` (an f32 comparison).
inline bool draw_below(const PhiloxBlock& b, float keep) { return uniform_f32(b.w[0]) < keep; }

}  // namespace tandem::detail
