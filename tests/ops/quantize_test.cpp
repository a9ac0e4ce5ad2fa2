// SPDX-License-Identifier: Apache-2.0
// quantize_linear and dequantize_linear by ONNX's text, with what saturates and what lies half-way;
// the straight-through gradients of fake_quantize; what the functions refuse.
#include "tandem/ops/pointwise/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tandem/tandem.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem {
namespace {

using Doubles = std::vector<double>;

Doubles doubles(const Tensor& t) { return t.to_vector<double>(); }
Tensor zero_of(int64_t v, DType t) { return full(Shape(), v, t); }

struct CodesCase {
  DType dtype;
  double scale;
  int64_t zero;
  Doubles x, codes;
};

TEST(Quantize, CodesByTheText) {
  const CodesCase kCases[] = {
      {DType::u8,
       2,
       128,
       {0, 1, 3, 5, -1, -3, 254, 255, 257, -254, -258, 1e9, -1e9},
       {128, 128, 130, 130, 128, 126, 255, 255, 255, 1, 0, 255, 0}},
      {DType::i8,
       0.5,
       -1,
       {0, 0.25, 0.75, -0.25, -0.75, 64, 63.75, -63.5, -64, 1e30},
       {-1, -1, 1, -1, -3, 127, 127, -128, -128, 127}},
      {DType::u8, 0.1, 0, {INFINITY, -INFINITY, 0.05, 0.15, 25.5, 25.6}, {255, 0, 0, 2, 255, 255}},
  };
  for (const CodesCase& c : kCases) {
    const Tensor x = tensor(c.x).to(float32), scale = full(Shape(), c.scale, float32),
                 zero = zero_of(c.zero, c.dtype);
    const Tensor q = quantize_linear(x, scale, zero, 0, c.dtype);
    EXPECT_EQ(q.dtype(), c.dtype);
    EXPECT_EQ(doubles(q), c.codes);
    const Doubles y = doubles(dequantize_linear(q, scale, zero, 0));
    for (size_t i = 0; i < y.size(); ++i)
      EXPECT_FLOAT_EQ(static_cast<float>(y[i]),
                      static_cast<float>(c.codes[i] - static_cast<double>(c.zero)) *
                          static_cast<float>(c.scale));
  }
}

TEST(Quantize, EachIndexOfADimensionHasItsScale) {
  const Tensor x = tensor({1.0, 2.0, 3.0, 10.0, 20.0, 30.0}).to(float32).reshape({2, 3}),
               scale = tensor({0.5, 10.0}).to(float32), zero = tensor({3.0, -4.0}).to(DType::i8);
  const Tensor q = quantize_linear(x, scale, zero, 0, DType::i8);
  EXPECT_EQ(doubles(q), (Doubles{5, 7, 9, -3, -2, -1}));
  EXPECT_EQ(doubles(dequantize_linear(q, scale, zero, -2)), doubles(x));
  const Tensor wide = tensor({16777217, -3}).to(DType::i32);
  const Doubles y = doubles(dequantize_linear(wide, full(Shape(), 3.0, float32)));
  EXPECT_EQ(y[0] - 50331652, 0);
  EXPECT_EQ(y[1], -9);
}

// x / scale = -2.5, -0.5, 0.7, 1.2, 9 with codes 0..3 and the zero point 1.
TEST(Quantize, StraightThroughGradients) {
  const auto leaf = [](Doubles v, const Shape& s) {
    Tensor t = tensor(v).to(float64).reshape(s);
    t.requires_grad_();
    return t;
  };
  for (const bool vector : {false, true}) {
    Tensor x = leaf({-5, -1, 1.4, 2.4, 18}, Shape(1, 5)),
           scale = leaf({2}, vector ? Shape(1) : Shape()),
           zero = leaf({1}, vector ? Shape(1) : Shape());
    const Tensor g = tensor({1.0, 10.0, 100.0, 1000.0, 10000.0}).reshape({1, 5});
    const Tensor y = fake_quantize(x, scale, zero, {0, 0, 3, 0.5});
    EXPECT_EQ(doubles(y), (Doubles{-2, 0, 2, 2, 4}));
    (y * g).sum().backward();
    EXPECT_EQ(doubles(x.grad()), (Doubles{0, 10, 100, 1000, 0}));
    // Clamped codes less the zero point: -1 and 2; else round(r) - r: 0.5, 0.3, -0.2.
    const Doubles by_scale = doubles(scale.grad());
    ASSERT_EQ(by_scale.size(), 1u);
    EXPECT_NEAR(by_scale[0], 0.5 * (-1 + 10 * 0.5 + 100 * 0.3 - 1000 * 0.2 + 10000 * 2), 1e-9);
    EXPECT_NEAR(doubles(zero.grad())[0], 0.5 * -2 * (1 + 10000), 1e-9);
  }
}

// (clamp(round(x / scale) + zero, low, high) - zero) * scale, and 1 or 0 as its gradient.
TEST(Quantize, FakeQuantizeUnderPyTorchsNames) {
  manual_seed(5);
  Tensor x = (randn({4, 3, 5}) * 2.0).requires_grad_();
  const std::vector<float> values = x.to_vector<float>(), scales{0.125f, 0.0625f, 0.25f},
                           zeros{3, -2, 0};
  const Tensor scale = tensor(scales), zero = tensor(zeros);
  const auto check = [&](const Tensor& y, const std::function<size_t(size_t)>& channel) {
    x.zero_grad();
    y.sum().backward();
    const std::vector<float> got = y.to_vector<float>(), g = x.grad().to_vector<float>();
    int clamped = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const float s = scales[channel(i)], z = zeros[channel(i)],
                  code = std::nearbyint(values[i] / s) + z;
      const bool inside = code >= -8 && code <= 7;
      EXPECT_EQ(got[i], (std::min(std::max(code, -8.0f), 7.0f) - z) * s);
      EXPECT_EQ(g[i], inside ? 1.0f : 0.0f);
      clamped += !inside;
    }
    EXPECT_GT(clamped, 5);
    EXPECT_LT(clamped, 55);
  };
  check(fake_quantize_per_channel_affine(x, scale, zero, 1, -8, 7),
        [](size_t i) { return i / 5 % 3; });
  check(fake_quantize_per_tensor_affine(x, 0.25, 0, -8, 7), [](size_t) { return 2; });
  check(fake_quantize_per_tensor_affine(x, full(Shape(), 0.125, float32),
                                        full(Shape(), 3.0, float32), -8, 7),
        [](size_t) { return 0; });
}

TEST(Quantize, IsWhatCodesLeave) {
  manual_seed(3);
  const Tensor x = randn({4, 6, 5}) * 3.0, scale = rand({6}) * 0.05 + 0.01,
               zero = randint(-20, 20, {6}).to(DType::i8);
  const Tensor there =
      dequantize_linear(quantize_linear(x, scale, zero, 1, DType::i8), scale, zero);
  EXPECT_EQ(doubles(fake_quantize(x, scale, zero, {1, -128, 127})), doubles(there));
  Tensor step = scale.clone();
  step.requires_grad_();
  const Tensor q = quantize_linear(x, scale, zero, 1, DType::i8);
  dequantize_linear(q, step, zero).sum().backward();
  const Tensor want = (q.to(float32) - zero.to(float32).reshape({1, 6, 1})).sum({0, 2});
  EXPECT_EQ(doubles(step.grad()), doubles(want));
}

TEST(Quantize, SaysWhatItWants) {
  const Tensor x = ones({2, 3}), one = full(Shape(), 1.0, float32), q = zeros({2, 3}, DType::u8);
  const auto refused = [](const char* text, auto f) {
    const std::string got = error_of(f);
    EXPECT_TRUE(has(got, text)) << got;
  };
  refused("DType: ", [&] { quantize_linear(q, one); });
  refused("x is uint8, expected a floating dtype", [&] { quantize_linear(q, one); });
  refused("codes of int32 were asked for", [&] { quantize_linear(x, one, {}, 1, DType::i32); });
  refused("scale is [2], x is [2, 3]: expected one number or [3]",
          [&] { quantize_linear(x, ones({2})); });
  refused("zero_point is 9, expected one of the codes -8 to 7",
          [&] { fake_quantize_per_tensor_affine(x, 0.5, 9, -8, 7); });
  refused("scale is [3], expected one number",
          [&] { fake_quantize_per_tensor_affine(x, ones({3}), {}, -8, 7); });
  refused("zero is [3], expected the shape of scale, []",
          [&] { quantize_linear(x, one, zeros({3}, DType::u8)); });
  refused("zero is int8, expected uint8", [&] { quantize_linear(x, one, zero_of(0, DType::i8)); });
  refused("Index: ", [&] { quantize_linear(x, ones({3}), {}, 2); });
  refused("codes are float32", [&] { dequantize_linear(x, one); });
  refused("scale is int32", [&] { dequantize_linear(q, zero_of(1, DType::i32)); });
  refused("codes from 5 to 5", [&] { fake_quantize(x, one, {}, {1, 5, 5}); });
}

}  // namespace
}  // namespace tandem
