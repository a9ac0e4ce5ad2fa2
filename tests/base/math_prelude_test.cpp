// SPDX-License-Identifier: Apache-2.0
// The math prelude: error bounds on a sample (bench/prelude_check does all floats), C's special
// values, and checksums that hold for every compiler and instruction set.
#include "tandem/base/math_prelude.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tandem/base/hash/hash.h"
#include "tandem/base/philox.h"

namespace tandem {
namespace {

// name, interval of interest, checksums of the f32 and the f64 loop below.
#define TD_LIBM_FUNCTIONS(X)                                    \
  X(exp, -8, 8, 0xfb12143b30a54b4cu, 0xcdac441c2fdc208cu)       \
  X(exp2, -8, 8, 0x609231a951612c30u, 0xe89a13140d65dc22u)      \
  X(expm1, -8, 8, 0x2103d1ecdfbe0696u, 0x55187b293dcdce7fu)     \
  X(log, 0, 8, 0x89a9d14dcf2a943cu, 0x7948afc394b952f5u)        \
  X(log2, 0, 8, 0x628d33ff165d5a8fu, 0x14db4475fb334ecau)       \
  X(log10, 0, 8, 0xced62ddce08a0feeu, 0x7e0bb4acc4f48617u)      \
  X(log1p, -1, 8, 0xe2984e354b106faeu, 0x2332c2f0f9ed77c3u)     \
  X(sin, -30, 30, 0xdb4eca5aef53698eu, 0xc5a56a7bdfd7e4au)      \
  X(cos, -30, 30, 0xf21791f801a779bu, 0x4870a85f71ed121u)       \
  X(tan, -30, 30, 0xe3f658bd78a705bu, 0x7c01b6d817422b14u)      \
  X(asin, -1, 1, 0x4973f01e01fd80f6u, 0x789e705ef3027aedu)      \
  X(acos, -1, 1, 0xa55baa7a974a6fe6u, 0xb301ba7b627d3133u)      \
  X(atan, -8, 8, 0x3c8b9fec80dcad1cu, 0x8c00c4576b92a14du)      \
  X(sinh, -8, 8, 0xfb2592a7eb640190u, 0x8877f63a2b8d124bu)      \
  X(cosh, -8, 8, 0xe227bae8914fd05u, 0xd9e4dda27af50684u)       \
  X(tanh, -8, 8, 0xea78cdea960a089cu, 0x19a7b9fc2ce3c30bu)      \
  X(asinh, -8, 8, 0x425063f13ada9242u, 0x1dc9c1adde5c1428u)     \
  X(acosh, 1, 8, 0xb286a209864b5720u, 0xa9ab3d8de1bb0b71u)      \
  X(atanh, -1, 1, 0xb4adfebe78c3dc73u, 0x8a6db5399c433074u)     \
  X(erf, -4, 4, 0xf8e624043f84957cu, 0x2f2c3963fed8f0b4u)       \
  X(erfc, -4, 27, 0xc63685d1c30b7fdbu, 0x3d1e342983b2903eu)     \
  X(erfinv, -1, 1, 0x3b9cf55e4b81db8eu, 0x2974564f83ca05b6u)    \
  X(sqrt, 0, 8, 0xe09009214fb029abu, 0xbacc30ebb03040cdu)       \
  X(rsqrt, 0, 8, 0xb00512581dbd6168u, 0x8a81080fcb32c00au)      \
  X(cbrt, -8, 8, 0xb8fc789e8f59301eu, 0x6b462978552645f8u)      \
  X(sigmoid, -20, 20, 0x92ccf23a290bb076u, 0x7f795a1e6205cafau) \
  X(lgamma, 0, 20, 0x4a37af08066711d2u, 0x55501f8ba381e1bcu)    \
  X(digamma, 0, 20, 0x76171eccdb29aafau, 0xa26b1b8864cff9b7u)   \
  X(erfcx, -5, 60, 0x738cdca9c248f9abu, 0x118608d0c986722bu)    \
  X(ndtri, 0, 1, 0x692032d9683a79b6u, 0xfb44044b9da1c3efu)      \
  X(i0e, -30, 30, 0x805828af0ad57484u, 0x7e4a654d53c2d3d3u)     \
  X(i1e, -30, 30, 0x2d055ca36951f5cfu, 0x55fbd8c1334ac2d9u)

long double sigmoid(long double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
long double rsqrt(long double x) { return 1 / std::sqrt(x); }
long double lgamma(long double x) {
  int sign;
  return lgammal_r(x, &sign);  // std::lgamma writes a global
}
long double digamma(long double x) {
  const long double pi = 3.14159265358979323846264L;
  if (x == 0) return std::copysign(std::numeric_limits<long double>::infinity(), -x);
  if (x < 0) {
    if (std::floor(x) == x) return std::numeric_limits<long double>::quiet_NaN();
    return digamma(1 - x) - pi / std::tan(pi * (x - std::rint(x)));
  }
  long double r = 0;
  for (; x < 30; x += 1) r -= 1 / x;
  const long double z = 1 / (x * x);
  const long double series =
      z * (1.0L / 12 -
           z * (1.0L / 120 - z * (1.0L / 252 - z * (1.0L / 240 - z * (1.0L / 132 - z / 47.39L)))));
  return r + std::log(x) - 1 / (2 * x) - series;
}

// The root y of erf(y) = x, by Newton's method from the result under test, which eliminates its
// error.
long double erfinv(long double x) {
  const long double a = std::fabs(x), c = 0.886226925452758013649L;
  if (!(a < 1)) {
    const long double inf = std::numeric_limits<long double>::infinity();
    return a == 1 ? x * inf : std::numeric_limits<long double>::quiet_NaN();
  }
  if (a < 1e-9L) return x * c;
  long double y = tdm_erfinv(static_cast<double>(a));
  for (int i = 0; i < 3; ++i) {
    y -= (a < 0.5L ? std::erf(y) - a : (1 - a) - std::erfc(y)) * std::exp(y * y) * c;
  }
  return std::copysign(y, x);
}

long double erfcx(long double x) {
  const long double z = 1 / (x * x);
  if (x > 100) return 0.564189583547756286948L / x * (1 - z * (0.5L - z * (0.75L - 1.875L * z)));
  return x < -106 ? std::numeric_limits<long double>::infinity() : std::exp(x * x) * std::erfc(x);
}

// Newton's method from the result under test, as for erfinv.
long double ndtri(long double p) {
  const long double inf = std::numeric_limits<long double>::infinity();
  if (!(p >= 0 && p <= 1)) return std::numeric_limits<long double>::quiet_NaN();
  if (p == 0 || p == 1) return p == 0 ? -inf : inf;
  const long double low = std::min(p, 1 - p), root = 1.41421356237309504880L;
  long double y = tdm_ndtri(static_cast<double>(low));
  for (int i = 0; i < 3; ++i) {
    const long double mass = std::erfc(-y / root) / 2;
    y -= (mass - low) / (std::exp(-y * y / 2) * 0.398942280401432677940L);
  }
  return p > 0.5L ? -y : y;
}

// exp(-|x|) I_n(x), n = 0 or 1: the power series, or the one in 1 / x.
long double bessel_scaled(int n, long double x) {
  const long double a = std::fabs(x);
  if (!(a < 200)) {
    if (a != a) return x;
    long double term = 1, sum = 1;
    for (int k = 1; k < 12; ++k) {
      term *= -(4.0L * n * n - (2 * k - 1) * (2 * k - 1)) / (8 * k * a);
      sum += term;
    }
    return (n && x < 0 ? -sum : sum) / std::sqrt(6.28318530717958647693L * a);
  }
  long double term = n ? x / 2 : 1, sum = term;
  for (int k = 1; k < 400; ++k) sum += term *= a * a / 4 / (static_cast<long double>(k) * (k + n));
  return sum * std::exp(-a);
}
long double i0e(long double x) { return bessel_scaled(0, x); }
long double i1e(long double x) { return bessel_scaled(1, x); }

// The sum itself, then Euler and Maclaurin's formula far out.
long double zeta(long double s, long double q) {
  long double sum = 0;
  for (int k = 0; k < 400; ++k) sum += std::pow(q + k, -s);
  const long double a = q + 400, last = std::pow(a, -s);
  return sum +
         last * (a / (s - 1) + 0.5L + s / (12 * a) - s * (s + 1) * (s + 2) / (720 * a * a * a));
}

// P(a, x) by its power series, whose terms are all positive.
long double gamma_p(long double a, long double x) {
  long double term = 1, sum = 1;
  for (int k = 1; k < 4000; ++k) sum += term *= x / (a + k);
  return sum * std::exp(a * std::log(x) - x - lgamma(a + 1));
}

using std::acos, std::acosh, std::asin, std::asinh, std::atan, std::atanh, std::cbrt, std::cos,
    std::cosh, std::erf, std::erfc, std::exp, std::exp2, std::expm1, std::log, std::log10,
    std::log1p, std::log2, std::sin, std::sinh, std::sqrt, std::tan, std::tanh;

// |got - want| in units of T's last place; infinite where the kinds or the signs of zero differ.
template <class T>
double ulps(T got, long double want) {
  using L = std::numeric_limits<T>;
  if (got != got || want != want) return got != got && want != want ? 0 : HUGE_VAL;
  const long double limit = std::ldexp(1.0L, L::max_exponent);
  const long double g = std::clamp<long double>(got, -limit, limit);
  const long double w = std::clamp(want, -limit, limit);
  if (g == w) return w == 0 && std::signbit(got) != std::signbit(want) ? HUGE_VAL : 0;
  const int e = w == 0 ? L::min_exponent - 1 : std::max(std::ilogb(w), L::min_exponent - 1);
  return static_cast<double>(std::ldexp(std::fabs(g - w), L::digits - 1 - e));
}

template <class T>
T from_bits(uint64_t bits) {
  T x;
  std::memcpy(&x, &bits, sizeof(T));
  return x;
}

template <class T>
std::vector<T> special_values() {
  using L = std::numeric_limits<T>;
  std::vector<T> v{0,
                   L::denorm_min(),
                   L::denorm_min() * 3,
                   L::min(),
                   L::min() / 2,
                   L::epsilon(),
                   T(0.25),
                   T(0.5),
                   std::nextafter(T(1), T(0)),
                   1,
                   std::nextafter(T(1), T(2)),
                   T(1.5),
                   2,
                   T(2.5),
                   3,
                   10,
                   100,
                   T(0x1p20),
                   T(0x1p24),
                   T(1e30),
                   L::max(),
                   L::infinity()};
  const size_t n = v.size();
  for (size_t i = 0; i < n; ++i) v.push_back(-v[i]);
  v.push_back(L::quiet_NaN());
  return v;
}

// At x < 0 both cross zero between any two poles: near it the relative error is unbounded.
bool near_zero_of_gamma(const std::string& name, long double x, long double want) {
  if ((name != "lgamma" && name != "digamma") || !(x < 0)) return false;
  const long double part = name == "lgamma" ? lgamma(-x) : digamma(1 - x);
  return std::fabs(want) < 4 || std::fabs(want) < std::fabs(part) / 2;
}

template <class T>
struct Function {
  const char* name;
  T (*f)(T);
  long double (*ref)(long double);
  double lo, hi;
};

template <class T>
const std::vector<Function<T>>& functions();

template <>
const std::vector<Function<float>>& functions<float>() {
  static const std::vector<Function<float>> all{
#define TD_ROW(name, lo, hi, sum32, sum64)          \
  {#name, [](float x) { return tdm_##name##f(x); }, \
   [](long double x) -> long double { return name(x); }, lo, hi},
      TD_LIBM_FUNCTIONS(TD_ROW)
#undef TD_ROW
  };
  return all;
}

template <>
const std::vector<Function<double>>& functions<double>() {
  static const std::vector<Function<double>> all{
#define TD_ROW(name, lo, hi, sum32, sum64)        \
  {#name, [](double x) { return tdm_##name(x); }, \
   [](long double x) -> long double { return name(x); }, lo, hi},
      TD_LIBM_FUNCTIONS(TD_ROW)
#undef TD_ROW
  };
  return all;
}

TEST(MathPrelude, F32WithinTwoUlpOnASample) {
  for (const Function<float>& fn : functions<float>()) {
    double worst = 0;
    float at = 0;
    const auto look = [&](float x) {
      const long double want = fn.ref(x);
      if (near_zero_of_gamma(fn.name, x, want)) return;
      const double u = ulps(fn.f(x), want);
      if (u > worst) worst = u, at = x;
    };
    for (uint64_t u = 0; u < (1ull << 32); u += 131101) look(from_bits<float>(u));
    for (int i = 0; i <= 8192; ++i) look(static_cast<float>(fn.lo + (fn.hi - fn.lo) * i / 8192));
    EXPECT_LE(worst, 2.0) << fn.name << "(" << at << ")";
  }
}

TEST(MathPrelude, F64WithinBoundOnASample) {
  for (const Function<double>& fn : functions<double>()) {
    const std::string name = fn.name;
    const bool gamma = name == "lgamma" || name == "digamma";
    static const std::set<std::string> kFour = {"erfinv", "lgamma", "digamma",
                                                "erfcx",  "i0e",    "i1e"};
    const double bound = name == "ndtri" ? 8.0 : kFour.count(name) ? 4.0 : 2.0;
    double worst = 0, at = 0;
    const auto look = [&](double x) {
      const long double want = fn.ref(x);
      if (near_zero_of_gamma(name, x, want)) return;
      // The bound at x < 0 is in ulps of the larger term, up to twice the result here.
      const double u = ulps(fn.f(x), want) / (gamma && x < 0 ? 2 : 1);
      if (u > worst) worst = u, at = x;
    };
    for (uint64_t i = 0; i < 20000; ++i) {
      const PhiloxBlock b = philox(1, 0, i);
      look(from_bits<double>(b.word64(0)));
      look(fn.lo + (fn.hi - fn.lo) * uniform_f64(b.word64(1)));
    }
    EXPECT_LE(worst, bound) << name << "(" << at << ")";
  }
}

double relative(double got, long double want) {
  return static_cast<double>(std::fabs((got - want) / want));
}

TEST(MathPrelude, ZetaAndIncompleteGamma) {
  double zeta_worst = 0, p_worst = 0, q_worst = 0;
  for (uint64_t i = 0; i < 3000; ++i) {
    const PhiloxBlock b = philox(5, 0, i);
    const double u = uniform_f64(b.word64(0)), v = uniform_f64(b.word64(1));
    const double s = 1.05 + 20 * u, at = std::exp(-3 + 9 * v);
    zeta_worst = std::max(zeta_worst, relative(tdm_zeta(s, at), zeta(s, at)));
    // a on both sides of where the quadrature starts, x around a.
    const double a = std::exp(-3 + 10 * u), x = a * (0.02 + 2 * v);
    const long double p = gamma_p(a, x);
    if (p > 1e-200L) p_worst = std::max(p_worst, relative(tdm_gammainc(a, x), p));
    if (p < 0.9L) q_worst = std::max(q_worst, relative(tdm_gammaincc(a, x), 1 - p));
  }
  EXPECT_LT(zeta_worst, 8e-15);
  EXPECT_LT(p_worst, 2e-13);
  EXPECT_LT(q_worst, 2e-13);
  // Far out, where 1 - P has no digits left: Q(1, x) = exp(-x), Q(3, x) = exp(-x) (1 + x + x^2 /
  // 2).
  for (double x : {20.0, 100.0, 600.0}) {
    EXPECT_LT(relative(tdm_gammaincc(1, x), std::exp(static_cast<long double>(-x))), 1e-13);
    EXPECT_LT(
        relative(tdm_gammaincc(3, x), std::exp(static_cast<long double>(-x)) * (1 + x + x * x / 2)),
        1e-13);
  }
  // Small a: Q(a, x) is about a E1(x), E1(1) = 0.2193839343955202736771637754601.
  EXPECT_LT(relative(tdm_gammaincc(1e-12, 1), 0.2193839343955202737e-12L), 1e-11);
  // Below zero the sum is zeta(s, 1/4) and the terms at -7/4 and -3/4.
  const long double two = zeta(2, 0.25L), three = zeta(3, 0.25L);
  EXPECT_LT(relative(tdm_zeta(2, -1.75), two + 16 / 49.0L + 16 / 9.0L), 1e-15);
  EXPECT_LT(relative(tdm_zeta(3, -1.75), three - 64 / 343.0L - 64 / 27.0L), 1e-15);
  EXPECT_TRUE(std::isfinite(tdm_zeta(2, -1e9 - 0.5)));
  EXPECT_EQ(tdm_zeta(2, -3), HUGE_VAL);
  EXPECT_EQ(tdm_zeta(1, 2), HUGE_VAL);
  EXPECT_TRUE(std::isnan(tdm_zeta(0.5, 2)));
  EXPECT_TRUE(std::isnan(tdm_zeta(2.5, -0.5)));
}

// Where lgamma crosses zero at x < 0, its bound is absolute.
TEST(MathPrelude, F32LgammaBelowZero) {
  double worst = 0;
  for (int i = 1; i <= 200000; ++i) {
    const float x = -static_cast<float>(i) * 5e-5f;
    const long double want = lgamma(static_cast<long double>(x)),
                      plus = lgamma(-static_cast<long double>(x));
    if (!std::isfinite(want)) continue;
    const long double scale = std::max({1.0L, std::fabs(plus), std::fabs(want)});
    const long double off = std::fabs(static_cast<long double>(tdm_lgammaf(x)) - want);
    worst = std::max(worst, static_cast<double>(off / scale));
  }
  EXPECT_LT(worst, 0x1p-23);
}

// The f32 functions have shorter sums and series of their own.
struct Pair {
  const char* name;
  float (*f)(float, float);
  double (*wide)(double, double);
  double most_a, most_x;
};
TEST(MathPrelude, F32ZetaAndIncompleteGammaFollowF64) {
  const Pair pairs[] = {
      {"zeta", [](float s, float q) { return tdm_zetaf(s, q); }, tdm_zeta, 60, 200},
      {"gammainc", [](float a, float x) { return tdm_gammaincf(a, x); }, tdm_gammainc, 12, 30},
      {"gammaincc", [](float a, float x) { return tdm_gammainccf(a, x); }, tdm_gammaincc, 12, 30}};
  for (const Pair& pair : pairs) {
    double worst = 0;
    float at_a = 0, at_x = 0;
    const auto look = [&](float a, float x) {
      const double want = pair.wide(static_cast<double>(a), static_cast<double>(x));
      const double u = ulps(pair.f(a, x), static_cast<long double>(want));
      if (u > worst) worst = u, at_a = a, at_x = x;
    };
    for (uint64_t i = 0; i < 40000; ++i) {
      const PhiloxBlock b = philox(6, 0, i);
      const double u = uniform_f64(b.word64(0)), v = uniform_f64(b.word64(1));
      const bool wide = i % 2;  // half of the points near 0, half all over
      const double a = wide ? pair.most_a * u : std::exp(-8 + 9 * u);
      look(static_cast<float>(a), static_cast<float>(wide ? pair.most_x * v : a * 2 * v));
    }
    for (float a : special_values<float>())
      for (float x : special_values<float>()) look(a, x);
    EXPECT_LE(worst, 2.0) << pair.name << "(" << at_a << ", " << at_x << ")";
  }
}

template <class T>
void check_special_values() {
  for (const Function<T>& fn : functions<T>()) {
    for (T x : special_values<T>()) {
      const long double want = fn.ref(x);
      if (near_zero_of_gamma(fn.name, x, want) && std::isfinite(want)) continue;
      EXPECT_LE(ulps(fn.f(x), want), 4.0)
          << fn.name << "(" << x << ") = " << fn.f(x) << ", expect " << want;
    }
  }
}

TEST(MathPrelude, SpecialValuesAreThoseOfC) {
  check_special_values<float>();
  check_special_values<double>();
}

template <class T, class F, class R>
void check_pairs(F f, R ref, const char* name) {
  std::vector<T> values = special_values<T>();
  for (T v : {T(4), T(5), T(1e10) + 1, T(0x1p23) - 1, T(1) / 3, T(0x1p52)}) {
    values.push_back(v);
    values.push_back(-v);
  }
  for (T x : values) {
    for (T y : values) {
      const long double want = ref(static_cast<long double>(x), static_cast<long double>(y));
      ASSERT_LE(ulps(f(x, y), want), 2.0) << name << "(" << x << ", " << y << ") = " << f(x, y);
    }
  }
  double worst = 0;
  T at = 0, at2 = 0;
  for (uint64_t i = 0; i < 100000; ++i) {
    const PhiloxBlock b = philox(2, 0, i);
    const T x = static_cast<T>(std::exp((uniform_f64(b.word64(0)) - 0.5) * 10));
    const T y = static_cast<T>((uniform_f64(b.word64(1)) - 0.5) * 60);
    const double u = ulps(f(x, y), ref(static_cast<long double>(x), static_cast<long double>(y)));
    if (u > worst) worst = u, at = x, at2 = y;
  }
  EXPECT_LE(worst, 2.0) << name << "(" << at << ", " << at2 << ")";
}

TEST(MathPrelude, PowAndAtan2) {
  const auto pow_ref = [](long double x, long double y) { return std::pow(x, y); };
  const auto atan2_ref = [](long double y, long double x) { return std::atan2(y, x); };
  check_pairs<float>([](float x, float y) { return tdm_powf(x, y); }, pow_ref, "powf");
  check_pairs<double>([](double x, double y) { return tdm_pow(x, y); }, pow_ref, "pow");
  check_pairs<float>([](float y, float x) { return tdm_atan2f(y, x); }, atan2_ref, "atan2f");
  check_pairs<double>([](double y, double x) { return tdm_atan2(y, x); }, atan2_ref, "atan2");
}

TEST(MathPrelude, NearFormsGiveTheSameBits) {
  for (int i = -20000; i <= 20000; ++i) {
    const float x = static_cast<float>(i) * 52.4288f;
    ASSERT_LE(std::fabs(x), TDM_TRIG_NEAR);
    ASSERT_EQ(tdmi_bitsf(tdm_sinf(x)), tdmi_bitsf(tdm_sinf_near(x))) << x;
    ASSERT_EQ(tdmi_bitsf(tdm_cosf(x)), tdmi_bitsf(tdm_cosf_near(x))) << x;
  }
}

TEST(MathPrelude, HardArgumentsOfTrig) {
  // Close to multiples of pi/2: the worst cases of f32 and f64.
  EXPECT_LE(ulps(tdm_cosf(0x1.50a5d4p+50f), std::cos(0x1.50a5d4p+50L)), 2.0);
  EXPECT_LE(ulps(tdm_sinf(0x1.6ac5b2p+62f), std::sin(0x1.6ac5b2p+62L)), 2.0);
  EXPECT_LE(ulps(tdm_sin(0x1.6ac5b262ca1ffp+849), std::sin(0x1.6ac5b262ca1ffp+849L)), 2.0);
  EXPECT_LE(ulps(tdm_cos(0x1.6ac5b262ca1ffp+849), std::cos(0x1.6ac5b262ca1ffp+849L)), 2.0);
  EXPECT_LE(ulps(tdm_tan(0x1.6ac5b262ca1ffp+849), std::tan(0x1.6ac5b262ca1ffp+849L)), 2.0);
}

// ---- equal bits -------------------------------------------------------------------------------

constexpr int kBlock = 1024;

#define TD_LOOP(suffix, attribute, name)                                                     \
  attribute __attribute__((noinline)) void name##_f32_##suffix(float* __restrict y,          \
                                                               const float* __restrict x) {  \
    for (int i = 0; i < kBlock; ++i) y[i] = tdm_##name##f(x[i]);                             \
  }                                                                                          \
  attribute __attribute__((noinline)) void name##_f64_##suffix(double* __restrict y,         \
                                                               const double* __restrict x) { \
    for (int i = 0; i < kBlock; ++i) y[i] = tdm_##name(x[i]);                                \
  }
#if defined(__x86_64__)
#define TD_LOOPS(name, lo, hi, sum32, sum64)           \
  TD_LOOP(base, , name)                                \
  TD_LOOP(avx2, __attribute__((target("avx2"))), name) \
  TD_LOOP(avx512, __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"))), name)
#else
#define TD_LOOPS(name, lo, hi, sum32, sum64) TD_LOOP(base, , name)
#endif
TD_LIBM_FUNCTIONS(TD_LOOPS)

// All magnitudes, then the interval in which functions are mostly called; NaNs count as one.
template <class T>
uint64_t checksum(void (*loop)(T*, const T*)) {
  std::vector<T> x(kBlock), y(kBlock);
  uint64_t h = kHashSeed;
  for (uint64_t block = 0; block < 8; ++block) {
    for (uint64_t i = 0; i < kBlock; ++i) {
      const uint64_t k = block * kBlock + i;
      const uint64_t bits = sizeof(T) == 4 ? k * 1048573u & 0xFFFFFFFFu : k * 0x9E3779B97F4A7C15u;
      x[i] = block < 4 ? from_bits<T>(bits) : static_cast<T>(k - 6144.0) / 192;
    }
    loop(y.data(), x.data());
    for (T v : y) {
      uint64_t bits = 0;
      std::memcpy(&bits, &v, sizeof(T));
      h = hash_combine(h, v != v ? 1 : bits);
    }
  }
  return h;
}

struct Sum {
  const char* name;
  void (*f32[3])(float*, const float*);
  void (*f64[3])(double*, const double*);
  uint64_t want32, want64;
};

TEST(MathPrelude, SameBitsForEveryCompilerAndInstructionSet) {
  static const Sum sums[] = {
#if defined(__x86_64__)
#define TD_ROW(name, lo, hi, sum32, sum64)                \
  {#name,                                                 \
   {name##_f32_base, name##_f32_avx2, name##_f32_avx512}, \
   {name##_f64_base, name##_f64_avx2, name##_f64_avx512}, \
   sum32,                                                 \
   sum64},
#else
#define TD_ROW(name, lo, hi, sum32, sum64) \
  {#name, {name##_f32_base}, {name##_f64_base}, sum32, sum64},
#endif
    TD_LIBM_FUNCTIONS(TD_ROW)
#undef TD_ROW
  };
  int sets = 1;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) sets = 2;
  if (sets == 2 && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw")) {
    sets = 3;
  }
#endif
  static const char* const kSets[] = {"baseline", "AVX2", "AVX-512"};
  for (const Sum& s : sums) {
    for (int i = 0; i < sets; ++i) {
      EXPECT_EQ(checksum<float>(s.f32[i]), s.want32) << s.name << " f32, " << kSets[i];
      EXPECT_EQ(checksum<double>(s.f64[i]), s.want64) << s.name << " f64, " << kSets[i];
    }
  }
}

TEST(MathPrelude, SameBitsOfPowAndAtan2) {
  uint64_t h = kHashSeed;
  for (uint64_t i = 0; i < 20000; ++i) {
    const PhiloxBlock b = philox(3, 0, i);
    const double x = uniform_f64(b.word64(0)) * 9, y = uniform_f64(b.word64(1)) * 40 - 20;
    const float xf = static_cast<float>(x), yf = static_cast<float>(y);
    h = hash_combine(h, tdmi_bits(tdm_pow(x, y)));
    h = hash_combine(h, tdmi_bits(tdm_atan2(y, x - 4)));
    h = hash_combine(h, tdmi_bitsf(tdm_powf(xf, yf)));
    h = hash_combine(h, tdmi_bitsf(tdm_atan2f(yf, xf - 4)));
  }
  EXPECT_EQ(h, 0x575f0f2dcb621a49ull);
}

}  // namespace
}  // namespace tandem
