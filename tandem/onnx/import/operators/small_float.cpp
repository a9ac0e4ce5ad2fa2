// SPDX-License-Identifier: Apache-2.0
// Numbers rounded to ONNX's 8- and 4-bit floats by tensor ops: the same values that
// encode_small_float() and decode_small_float() give, in a trace too.
#include "tandem/onnx/import/operators/small_float_internal.h"

#include <cmath>
#include <limits>

#include "tandem/ops/ops.h"
#include "tandem/ops/view/bits.h"

namespace tandem::onnx {
namespace {

constexpr int kMantissa = 23, kBias = 127;  ///< of f32
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// 2^(field - 127) for exponent fields of at least 1.
Tensor power_of(const Tensor& field) {
  return bitcast(bitwise_left_shift(field, kMantissa), DType::f32);
}

// Powers of two from 2^-127 on: the exponent field of x, one more where x is rounded up.
Tensor through_scale(const Tensor& x, bool saturate, const std::string& mode) {
  const Tensor bits = bitcast(x, DType::i32);
  const Tensor field = bitwise_right_shift(bits, kMantissa), rest = bitwise_and(bits, 0x7FFFFF);
  const Tensor normal = field > 0;
  Tensor result = field;
  // Of a subnormal number 2^-127 is the highest bit of the rest.
  if (mode == "up")
    result = result + where(normal, rest > 0, rest > 0x400000).to(DType::i32);
  else if (mode == "nearest")
    result = result + where(normal, rest >= 0x400000, rest >= 0x600000).to(DType::i32);
  const Tensor least = full({}, std::ldexp(1.0, -kBias), DType::f32);
  const Tensor inside = where(result > 0, power_of(clamp(result, 1, 2 * kBias)), least);
  const float top = saturate ? std::ldexp(1.0F, kBias) : kNaN;
  const Tensor y = where(x > 0, where(result > 2 * kBias, top, inside), least);
  return where(isnan(x), kNaN, where(isinf(x), top, y));
}

}  // namespace

Tensor round_to_small_float(const Tensor& x, OnnxType to, bool saturate, const std::string& mode) {
  if (to == OnnxType::f8e8m0) return through_scale(x, saturate, mode);
  const SmallFloat f = small_float(to);
  const Tensor size = abs(x);
  const Tensor field = bitwise_right_shift(bitcast(size, DType::i32), kMantissa);
  // The unit in the last place; below the least normal number it stays.
  const Tensor unit = power_of(clamp(field, 1 - f.bias + kBias, 2 * kBias) - f.mantissa);
  const Tensor rounded = round(size / unit) * unit;
  const bool limits = saturate || to == OnnxType::f4e2m1;
  const float beyond = limits ? f.largest : f.infinite ? kInfinity : kNaN;
  Tensor y = copysign(where(rounded > f.largest, beyond, rounded), x);
  if (f.unsigned_zero) y = where(eq(y, 0), 0, y);
  return where(isnan(x), to == OnnxType::f4e2m1 ? -0.0F : kNaN, y);
}

}  // namespace tandem::onnx
