// SPDX-License-Identifier: Apache-2.0
// Splits as in Abramowitz and Stegun, "Handbook of mathematical functions" (9.2, 9.6, 9.7, 10.4):
// a Chebyshev series on an inner interval, an asymptotic form with Chebyshev series as amplitudes
// outside (scripts/fit_special.py). Each part gets arguments from its own interval, so that the
// other part's gradient is never NaN.
#include "tandem/ops/special/special.h"

#include <cmath>
#include <numbers>
#include <span>

#include "tandem/ops/function_internal.h"
#include "tandem/ops/special/coefficients_internal.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::special {
namespace {

using tandem::detail::composed;
constexpr double kPi = std::numbers::pi;

// c[0] / 2 + the sum of c[k] T_k(t), by Clenshaw's recurrence.
Tensor series(std::span<const double> c, const Tensor& t) {
  const Tensor twice = t * 2.0;
  Tensor above = zeros_like(t), here = full_like(t, c.back());
  for (size_t k = c.size() - 1; k-- > 1;) {
    Tensor below = twice * here - above + c[k];
    above = std::move(here);
    here = std::move(below);
  }
  return t * here - above + 0.5 * c[0];
}
// The same of v in low..high.
Tensor series(std::span<const double> c, const Tensor& v, double low, double high) {
  return series(c, (v * 2.0 - (low + high)) / (high - low));
}

// f of x in f64, in x's dtype (float32 for integers).
template <class F>
Tensor in_f64(const char* name, const Tensor& x, SourceLocation loc, F&& f) {
  return composed(name, loc, [&] {
    const DType dtype = is_floating(x.dtype()) ? x.dtype() : DType::f32;
    return f(x.to(DType::f64)).to(dtype);
  });
}

// ---- Bessel functions

// |x| in 0..8, squared.
Tensor inner_square(const Tensor& size) { return square(clamp_max(size, 8.0)); }

// The real or imaginary part of sqrt(2 / (pi x)) (P + i 8 / x Q) exp(i (x - shift)), x >= 8.
Tensor outer(const Tensor& size, std::span<const double> p, std::span<const double> q, double shift,
             bool imaginary) {
  const Tensor x = clamp_min(size, 8.0), w = 8.0 / x, u = square(w), angle = x - shift;
  const Tensor a = series(p, u, 0, 1), b = w * series(q, u, 0, 1);
  const Tensor wave = imaginary ? a * sin(angle) + b * cos(angle) : a * cos(angle) - b * sin(angle);
  return sqrt(2 / kPi / x) * wave;
}

Tensor j0(const Tensor& x) {
  const Tensor size = abs(x);
  return where(size < 8.0, series(kJ0, inner_square(size), 0, 64),
               outer(size, kP0, kQ0, kPi / 4, false));
}
Tensor j1(const Tensor& x) {
  const Tensor size = abs(x);
  return where(size < 8.0, clamp(x, -8.0, 8.0) * series(kJ1, inner_square(size), 0, 64),
               sign(x) * outer(size, kP1, kQ1, 3 * kPi / 4, false));
}

// y(x) for x > 0, `pole` at 0, NaN below and for NaN.
template <class F>
Tensor positive_part(const Tensor& x, double pole, F&& y) {
  const Tensor inside = x > 0;
  return where(inside, y(where(inside, x, 1.0)), where(x == 0, pole, std::nan("")));
}

Tensor y0(const Tensor& x) {
  const Tensor low = clamp_max(x, 8.0);
  const Tensor inner = series(kY0, square(low), 0, 64) + 2 / kPi * log(0.5 * low) * j0(low);
  return where(x < 8.0, inner, outer(x, kP0, kQ0, kPi / 4, true));
}
Tensor y1(const Tensor& x) {
  const Tensor low = clamp_max(x, 8.0);
  const Tensor inner =
      low * series(kY1, square(low), 0, 64) + 2 / kPi * (log(0.5 * low) * j1(low) - 1.0 / low);
  return where(x < 8.0, inner, outer(x, kP1, kQ1, 3 * kPi / 4, true));
}

// K_n(x), x > 0; scaled: times exp(x).
Tensor k_outer(const Tensor& x, std::span<const double> c, bool scaled) {
  const Tensor high = clamp_min(x, 2.0), y = series(c, 2.0 / high, 0, 1) * rsqrt(high);
  return scaled ? y : y * exp(-high);
}
Tensor k0(const Tensor& x, bool scaled) {
  const Tensor low = clamp_max(x, 2.0);
  const Tensor y = series(kK0Low, square(low), 0, 4) - log(0.5 * low) * tandem::i0(low);
  return where(x < 2.0, scaled ? y * exp(low) : y, k_outer(x, kK0High, scaled));
}
Tensor k1(const Tensor& x, bool scaled) {
  const Tensor low = clamp_max(x, 2.0);
  const Tensor y =
      low * series(kK1Low, square(low), 0, 4) + log(0.5 * low) * tandem::i1(low) + 1.0 / low;
  return where(x < 2.0, scaled ? y * exp(low) : y, k_outer(x, kK1High, scaled));
}

// ---- Airy function

Tensor airy(const Tensor& x) {
  constexpr double kEdge = 16.0 / 3;  // zeta = 2/3 x^(3/2) at 4
  const Tensor size = clamp_min(abs(x), 4.0);
  const Tensor root = sqrt(size), zeta = 2.0 / 3 * size * root, fourth = rsqrt(root);
  const double rsqrt_pi = 1 / std::sqrt(kPi);
  const Tensor falling =
      0.5 * rsqrt_pi * fourth * exp(-zeta) * series(kAiryHigh, kEdge / zeta, 0, 1);
  const Tensor u = square(kEdge / zeta), angle = zeta - kPi / 4;
  const Tensor waving =
      rsqrt_pi * fourth *
      (series(kAiryP, u, 0, 1) * cos(angle) + series(kAiryQ, u, 0, 1) / zeta * sin(angle));
  const Tensor above = clamp(x, 0.0, 4.0), below = clamp(x, -4.0, 0.0);
  const Tensor inner = where(x < 0, series(kAiryBelow, below, -4, 0),
                             series(kAiryAbove, above, 0, 4) * exp(-(0.25 * above + 0.5) * above));
  return where(abs(x) < 4.0, inner, where(x < 0, waving, falling));
}

// ---- orthogonal polynomials

// Of x in f64; `one` is the polynomial of degree 1, next(k, p_k, p_(k-1)) that of degree k + 1.
template <class One, class Next>
Tensor polynomial(const char* name, const Tensor& x, const Operand& n, SourceLocation loc,
                  One&& one, Next&& next) {
  return in_f64(name, x, loc, [&](const Tensor& v) {
    const bool varied = !n.is_scalar();
    const int64_t top = varied ? (n.tensor().numel() ? max(n.tensor()).template item<int64_t>() : 0)
                               : n.scalar().to_int();
    Tensor before = ones_like(v), here = one(v), y;
    const Tensor degree = varied ? n.tensor().to(DType::i64) : Tensor();
    if (!varied && top <= 0) return top < 0 ? zeros_like(v) : before;
    if (varied) y = where(degree == 0, before, 0.0);
    for (int64_t k = 1; k <= top; ++k) {
      if (varied) y = where(degree == k, here, y);
      if (k == top) break;
      Tensor after = next(v, static_cast<double>(k), here, before);
      before = std::move(here);
      here = std::move(after);
    }
    return varied ? y : here;
  });
}

}  // namespace

Tensor expit(const Tensor& x, SourceLocation loc) {
  return detail::named("expit", loc, [&] { return sigmoid(x, loc); });
}
Tensor gammaln(const Tensor& x, SourceLocation loc) {
  return detail::named("gammaln", loc, [&] { return lgamma(x, loc); });
}
Tensor psi(const Tensor& x, SourceLocation loc) {
  return detail::named("psi", loc, [&] { return digamma(x, loc); });
}
Tensor modified_bessel_i0(const Tensor& x, SourceLocation loc) {
  return detail::named("modified_bessel_i0", loc, [&] { return tandem::i0(x, loc); });
}
Tensor modified_bessel_i1(const Tensor& x, SourceLocation loc) {
  return detail::named("modified_bessel_i1", loc, [&] { return tandem::i1(x, loc); });
}

Tensor bessel_j0(const Tensor& x, SourceLocation loc) { return in_f64("bessel_j0", x, loc, j0); }
Tensor bessel_j1(const Tensor& x, SourceLocation loc) { return in_f64("bessel_j1", x, loc, j1); }
Tensor bessel_y0(const Tensor& x, SourceLocation loc) {
  return in_f64("bessel_y0", x, loc,
                [](const Tensor& v) { return positive_part(v, -HUGE_VAL, y0); });
}
Tensor bessel_y1(const Tensor& x, SourceLocation loc) {
  return in_f64("bessel_y1", x, loc,
                [](const Tensor& v) { return positive_part(v, -HUGE_VAL, y1); });
}
#define TD_SECOND_KIND(name, function, scaled)                                                \
  Tensor name(const Tensor& x, SourceLocation loc) {                                          \
    return in_f64(#name, x, loc, [](const Tensor& v) {                                        \
      return positive_part(v, HUGE_VAL, [](const Tensor& p) { return function(p, scaled); }); \
    });                                                                                       \
  }
TD_SECOND_KIND(modified_bessel_k0, k0, false)
TD_SECOND_KIND(modified_bessel_k1, k1, false)
TD_SECOND_KIND(scaled_modified_bessel_k0, k0, true)
TD_SECOND_KIND(scaled_modified_bessel_k1, k1, true)
#undef TD_SECOND_KIND

Tensor spherical_bessel_j0(const Tensor& x, SourceLocation loc) {
  return in_f64("spherical_bessel_j0", x, loc, [](const Tensor& v) {
    const Tensor infinite = isinf(v);
    return where(infinite, 0.0, sinc(where(infinite, 0.0, v) / kPi));
  });
}
Tensor airy_ai(const Tensor& x, SourceLocation loc) { return in_f64("airy_ai", x, loc, airy); }

// (name, factor of x and shift in the argument, polynomial of degree 1, next polynomial)
#define TD_POLYNOMIAL(name, first, following)                                               \
  Tensor name(const Tensor& x, Operand n, SourceLocation loc) {                             \
    return polynomial(                                                                      \
        #name, x, n, loc, [](const Tensor& v) { return first; },                            \
        []([[maybe_unused]] const Tensor& v, [[maybe_unused]] double k, const Tensor& here, \
           const Tensor& before) { return following; });                                    \
  }
TD_POLYNOMIAL(chebyshev_polynomial_t, v, 2.0 * v * here - before)
TD_POLYNOMIAL(chebyshev_polynomial_u, 2.0 * v, 2.0 * v * here - before)
TD_POLYNOMIAL(chebyshev_polynomial_v, 2.0 * v - 1.0, 2.0 * v * here - before)
TD_POLYNOMIAL(chebyshev_polynomial_w, 2.0 * v + 1.0, 2.0 * v * here - before)
TD_POLYNOMIAL(hermite_polynomial_h, 2.0 * v, 2.0 * v * here - 2.0 * k * before)
TD_POLYNOMIAL(hermite_polynomial_he, v * 1.0, v* here - k * before)
TD_POLYNOMIAL(laguerre_polynomial_l, 1.0 - v, ((2.0 * k + 1.0 - v) * here - k * before) / (k + 1.0))
TD_POLYNOMIAL(legendre_polynomial_p, v * 1.0, ((2.0 * k + 1.0) * v * here - k * before) / (k + 1.0))
#undef TD_POLYNOMIAL

#define TD_SHIFTED(kind)                                                                       \
  Tensor shifted_chebyshev_polynomial_##kind(const Tensor& x, Operand n, SourceLocation loc) { \
    return in_f64("shifted_chebyshev_polynomial_" #kind, x, loc, [&](const Tensor& v) {        \
      return chebyshev_polynomial_##kind(2.0 * v - 1.0, std::move(n), SourceLocation::here()); \
    });                                                                                        \
  }
TD_SHIFTED(t)
TD_SHIFTED(u)
TD_SHIFTED(v)
TD_SHIFTED(w)
#undef TD_SHIFTED

}  // namespace tandem::special
