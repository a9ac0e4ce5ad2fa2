// SPDX-License-Identifier: Apache-2.0
// The math functions of every kernel, in a subset of C99 that is also C++ and CUDA C.
// Reference executors, the tile interpreter and emitted code call these and nothing else.
#ifndef TDM_MATH_PRELUDE_H
#define TDM_MATH_PRELUDE_H

#define TDM_FN static inline __attribute__((always_inline))

TDM_FN float tdm_expf(float x) { return __builtin_expf(x); }
TDM_FN float tdm_exp2f(float x) { return __builtin_exp2f(x); }
TDM_FN float tdm_expm1f(float x) { return __builtin_expm1f(x); }
TDM_FN float tdm_logf(float x) { return __builtin_logf(x); }
TDM_FN float tdm_log2f(float x) { return __builtin_log2f(x); }
TDM_FN float tdm_log10f(float x) { return __builtin_log10f(x); }
TDM_FN float tdm_log1pf(float x) { return __builtin_log1pf(x); }
TDM_FN float tdm_sinf(float x) { return __builtin_sinf(x); }
TDM_FN float tdm_cosf(float x) { return __builtin_cosf(x); }
TDM_FN float tdm_tanf(float x) { return __builtin_tanf(x); }
TDM_FN float tdm_asinf(float x) { return __builtin_asinf(x); }
TDM_FN float tdm_acosf(float x) { return __builtin_acosf(x); }
TDM_FN float tdm_atanf(float x) { return __builtin_atanf(x); }
TDM_FN float tdm_sinhf(float x) { return __builtin_sinhf(x); }
TDM_FN float tdm_coshf(float x) { return __builtin_coshf(x); }
TDM_FN float tdm_tanhf(float x) { return __builtin_tanhf(x); }
TDM_FN float tdm_asinhf(float x) { return __builtin_asinhf(x); }
TDM_FN float tdm_acoshf(float x) { return __builtin_acoshf(x); }
TDM_FN float tdm_atanhf(float x) { return __builtin_atanhf(x); }
TDM_FN float tdm_erff(float x) { return __builtin_erff(x); }
TDM_FN float tdm_erfcf(float x) { return __builtin_erfcf(x); }
TDM_FN float tdm_cbrtf(float x) { return __builtin_cbrtf(x); }
TDM_FN float tdm_sqrtf(float x) { return __builtin_sqrtf(x); }
TDM_FN float tdm_lgammaf(float x) { return __builtin_lgammaf(x); }
TDM_FN float tdm_powf(float x, float y) { return __builtin_powf(x, y); }
TDM_FN float tdm_atan2f(float x, float y) { return __builtin_atan2f(x, y); }
TDM_FN float tdm_rsqrtf(float x) { return (float)1 / __builtin_sqrtf(x); }
TDM_FN float tdm_sigmoidf(float x) { return (float)1 / ((float)1 + __builtin_expf(-x)); }
TDM_FN double tdm_exp(double x) { return __builtin_exp(x); }
TDM_FN double tdm_exp2(double x) { return __builtin_exp2(x); }
TDM_FN double tdm_expm1(double x) { return __builtin_expm1(x); }
TDM_FN double tdm_log(double x) { return __builtin_log(x); }
TDM_FN double tdm_log2(double x) { return __builtin_log2(x); }
TDM_FN double tdm_log10(double x) { return __builtin_log10(x); }
TDM_FN double tdm_log1p(double x) { return __builtin_log1p(x); }
TDM_FN double tdm_sin(double x) { return __builtin_sin(x); }
TDM_FN double tdm_cos(double x) { return __builtin_cos(x); }
TDM_FN double tdm_tan(double x) { return __builtin_tan(x); }
TDM_FN double tdm_asin(double x) { return __builtin_asin(x); }
TDM_FN double tdm_acos(double x) { return __builtin_acos(x); }
TDM_FN double tdm_atan(double x) { return __builtin_atan(x); }
TDM_FN double tdm_sinh(double x) { return __builtin_sinh(x); }
TDM_FN double tdm_cosh(double x) { return __builtin_cosh(x); }
TDM_FN double tdm_tanh(double x) { return __builtin_tanh(x); }
TDM_FN double tdm_asinh(double x) { return __builtin_asinh(x); }
TDM_FN double tdm_acosh(double x) { return __builtin_acosh(x); }
TDM_FN double tdm_atanh(double x) { return __builtin_atanh(x); }
TDM_FN double tdm_erf(double x) { return __builtin_erf(x); }
TDM_FN double tdm_erfc(double x) { return __builtin_erfc(x); }
TDM_FN double tdm_cbrt(double x) { return __builtin_cbrt(x); }
TDM_FN double tdm_sqrt(double x) { return __builtin_sqrt(x); }
TDM_FN double tdm_lgamma(double x) { return __builtin_lgamma(x); }
TDM_FN double tdm_pow(double x, double y) { return __builtin_pow(x, y); }
TDM_FN double tdm_atan2(double x, double y) { return __builtin_atan2(x, y); }
TDM_FN double tdm_rsqrt(double x) { return (double)1 / __builtin_sqrt(x); }
TDM_FN double tdm_sigmoid(double x) { return (double)1 / ((double)1 + __builtin_exp(-x)); }

// Digamma by reflection, recurrence up to 10 and the asymptotic series.
TDM_FN double tdm_digamma(double x) {
  double r = 0.0;
  if (x == 0.0) return __builtin_copysign(__builtin_inf(), -x);
  if (x < 0.0) {
    if (__builtin_floor(x) == x) return __builtin_nan("");
    r = -3.14159265358979323846 / __builtin_tan(3.14159265358979323846 * (x - __builtin_floor(x)));
    x = 1.0 - x;
  }
  while (x < 10.0) {
    r -= 1.0 / x;
    x += 1.0;
  }
  const double z = 1.0 / (x * x);
  const double series =
      z * (1.0 / 12 -
           z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
  return r + __builtin_log(x) - 0.5 / x - series;
}
TDM_FN float tdm_digammaf(float x) { return (float)tdm_digamma((double)x); }

// Inverse of erf by Newton's method on erfc, from a rough start.
TDM_FN double tdm_erfinv(double x) {
  const double a = __builtin_fabs(x);
  double w, y;
  int i;
  if (!(a < 1.0)) return a == 1.0 ? __builtin_copysign(__builtin_inf(), x) : __builtin_nan("");
  if (a == 0.0) return x;
  w = __builtin_log1p(-a * a);
  y = 4.3307467508 + 0.5 * w;
  y = __builtin_sqrt(__builtin_sqrt(y * y - w / 0.147) - y);
  for (i = 0; i < 6; ++i) {
    const double err = a < 0.5 ? __builtin_erf(y) - a : (1.0 - a) - __builtin_erfc(y);
    y -= err * __builtin_exp(y * y) * 0.88622692545275801365;
  }
  return __builtin_copysign(y, x);
}
TDM_FN float tdm_erfinvf(float x) { return (float)tdm_erfinv((double)x); }

#endif
