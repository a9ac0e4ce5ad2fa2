// SPDX-License-Identifier: Apache-2.0
// Convolutions and matmuls between dequantize_linear and quantize_linear become integer ones; codes
// are those of eager code, or one off where a value lies half-way.
#include "tandem/ops/matmul/integer.h"
#include "tandem/ops/matmul/integer_depthwise.h"
#include "tandem/ops/matmul/integer_winograd.h"
#include "tandem/ops/pointwise/quantize.h"
#include "tests/compile/helpers.h"

namespace tandem::test {
namespace {

Tensor kept(const Tensor& t) { return is_tracing() ? constant(t) : t; }
Tensor one(double v, DType t) { return kept(full({}, v, t)); }

struct Weight {
  Tensor codes, scale, bias, bias_scale;
  Weight(const Shape& s, int64_t outputs, double x_scale)
      : codes(randint(-127, 128, s).to(DType::i8)),
        scale(rand({outputs}) * 0.01 + 0.002),
        bias(randint(-3000, 3000, {outputs}).to(DType::i32)),
        bias_scale(scale * x_scale) {}
  Tensor weight(int64_t axis) const {
    return dequantize_linear(kept(codes), kept(scale), {}, axis);
  }
  Tensor bias_of() const { return dequantize_linear(kept(bias), kept(bias_scale), {}, 0); }
};

constexpr double kStep = 0.05;
Tensor coded(const Tensor& x, DType t = DType::u8, double step = kStep) {
  return quantize_linear(x, one(step, DType::f32), one(t == DType::u8 ? 10 : -20, t), 0, t);
}
Tensor decoded(const Tensor& q, double step = kStep) {
  return dequantize_linear(q, one(step, DType::f32),
                           one(q.dtype() == DType::u8 ? 10 : -20, q.dtype()), 0);
}

template <class F>
void expect_integers(const F& f, const Tensor& x, int convs, int matmuls) {
  const NoGradGuard no_grad;
  const Tensor want = f(x);
  auto same = compile([&](Tensor v) { return f(v); });
  EXPECT_TRUE(same_bits(same(x), want));
  EXPECT_EQ(count_ops(same.executable(), op::packed_integer_conv), 0);
  EXPECT_EQ(count_ops(same.executable(), op::integer_depthwise_conv), 0);
  auto fast = compile([&](Tensor v) { return f(v); }, {.same_bits = false});
  const Tensor got = fast(x);
  EXPECT_EQ(count_ops(fast.executable(), op::packed_integer_conv) +
                count_ops(fast.executable(), op::integer_winograd_conv) +
                count_ops(fast.executable(), op::integer_depthwise_conv),
            convs)
      << fast.executable()->to_string();
  EXPECT_EQ(count_ops(fast.executable(), op::packed_integer_matmul), matmuls);
  ASSERT_EQ(got.dtype(), want.dtype());
  const Tensor apart = abs(got.to(DType::f64) - want.to(DType::f64));
  EXPECT_LE(amax(apart).item<double>(), 1);
  EXPECT_LE(mean(apart).item<double>(), 0.001);
}

TEST(Quantised, Convolutions) {
  manual_seed(31);
  for (const DType t : {DType::u8, DType::i8}) {
    const Weight a({24, 3, 3, 3}, 24, kStep), b({40, 24, 3, 3}, 40, kStep),
        c({40, 40, 1, 1}, 40, kStep);
    const auto f = [&](const Tensor& x) {
      Tensor y = relu(conv2d(decoded(coded(x, t)), a.weight(0), a.bias_of(), 1, 1));
      y = decoded(coded(max_pool2d(decoded(coded(y, t)), 2), t));
      const Tensor z = conv2d(y, b.weight(0), b.bias_of(), 1, 1);
      y = conv2d(decoded(coded(z, t)), c.weight(0), {}, 1, 0);
      return coded(relu(decoded(coded(y, t)) + decoded(coded(z, t))), t, 0.1);
    };
    expect_integers(f, randn({2, 3, 16, 12}) * 3.0, 3, 0);
  }
}

// The block of a MobileNet; the sums between 1x1 and depthwise convolutions are also read twice.
TEST(Quantised, DepthwiseConvolutions) {
  manual_seed(34);
  const bool taken = has_own_kernel(op::integer_depthwise_conv, Device());
  const Weight a({48, 24, 1, 1}, 48, kStep), b({48, 1, 3, 3}, 48, kStep),
      c({24, 48, 1, 1}, 24, kStep);
  const auto f = [&](const Tensor& x) {
    const Tensor start = decoded(coded(x));
    Tensor y = clamp(conv2d(start, a.weight(0), a.bias_of()), 0, 6);
    y = clamp(conv2d(decoded(coded(y)), b.weight(0), b.bias_of(), 1, 1, 1, 48), 0, 6);
    y = decoded(coded(conv2d(decoded(coded(y)), c.weight(0), c.bias_of())));
    return coded(y + start);
  };
  expect_integers(f, randn({2, 24, 17, 13}) * 3.0, taken ? 3 : 2, 0);
}

TEST(Quantised, Matmuls) {
  manual_seed(32);
  const Weight a({33, 70}, 33, kStep), b({33, 20}, 20, kStep);
  const Tensor offset = randn({20});
  const auto f = [&](const Tensor& x) {
    const Tensor y = relu(linear(decoded(coded(x)), a.weight(0), a.bias_of()));
    return coded(matmul(decoded(coded(y)), b.weight(1)) + kept(offset));
  };
  expect_integers(f, randn({3, 5, 70}) * 2.0, 0, 2);
}

// Codes whose leading dimensions lie in another order.
TEST(Quantised, MatmulsOfTurnedCodes) {
  manual_seed(33);
  const NoGradGuard no_grad;
  const Tensor w = (rand({70, 20}) * 255.0 - 128.0).to(DType::i8);
  const Tensor x = (rand({3, 5, 70}) * 255.0 - 128.0).to(DType::i8);
  const auto f = [&](const Tensor& v) { return matmul_integer(v.transpose(0, 1), kept(w)); };
  auto g = compile([&](Tensor v) { return f(v); });
  EXPECT_TRUE(equal(g(x), f(x)));
  EXPECT_EQ(count_ops(g.executable(), op::packed_integer_matmul), 1);
}

// Groups, weights with a scale for each input, and codes of 32 bits stay in floating point.
TEST(Quantised, WhatHasNoIntegerKernel) {
  manual_seed(33);
  const Weight w({8, 2, 3, 3}, 8, kStep), rows({12, 6}, 12, kStep);
  const auto grouped = [&](const Tensor& x) {
    return coded(conv2d(decoded(coded(x)), w.weight(0), w.bias_of(), 1, 1, 1, 4));
  };
  expect_integers(grouped, randn({1, 8, 9, 9}), 0, 0);
  const auto by_input = [&](const Tensor& x) {
    return coded(matmul(decoded(coded(x)), rows.weight(0)));
  };
  expect_integers(by_input, randn({4, 12}), 0, 0);
}

}  // namespace
}  // namespace tandem::test
