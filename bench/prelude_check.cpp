// SPDX-License-Identifier: Apache-2.0
// Measures the math prelude: largest error in ulp of every function against f64 libm (f32, all
// floats) and libquadmath (f64, random points), and nanoseconds an element in a loop of 1024.
// Usage: prelude_check [f32|f64|time|all] [--stride N] [--points N] [--only NAME]
// Exit code 3 if an error exceeds its bound. Links -lquadmath -lgomp; not part of the library.
#include <quadmath.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "tandem/base/math_prelude.h"
#include "tandem/base/parallel.h"
#include "tandem/base/philox.h"

namespace {

using Quad = __float128;

struct Options {
  std::string mode = "all", only;
  uint64_t stride = 1, points = 10'000'000;
};
Options g_options;
bool g_failed = false;

bool skipped(const char* name) { return !g_options.only.empty() && g_options.only != name; }

// ---- references that no library here has ----------------------------------------------------

double sigmoid_ref(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
Quad sigmoid_ref(Quad x) { return x < 0 ? expq(x) / (1 + expq(x)) : 1 / (1 + expq(-x)); }

// Newton on erf, or on erfc near 1, from the prelude's f32 result (right to about 24 bits).
Quad erfinv_ref(Quad x) {
  const Quad a = fabsq(x);
  if (!(a < 1)) return a == 1 ? copysignq(HUGE_VALQ, x) : nanq("");
  if (a == 0) return x;
  Quad y = tdm_erfinv(static_cast<double>(a));
  for (int i = 0; i < 3; ++i) {
    const Quad err = a < Quad(0.5) ? erfq(y) - a : (1 - a) - erfcq(y);
    y -= err * expq(y * y) * (sqrtq(M_PIq) / 2);
  }
  return copysignq(y, x);
}

// Reflection, recurrence up to 40, asymptotic series.
Quad digamma_ref(Quad x) {
  if (x == 0) return copysignq(HUGE_VALQ, -x);
  if (x < 0) {
    if (floorq(x) == x) return nanq("");
    const Quad f = x - rintq(x);
    return digamma_ref(1 - x) - M_PIq * cosq(M_PIq * f) / sinq(M_PIq * f);
  }
  Quad r = 0;
  for (; x < 40; x += 1) r -= 1 / x;
  static const double num[] = {1, -1, 1, -1, 1, -691, 1, -3617, 43867, -174611, 854513};
  static const double den[] = {12, 120, 252, 240, 132, 32760, 12, 8160, 14364, 6600, 3036};
  const Quad z = 1 / (x * x);
  Quad s = 0, p = z;
  for (int i = 0; i < 11; ++i, p *= z) s += p * num[i] / den[i];
  return r + logq(x) - 1 / (2 * x) - s;
}
double erfinv_ref(double x) { return static_cast<double>(erfinv_ref(static_cast<Quad>(x))); }
double digamma_ref(double x) { return static_cast<double>(digamma_ref(static_cast<Quad>(x))); }
double rsqrt_ref(double x) { return 1 / std::sqrt(x); }
Quad rsqrt_ref(Quad x) { return 1 / sqrtq(x); }

// ---- error in ulp -----------------------------------------------------------------------------

// |got - want| in units of the last place of `want` in type T,
// or of `term`, where that is larger.
template <class T, class Wide>
double ulps(T got, Wide want, Quad term = 0) {
  constexpr int mant = std::numeric_limits<T>::digits;
  constexpr int emin = std::numeric_limits<T>::min_exponent - 1;
  const bool want_nan = want != want;
  if (got != got || want_nan) return got != got && want_nan ? 0 : HUGE_VAL;
  const Quad limit = ldexpq(1, std::numeric_limits<T>::max_exponent);
  const auto finite = [&](Quad v) { return std::min(std::max(v, -limit), limit); };
  const Quad g = finite(static_cast<Quad>(got)), w = finite(static_cast<Quad>(want));
  if (g == w) {
    // Signed zeros must agree where the reference has one.
    return w == 0 && std::signbit(got) != (signbitq(static_cast<Quad>(want)) != 0) ? HUGE_VAL : 0;
  }
  int e = 0;
  const Quad size = std::max(fabsq(w), term);
  frexpq(size, &e);
  e = std::max(size == 0 ? emin : e - 1, emin);
  return static_cast<double>(fabsq(g - w) / ldexpq(1, e - mant + 1));
}

// The same for float against double, without quad arithmetic.
double ulps_f32(float got, double want) {
  if (got != got || want != want) return got != got && want != want ? 0 : HUGE_VAL;
  const double g = std::clamp<double>(got, -0x1p128, 0x1p128);
  const double w = std::clamp(want, -0x1p128, 0x1p128);
  if (g == w) return w == 0 && std::signbit(got) != std::signbit(want) ? HUGE_VAL : 0;
  uint64_t bits;
  std::memcpy(&bits, &w, 8);
  const int e = std::max(static_cast<int>(bits >> 52 & 0x7FF) - 1023, -126);
  const uint64_t unit = static_cast<uint64_t>(1023 + 23 - e) << 52;
  double scale;
  std::memcpy(&scale, &unit, 8);
  return std::fabs(g - w) * scale;
}

struct Worst {
  double ulp = -1;
  double x = 0, y = 0;
  std::mutex lock;

  void take(double u, double at, double at2 = 0) {
    std::lock_guard<std::mutex> hold(lock);
    if (u > ulp) ulp = u, x = at, y = at2;
  }
};

void report(const char* type, const char* name, const Worst& w, double bound, double count,
            bool binary = false) {
  const bool ok = w.ulp <= bound;
  g_failed |= !ok;
  std::printf("%s %-9s %9.4f ulp at %a", type, name, w.ulp, w.x);
  if (binary) std::printf(", %a", w.y);
  std::printf("  (%.3g points)%s\n", count, ok ? "" : "  BOUND BROKEN");
  std::fflush(stdout);
}

// ---- f32: all floats --------------------------------------------------------------------------

constexpr double kAnywhere = 0;

// `zeros_below`: points where |reference| is less are not counted (zeros of lgamma, digamma).
template <class F, class R>
void check_f32(const char* name, F f, R ref, double bound = 2, uint64_t stride = 1,
               double zeros_below = kAnywhere) {
  if (skipped(name)) return;
  stride = std::max(stride, g_options.stride);
  Worst worst;
  const int64_t count = static_cast<int64_t>(((1ull << 32) + stride - 1) / stride);
  tandem::parallel_for(0, (count + 65535) / 65536, 1, [&](int64_t b, int64_t e) {
    std::vector<float> x(65536), y(65536);
    for (int64_t block = b; block < e; ++block) {
      const int64_t first = block * 65536, n = std::min<int64_t>(65536, count - first);
      for (int64_t i = 0; i < n; ++i) {
        const uint32_t u = static_cast<uint32_t>(static_cast<uint64_t>(first + i) * stride);
        std::memcpy(&x[static_cast<size_t>(i)], &u, 4);
      }
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) y[i] = f(x[i]);
      double top = -1, at = 0;
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        const double want = ref(static_cast<double>(x[i]));
        if (std::fabs(want) < zeros_below) continue;
        const double u = ulps_f32(y[i], want);
        if (u > top) top = u, at = x[i];
      }
      worst.take(top, at);
    }
  });
  report("f32", name, worst, bound, static_cast<double>(count));
}

double random_bits_f64(tandem::PhiloxBlock b) {
  const uint64_t u = b.word64(0);
  double x;
  std::memcpy(&x, &u, 8);
  return x;
}

// Random bits, random magnitudes near 1, and every pair of special values.
template <class T>
T pair_arg(const tandem::PhiloxBlock& b, int which, uint64_t i) {
  const uint64_t w = b.word64(which);
  if (i % 3 == 0) {
    T x;
    std::memcpy(&x, &w, sizeof(T));
    return x;
  }
  const double u = tandem::uniform_f64(w);
  if (i % 3 == 1) return static_cast<T>((u - 0.5) * 40);
  return static_cast<T>(which == 0 ? std::exp((u - 0.5) * 8) : std::exp((u - 0.5) * 20));
}

template <class T>
std::vector<T> special_values() {
  using L = std::numeric_limits<T>;
  std::vector<T> v{0,
                   T(0.5),
                   1,
                   T(1.5),
                   2,
                   3,
                   4,
                   5,
                   1e10,
                   T(1e10) + 1,
                   T(0x1p23),
                   T(0x1p24),
                   T(0x1p52),
                   T(0x1p53),
                   L::max(),
                   L::min(),
                   L::denorm_min(),
                   L::infinity(),
                   std::nextafter(T(1), T(2)),
                   std::nextafter(T(1), T(0))};
  const size_t n = v.size();
  for (size_t i = 0; i < n; ++i) v.push_back(-v[i]);
  v.push_back(L::quiet_NaN());
  return v;
}

template <class T, class F, class R>
void check_pairs(const char* type, const char* name, F f, R ref, uint64_t points) {
  if (skipped(name)) return;
  Worst worst;
  const std::vector<T> special = special_values<T>();
  for (T x : special) {
    for (T y : special) worst.take(ulps(f(x, y), ref(x, y)), x, y);
  }
  tandem::parallel_for(0, static_cast<int64_t>(points), 4096, [&](int64_t b, int64_t e) {
    double top = -1, at = 0, at2 = 0;
    for (int64_t i = b; i < e; ++i) {
      const uint64_t k = static_cast<uint64_t>(i);
      const tandem::PhiloxBlock block = tandem::philox(11, 0, k);
      const T x = pair_arg<T>(block, 0, k), y = pair_arg<T>(block, 1, k);
      const double u = sizeof(T) == 4
                           ? ulps_f32(static_cast<float>(f(x, y)), static_cast<double>(ref(x, y)))
                           : ulps(f(x, y), ref(x, y));
      if (u > top) top = u, at = x, at2 = y;
    }
    worst.take(top, at, at2);
  });
  report(type, name, worst, 2, static_cast<double>(points), true);
}

void run_f32() {
#define TD_CHECK_F32(name) \
  check_f32(               \
      #name, [](float x) { return tdm_##name##f(x); }, [](double x) { return std::name(x); })
  TD_CHECK_F32(exp);
  TD_CHECK_F32(exp2);
  TD_CHECK_F32(expm1);
  TD_CHECK_F32(log);
  TD_CHECK_F32(log2);
  TD_CHECK_F32(log10);
  TD_CHECK_F32(log1p);
  TD_CHECK_F32(sin);
  TD_CHECK_F32(cos);
  TD_CHECK_F32(tan);
  TD_CHECK_F32(asin);
  TD_CHECK_F32(acos);
  TD_CHECK_F32(atan);
  TD_CHECK_F32(sinh);
  TD_CHECK_F32(cosh);
  TD_CHECK_F32(tanh);
  TD_CHECK_F32(asinh);
  TD_CHECK_F32(acosh);
  TD_CHECK_F32(atanh);
  TD_CHECK_F32(erf);
  TD_CHECK_F32(erfc);
  TD_CHECK_F32(cbrt);
  TD_CHECK_F32(sqrt);
#undef TD_CHECK_F32
  check_f32(
      "rsqrt", [](float x) { return tdm_rsqrtf(x); }, [](double x) { return rsqrt_ref(x); });
  check_f32(
      "sigmoid", [](float x) { return tdm_sigmoidf(x); }, [](double x) { return sigmoid_ref(x); });
  // lgamma_r: std::lgamma writes the global signgam from every thread.
  check_f32(
      "lgamma", [](float x) { return tdm_lgammaf(x); },
      [](double x) {
        int sign;
        return lgamma_r(x, &sign);
      },
      2, 1, 1e-3);
  check_f32(
      "erfinv", [](float x) { return tdm_erfinvf(x); }, [](double x) { return erfinv_ref(x); }, 2,
      1021);
  check_f32(
      "digamma", [](float x) { return tdm_digammaf(x); }, [](double x) { return digamma_ref(x); },
      2, 1021, 1e-3);
  const uint64_t pairs = std::max<uint64_t>(1000, 100'000'000 / g_options.stride);
  check_pairs<float>(
      "f32", "pow", [](float x, float y) { return tdm_powf(x, y); },
      [](double x, double y) { return std::pow(x, y); }, pairs);
  check_pairs<float>(
      "f32", "atan2", [](float x, float y) { return tdm_atan2f(x, y); },
      [](double x, double y) { return std::atan2(x, y); }, pairs);
}

// ---- f64: random points -----------------------------------------------------------------------

// libquadmath's lgammaq is poor at x < 0: reflection.
Quad lgamma_ref(Quad x) {
  if (x > 0) return lgammaq(x);
  if (floorq(x) == x) return HUGE_VALQ;
  const Quad f = x - rintq(x);
  return logq(M_PIq / fabsq(x * sinq(M_PIq * f))) - lgammaq(-x);
}

Quad no_term(Quad) { return 0; }
Quad lgamma_term(Quad x) { return std::max(Quad(1), fabsq(lgammaq(fabsq(x)))); }
Quad digamma_term(Quad x) { return std::max(Quad(1), fabsq(digamma_ref(1 + fabsq(x)))); }

// Half of the points have random bits, half lie evenly in [lo, hi]. The error counts in ulps of the
// result, or of `term` (what cancels near zeros of lgamma and digamma at x < 0) if that is larger.
template <class F, class R>
void check_f64(const char* name, double lo, double hi, F f, R ref, double bound = 2,
               Quad (*term)(Quad) = no_term) {
  if (skipped(name)) return;
  Worst worst;
  for (double x : special_values<double>()) {
    worst.take(ulps(f(x), ref(static_cast<Quad>(x)), term(static_cast<Quad>(x))), x);
  }
  tandem::parallel_for(0, static_cast<int64_t>(g_options.points), 4096, [&](int64_t b, int64_t e) {
    double top = -1, at = 0;
    for (int64_t i = b; i < e; ++i) {
      const tandem::PhiloxBlock block = tandem::philox(7, 0, static_cast<uint64_t>(i));
      const double x = i % 2 == 0 ? random_bits_f64(block)
                                  : lo + (hi - lo) * tandem::uniform_f64(block.word64(1));
      const Quad wide = static_cast<Quad>(x);
      const double u = ulps(f(x), ref(wide), term(wide));
      if (u > top) top = u, at = x;
    }
    worst.take(top, at);
  });
  report("f64", name, worst, bound, static_cast<double>(g_options.points));
}

void run_f64() {
#define TD_CHECK_F64(name, lo, hi) \
  check_f64(                       \
      #name, lo, hi, [](double x) { return tdm_##name(x); }, [](Quad x) { return name##q(x); })
  TD_CHECK_F64(exp, -20, 20);
  check_f64(
      "exp2", -30, 30, [](double x) { return tdm_exp2(x); }, [](Quad x) { return exp2q(x); });
  TD_CHECK_F64(expm1, -3, 3);
  TD_CHECK_F64(log, 0.1, 5);
  TD_CHECK_F64(log2, 0.1, 5);
  TD_CHECK_F64(log10, 0.1, 5);
  TD_CHECK_F64(log1p, -0.9, 3);
  TD_CHECK_F64(sin, -100, 100);
  TD_CHECK_F64(cos, -100, 100);
  TD_CHECK_F64(tan, -100, 100);
  TD_CHECK_F64(asin, -1, 1);
  TD_CHECK_F64(acos, -1, 1);
  TD_CHECK_F64(atan, -5, 5);
  TD_CHECK_F64(sinh, -5, 5);
  TD_CHECK_F64(cosh, -5, 5);
  TD_CHECK_F64(tanh, -5, 5);
  TD_CHECK_F64(asinh, -5, 5);
  TD_CHECK_F64(acosh, 1, 5);
  TD_CHECK_F64(atanh, -1, 1);
  TD_CHECK_F64(erf, -4, 4);
  TD_CHECK_F64(erfc, -3, 27);
  TD_CHECK_F64(cbrt, -10, 10);
  TD_CHECK_F64(sqrt, 0, 10);
#undef TD_CHECK_F64
  check_f64(
      "rsqrt", 0, 10, [](double x) { return tdm_rsqrt(x); }, [](Quad x) { return rsqrt_ref(x); });
  check_f64(
      "sigmoid", -20, 20, [](double x) { return tdm_sigmoid(x); },
      [](Quad x) { return sigmoid_ref(x); });
  const uint64_t points = g_options.points;
  g_options.points = std::max<uint64_t>(points / 10, 1000);
  check_f64(
      "erfinv", -1, 1, [](double x) { return tdm_erfinv(x); }, [](Quad x) { return erfinv_ref(x); },
      4);
  check_f64(
      "lgamma", 0, 20, [](double x) { return tdm_lgamma(x > 0 ? x : -x); },
      [](Quad x) { return lgamma_ref(fabsq(x)); }, 4);
  check_f64(
      "digamma", 0, 20, [](double x) { return tdm_digamma(x > 0 ? x : -x); },
      [](Quad x) { return digamma_ref(x > 0 ? x : -x); }, 4);
  check_f64(
      "lgamma-", -20, 0, [](double x) { return tdm_lgamma(x > 0 ? -x : x); },
      [](Quad x) { return lgamma_ref(x > 0 ? -x : x); }, 4, lgamma_term);
  check_f64(
      "digamma-", -20, 0, [](double x) { return tdm_digamma(x > 0 ? -x : x); },
      [](Quad x) { return digamma_ref(x > 0 ? -x : x); }, 8, digamma_term);
  g_options.points = points;
  check_pairs<double>(
      "f64", "pow", [](double x, double y) { return tdm_pow(x, y); },
      [](Quad x, Quad y) { return powq(x, y); }, points);
  check_pairs<double>(
      "f64", "atan2", [](double x, double y) { return tdm_atan2(x, y); },
      [](Quad x, Quad y) { return atan2q(x, y); }, points);
}

// ---- time -------------------------------------------------------------------------------------

template <class T, class Loop>
double nanoseconds(Loop loop, T lo, T hi) {
  static T x[1024], y[1024];
  for (int i = 0; i < 1024; ++i) x[i] = lo + (hi - lo) * static_cast<T>(i) / 1024;
  double best = 1e30;
  for (int trial = 0; trial < 20; ++trial) {
    const auto start = std::chrono::steady_clock::now();
    for (int k = 0; k < 200; ++k) {
      loop(y, x);
      asm volatile("" ::: "memory");
    }
    const std::chrono::duration<double, std::nano> d = std::chrono::steady_clock::now() - start;
    best = std::min(best, d.count() / (200 * 1024));
  }
  return best;
}

#define TD_LOOP(isa, name, T, fn)                                                            \
  __attribute__((target(isa), noinline)) void name(T* __restrict y, const T* __restrict x) { \
    for (int i = 0; i < 1024; ++i) y[i] = fn(x[i]);                                          \
  }
#define TD_TIMED(fn, T, lo, hi)                                                                  \
  TD_LOOP("sse2", loop_sse2_##fn, T, fn)                                                         \
  TD_LOOP("avx2", loop_avx2_##fn, T, fn)                                                         \
  TD_LOOP("avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512", loop_avx512_##fn, T, fn) \
  void time_##fn() {                                                                             \
    if (skipped(#fn)) return;                                                                    \
    std::printf("time %-16s", #fn);                                                              \
    std::printf(" %8.3f", nanoseconds<T>(loop_sse2_##fn, lo, hi));                               \
    if (__builtin_cpu_supports("avx2"))                                                          \
      std::printf(" %8.3f", nanoseconds<T>(loop_avx2_##fn, lo, hi));                             \
    if (__builtin_cpu_supports("avx512vl"))                                                      \
      std::printf(" %8.3f", nanoseconds<T>(loop_avx512_##fn, lo, hi));                           \
    std::printf("\n");                                                                           \
  }

#define TD_EACH_UNARY(X) \
  X(exp, -8, 8)          \
  X(exp2, -8, 8)         \
  X(expm1, -8, 8)        \
  X(log, 0, 8)           \
  X(log2, 0, 8)          \
  X(log10, 0, 8)         \
  X(log1p, 0, 8)         \
  X(sin, -8, 8)          \
  X(cos, -8, 8)          \
  X(tan, -8, 8)          \
  X(asin, -1, 1)         \
  X(acos, -1, 1)         \
  X(atan, -8, 8)         \
  X(sinh, -8, 8)         \
  X(cosh, -8, 8)         \
  X(tanh, -8, 8)         \
  X(asinh, -8, 8)        \
  X(acosh, 1, 8)         \
  X(atanh, -1, 1)        \
  X(erf, -4, 4)          \
  X(erfc, -4, 4)         \
  X(erfinv, -1, 1)       \
  X(sqrt, 0, 8)          \
  X(rsqrt, 1, 8)         \
  X(cbrt, -8, 8)         \
  X(sigmoid, -8, 8)      \
  X(lgamma, 0, 20)       \
  X(digamma, 0, 20)
#define TD_TIMED_PAIR(name, lo, hi) \
  TD_TIMED(tdm_##name##f, float, lo, hi) TD_TIMED(tdm_##name, double, lo, hi)
TD_EACH_UNARY(TD_TIMED_PAIR)
TD_TIMED(tdm_sinf_near, float, -8, 8)
TD_TIMED(tdm_cosf_near, float, -8, 8)
#define TD_POW(x) tdm_powf(x, 1.7f)
TD_TIMED(TD_POW, float, 0, 8)

void run_time() {
  std::printf("time ns an element         sse2     avx2   avx512\n");
#define TD_RUN(name, lo, hi) time_tdm_##name##f();
  TD_EACH_UNARY(TD_RUN)
#undef TD_RUN
  time_tdm_sinf_near();
  time_tdm_cosf_near();
  time_TD_POW();
#define TD_RUN(name, lo, hi) time_tdm_##name();
  TD_EACH_UNARY(TD_RUN)
#undef TD_RUN
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--stride" && i + 1 < argc) {
      g_options.stride = std::max<uint64_t>(1, std::strtoull(argv[++i], nullptr, 10));
    } else if (arg == "--points" && i + 1 < argc) {
      g_options.points = std::max<uint64_t>(1, std::strtoull(argv[++i], nullptr, 10));
    } else if (arg == "--only" && i + 1 < argc) {
      g_options.only = argv[++i];
    } else if (arg == "f32" || arg == "f64" || arg == "time" || arg == "all") {
      g_options.mode = arg;
    } else {
      std::fprintf(stderr,
                   "usage: prelude_check [f32|f64|time|all] [--stride N] [--points N] "
                   "[--only NAME]\n");
      return 2;
    }
  }
  const std::string& mode = g_options.mode;
  if (mode == "f32" || mode == "all") run_f32();
  if (mode == "f64" || mode == "all") run_f64();
  if (mode == "time" || mode == "all") run_time();
  return g_failed ? 3 : 0;
}
