// SPDX-License-Identifier: Apache-2.0
// Every value of each format is worked out in tests/weights (PyTorch's) and tests/onnx; here are
// the ends of each.
#include "tandem/base/small_float.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tandem {
namespace {

TEST(SmallFloat, EndsOfEachFormat) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = NAN;
  const struct {
    SmallFloat format;
    uint8_t bits;
    float want;
  } cases[] = {
      {SmallFloat::e4m3fn, 0x7E, 448},        {SmallFloat::e4m3fn, 0x7F, kNaN},
      {SmallFloat::e4m3fn, 0x01, 0x1p-9f},    {SmallFloat::e4m3fn, 0x80, -0.0f},
      {SmallFloat::e4m3fnuz, 0x7F, 240},      {SmallFloat::e4m3fnuz, 0x80, kNaN},
      {SmallFloat::e4m3fnuz, 0x01, 0x1p-10f}, {SmallFloat::e5m2, 0x7B, 57344},
      {SmallFloat::e5m2, 0x7C, kInf},         {SmallFloat::e5m2, 0xFC, -kInf},
      {SmallFloat::e5m2, 0x7D, kNaN},         {SmallFloat::e5m2, 0x01, 0x1p-16f},
      {SmallFloat::e5m2fnuz, 0x7F, 57344},    {SmallFloat::e5m2fnuz, 0x80, kNaN},
      {SmallFloat::e8m0fnu, 0x00, 0x1p-127f}, {SmallFloat::e8m0fnu, 0x7F, 1},
      {SmallFloat::e8m0fnu, 0xFE, 0x1p127f},  {SmallFloat::e8m0fnu, 0xFF, kNaN},
      {SmallFloat::e2m1fn, 0x7, 6},           {SmallFloat::e2m1fn, 0x1, 0.5f},
      {SmallFloat::e2m1fn, 0xF, -6},          {SmallFloat::e2m1fn, 0x8, -0.0f},
  };
  for (const auto& c : cases) {
    const float got = decode(c.format, c.bits);
    EXPECT_TRUE(got == c.want || (std::isnan(got) && std::isnan(c.want)))
        << static_cast<int>(c.format) << " " << int{c.bits} << ": " << got;
    EXPECT_EQ(std::signbit(got), std::signbit(c.want) && !std::isnan(c.want)) << int{c.bits};
  }
}

}  // namespace
}  // namespace tandem
