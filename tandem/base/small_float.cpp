// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/small_float.h"

#include <cmath>
#include <limits>

namespace tandem {

SmallFloatLayout layout_of(SmallFloat format) {
  switch (format) {
    case SmallFloat::e4m3fn:
      return {4, 3, 7, 448.0f, false, false};
    case SmallFloat::e4m3fnuz:
      return {4, 3, 8, 240.0f, false, true};
    case SmallFloat::e5m2:
      return {5, 2, 15, 57344.0f, true, false};
    case SmallFloat::e5m2fnuz:
      return {5, 2, 16, 57344.0f, false, true};
    case SmallFloat::e8m0fnu:
      return {8, 0, 127, 0x1p127f, false, false};
    case SmallFloat::e2m1fn:
      return {2, 1, 1, 6.0f, false, false};
  }
  __builtin_unreachable();
}

float decode(SmallFloat format, uint8_t bits) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const SmallFloatLayout f = layout_of(format);
  if (format == SmallFloat::e8m0fnu)
    return bits == 0xFF ? kNaN : static_cast<float>(std::ldexp(1.0, int{bits} - f.bias));
  const int all = 1 << f.exponent, e = bits >> f.mantissa & (all - 1);
  const int m = bits & ((1 << f.mantissa) - 1);
  const float sign = bits >> (f.exponent + f.mantissa) & 1 ? -1.0f : 1.0f;
  if (format == SmallFloat::e4m3fn && (bits & 0x7F) == 0x7F) return kNaN;
  if (f.one_zero && bits == 0x80) return kNaN;
  if (f.infinite && e == all - 1) return m ? kNaN : sign * std::numeric_limits<float>::infinity();
  const double v = e == 0 ? std::ldexp(m, 1 - f.bias - f.mantissa)
                          : std::ldexp(m + (1 << f.mantissa), e - f.bias - f.mantissa);
  return sign * static_cast<float>(v);
}

}  // namespace tandem
