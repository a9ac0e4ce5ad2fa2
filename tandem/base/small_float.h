// SPDX-License-Identifier: Apache-2.0
// Floats of 8 and fewer bits, as files hold them: the formats of the OCP (FP8 specification 1.0,
// microscaling formats 1.0) and those without infinities and with one zero (fnuz).
#pragma once

#include <cstdint>

#include "tandem/base/export.h"

namespace tandem {

enum class SmallFloat : uint8_t { e4m3fn, e4m3fnuz, e5m2, e5m2fnuz, e8m0fnu, e2m1fn };

/// Its sign, exponent and fraction. e8m0fnu is a power of two without a sign.
struct SmallFloatLayout {
  int exponent, mantissa, bias;
  float largest;  ///< the largest finite number
  bool infinite;  ///< has infinities
  bool one_zero;  ///< what would be -0 is NaN
};
TD_API SmallFloatLayout layout_of(SmallFloat format);

/// The number that `bits` stand for; all formats are exact in f32.
TD_API float decode(SmallFloat format, uint8_t bits);

}  // namespace tandem
