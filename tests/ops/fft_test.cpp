// SPDX-License-Identifier: Apache-2.0
// Fourier transforms: round trips at every kind of length, derivatives, perfect reconstruction of
// signals from frames, error texts.
#include <cmath>

#include "tests/ops/values_helper.h"

namespace tandem::testing_ops {
namespace {

class FftTest : public OpsTest {
 protected:
  void SetUp() override { manual_seed(8); }
};

double far(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape().to_string(), b.shape().to_string());
  return (a - b).abs().max().to(float64).item<double>();
}

// Products of small primes, a prime, twice a prime, a prime squared, a power of two.
TEST_F(FftTest, RoundTripsAtEveryLength) {
  for (int64_t n : {1, 2, 3, 30, 61, 67, 97, 134, 4489, 4096, 10007}) {
    const Tensor x = randn({2, n, 2}, float64);
    EXPECT_LT(far(fft::ifft(fft::fft(x)), x), 1e-12) << n;
    const Tensor r = randn({n, 2}, float64);
    EXPECT_LT(far(fft::irfft(fft::rfft(r, {}, 0), n, 0), r), 1e-12) << n;
    EXPECT_LT(far(fft::ifft(fft::fft(x.to(float32))), x.to(float32)), 1e-5) << n;
  }
  // One wave is one line.
  const int64_t n = 67;
  const Tensor t = arange(n).to(float64) * (2 * 3.14159265358979323846 * 5 / 67.0);
  const Tensor size = complex_abs(fft::rfft(cos(t)));
  EXPECT_NEAR(size[5].item<double>(), 33.5, 1e-12);
  EXPECT_NEAR(size.sum().item<double>(), 33.5, 1e-10);
}

// The sum itself, in f64.
Tensor direct(const Tensor& x, bool inverse) {
  const int64_t n = x.size(-2);
  const Tensor k = arange(n), at = k.unsqueeze(1) * k % n;
  const double turn = (inverse ? 2 : -2) * 3.14159265358979323846 / static_cast<double>(n);
  const Tensor angle = at.to(float64) * turn;
  return complex_mul(make_complex(cos(angle), sin(angle)), x.to(float64).unsqueeze(-3)).sum({-2});
}

// Every radix, sums over roots of unity, odd and even real lines, chirps; 19 lines fill a vector
// and part of one, and each has the bits that it has alone, along either dimension.
TEST_F(FftTest, LinesAreDirectSumsWithTheSameBitsAlone) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (int64_t n :
         {2, 3, 4, 5, 7, 8, 9, 15, 16, 21, 32, 60, 64, 67, 77, 120, 122, 134, 143, 200}) {
      const double tolerance = dtype == DType::f32 ? 1e-6 : 1e-14, size = std::sqrt(n);
      const Tensor x = randn({19, n, 2}, dtype), r = randn({19, n}, dtype);
      const Tensor y = fft::fft(x), z = fft::rfft(r), back = fft::irfft(z, n);
      const Tensor full = make_complex(r, zeros_like(r));
      EXPECT_LT(far(y.to(float64), direct(x, false)), 4 * size * tolerance) << n;
      EXPECT_LT(far(fft::ifft(x, {}, 1, "forward").to(float64), direct(x, true)),
                4 * size * tolerance)
          << n;
      EXPECT_LT(far(z.to(float64), narrow(direct(full, false), 1, 0, n / 2 + 1)),
                4 * size * tolerance)
          << n;
      EXPECT_LT(far(back, r), 8 * tolerance) << n;
      for (int64_t line : {0, 7, 18}) {
        EXPECT_EQ(values(y[line]), values(fft::fft(x[line]))) << n;
        EXPECT_EQ(values(z[line]), values(fft::rfft(r[line]))) << n;
        EXPECT_EQ(values(back[line]), values(fft::irfft(z[line], n))) << n;
      }
      const auto turned = [](const Tensor& t) { return t.transpose(0, 1).contiguous(); };
      EXPECT_EQ(values(turned(fft::fft(turned(x), {}, 0))), values(y)) << n;
      EXPECT_EQ(values(turned(fft::rfft(turned(r), {}, 0))), values(z)) << n;
      EXPECT_EQ(values(turned(fft::irfft(turned(z), n, 0))), values(back)) << n;
    }
}

// The imaginary parts of frequency 0 and of the middle one do not count, as in PyTorch.
TEST_F(FftTest, RealLinesIgnoreWhatMustBeReal) {
  for (int64_t n : {8, 9, 134}) {
    const Tensor z = randn({3, n / 2 + 1, 2}, float64);
    Values v = values(z);
    const auto half = static_cast<size_t>(n / 2 + 1);
    for (size_t line = 0; line < 3; ++line) {
      v[2 * line * half + 1] = 0;
      if (n % 2 == 0) v[2 * (line * half + half) - 1] = 0;
    }
    EXPECT_EQ(values(fft::irfft(z, n)), values(fft::irfft(tensor(v).reshape(z.shape()), n))) << n;
  }
}

TEST_F(FftTest, ComplexNumbers) {
  const Tensor x = randn({5, 2}, float64), y = randn({5, 2}, float64);
  EXPECT_LT(far(complex_abs(complex_mul(x, y)), complex_abs(x) * complex_abs(y)), 1e-14);
  const Tensor turn = complex_angle(complex_mul(x, complex_conj(x)));
  EXPECT_LT(far(turn, zeros({5}, float64)), 1e-15);
  const Tensor zero = zeros({1, 2}).requires_grad_();
  complex_abs(zero).sum().backward();
  EXPECT_EQ(values(zero.grad()), (Values{0, 0}));
  // A product of transforms is the transform of the circular convolution.
  const Tensor a = randn({6}, float64), b = randn({6}, float64);
  const Tensor c = fft::irfft(complex_mul(fft::rfft(a), fft::rfft(b)), 6);
  double direct = 0;
  const Values va = values(a), vb = values(b);
  for (size_t i = 0; i < 6; ++i) direct += va[i] * vb[(8 - i) % 6];
  EXPECT_NEAR(c[2].item<double>(), direct, 1e-13);
}

TEST_F(FftTest, Derivatives) {
  auto f = [](std::span<const Tensor> in) -> Tensors {
    const Tensor y = fft::rfft(in[0], 7);
    return {square(y), fft::irfft(y, 5), fft::irfft2(fft::rfft2(square(in[0])))};
  };
  EXPECT_TRUE(gradcheck(f, {randn({2, 6}, float64)}, {.order = 2}));
  expect_vmap([](const Tensor& x) { return fft::rfft(x); }, randn({3, 8}));
}

TEST_F(FftTest, SignalsFromFrames) {
  const Tensor x = randn({2, 400}, float64);
  for (bool onesided : {true, false})
    for (bool normalized : {true, false}) {
      StftOptions o;
      o.hop_length = 16;
      o.window = hann_window(64, true, float64);
      o.onesided = onesided;
      o.normalized = normalized;
      const Tensor s = stft(x, 64, o);
      EXPECT_EQ(s.shape(), Shape(2, onesided ? 33 : 64, 26, 2));
      EXPECT_LT(far(istft(s, 64, o, 400), x), 1e-12);
      EXPECT_EQ(istft(s, 64, o, 410).size(-1), 410);
    }
  auto f = [](std::span<const Tensor> in) -> Tensors {
    StftOptions o;
    o.window = hann_window(8, true, float64);
    const Tensor s = stft(in[0], 8, o);
    return {square(s), istft(s, 8, o)};
  };
  EXPECT_TRUE(gradcheck(f, {randn({12}, float64)}, {.order = 1}));
  StftOptions bad;
  bad.hop_length = 64;
  bad.window = hann_window(64, true, float64);
  expect_error(ErrorKind::Value, "istft: the windows overlap too little",
               [&] { istft(stft(x, 64, bad), 64, bad); });
}

TEST_F(FftTest, WrongInputs) {
  expect_error(ErrorKind::Shape, "fft: expected complex numbers as a last dimension of 2",
               [] { fft::fft(ones({4})); });
  expect_error(ErrorKind::DType, "rfft: x is float16", [] { fft::rfft(ones({4}, float16)); });
  expect_error(ErrorKind::Value, "norm 'both' must be",
               [] { fft::rfft(ones({4}), {}, -1, "both"); });
  expect_error(ErrorKind::Value, "the length must be positive, got 0",
               [] { fft::rfft(ones({4}), 0); });
  expect_error(ErrorKind::Value, "the length must be positive, got 0", [] {
    fft::irfft(ones({1, 2}));
  });
  expect_error(ErrorKind::Memory, "is too long", [] { fft::rfft(ones({4}), int64_t{1} << 40); });
  expect_error(ErrorKind::Index, "rfft", [] { fft::rfft(ones({4}), {}, 1); });
  expect_error(ErrorKind::Value, "dimension 0 is named twice", [] {
    fft::rfftn(ones({4, 4}), {}, {0, 0});
  });
  expect_error(ErrorKind::Value, "differ in length", [] { fft::rfftn(ones({4, 4}), {3}, {0, 1}); });
  expect_error(ErrorKind::Shape, "reflection expects more than 8 samples",
               [] { stft(ones({8}), 16); });
  expect_error(ErrorKind::Shape, "the window must be [16]",
               [] { stft(ones({80}), 16, {.window = ones({8})}); });
  expect_error(ErrorKind::Value, "hop_length must be positive",
               [] { stft(ones({80}), 16, {.hop_length = 0}); });
  expect_error(ErrorKind::Value, "n must not be negative", [] { hann_window(-1); });
  expect_error(ErrorKind::Value, "n must be positive", [] { fft::fftfreq(0); });
}

}  // namespace
}  // namespace tandem::testing_ops
