// SPDX-License-Identifier: Apache-2.0
// Second half of the math prelude: the error, gamma, Bessel and zeta functions and their relatives
// in f64, and the f32 functions that are computed in f64. Included by math_prelude.h only; its
// rules hold here. Emitted code gets both texts, this one in place of its #include.
#ifndef TDM_MATH_PRELUDE_SPECIAL_H
#define TDM_MATH_PRELUDE_SPECIAL_H

#include "tandem/base/math_prelude.h"

// ---- f64: error function ----------------------------------------------------------------------

// erf(x) / x - 1 as a function of z = x^2 <= 1.
TDM_FN double tdmi_erf_rest(double z) {
  double p = -0x1.a27db78f4c021p-31;
  p = TDMI_H3(p, z, 0x1.d3f0ef4016966p-27, -0x1.5b8ee687364a5p-23, 0x1.b96bb1971dd1dp-20);
  p = TDMI_H3(p, z, -0x1.f4c836c3b27e4p-17, 0x1.f9a2971e67c6fp-14, -0x1.c02daeba78a0bp-11);
  p = TDMI_H3(p, z, 0x1.565bcceeeae69p-8, -0x1.b82ce311a9cf6p-6, 0x1.ce2f21a03f8c2p-4);
  p = TDMI_H2(p, z, -0x1.812746b03799dp-2, 0x1.06eba8214db68p-3);
  return p;
}

// (1 + 2a) exp(a^2) erfc(a) for 0.375 <= a <= 28.
TDM_FN tdmi_dd tdmi_erfcx_scaled(double a) {
  const double t = (a - 3.0) / (a + 3.0);
  double p = -0x1.5bd13cac998p-28;
  p = TDMI_H3(p, t, -0x1.53fac4c059363p-27, 0x1.3661dc898335p-25, 0x1.9f6934e9f9fc5p-24);
  p = TDMI_H3(p, t, -0x1.24eb09cb631ep-23, -0x1.48b7a0334a66ep-21, 0x1.7c0b8eb6080eap-22);
  p = TDMI_H3(p, t, 0x1.d1c07d22aa313p-19, -0x1.883039cfa3eedp-21, -0x1.5137fbe660756p-16);
  p = TDMI_H3(p, t, 0x1.4c23d91c79ab9p-18, 0x1.065a1db927fb9p-13, -0x1.b912727da970ep-14);
  p = TDMI_H3(p, t, -0x1.98db502118a5fp-11, 0x1.ef1bdd454cfa3p-10, 0x1.4b884e3edb532p-9);
  p = TDMI_H3(p, t, -0x1.8574c40bcd71ap-6, 0x1.17ca2877f2e72p-4, -0x1.e88b803a4930ep-4);
  p = TDMI_H3(p, t, 0x1.098366a5b4685p-3, -0x1.85a15c58aa5dp-5, -0x1.15c084bb9e8f3p-3);
  tdmi_dd r = tdmi_fast_two(0x1.40c522d7e4987p0, t * p);
  r.l = r.l + 0x1.9478622f7ddfp-55;
  return r;
}

TDM_FN double tdm_erf(double x) {
  const double a = tdmi_abs(x);
  const double c = tdmi_sel(a > 6.0, 6.0, a);
  const tdmi_exp_t e = tdmi_exp_parts(-c * c, 0.0);
  const double tail = tdmi_pow2(e.n) * (1.0 + e.t) * tdmi_erfcx_scaled(c).h / (1.0 + (c + c));
  return tdmi_sel(a < 1.0, x + x * tdmi_erf_rest(x * x), tdmi_sign(1.0 - tail, x));
}

TDM_FN double tdm_erfc(double x) {
  const double a = tdmi_abs(x);
  const double c = tdmi_sel(a > 28.0, 28.0, a);
  const tdmi_dd sq = tdmi_two_prod(c, c);
  const tdmi_exp_t e = tdmi_exp_parts(-sq.h, -sq.l);
  tdmi_dd m = tdmi_fast_two(1.0, e.t);
  double y;
  m.l = m.l + e.l;
  m = tdmi_dd_mul(m, tdmi_erfcx_scaled(c));
  m = tdmi_dd_div(m, tdmi_fast_two(tdmi_sel(c < 0.5, 1.0, c + c), tdmi_sel(c < 0.5, c + c, 1.0)));
  y = tdmi_scale(m.h + m.l, e.n);
  y = tdmi_sel(x < 0.0, 2.0 - y, y);
  return tdmi_sel(a < 0.375, 1.0 - (x + x * tdmi_erf_rest(x * x)), y);
}

// erfinv(x) / x at w = -log(1 - x^2) <= 37: in w, for w > 6.25 in sqrt(w) (after M. Giles, 2010).
TDM_FN double tdmi_erfinv_ratio(double w) {
  const double root = tdm_sqrt(tdmi_abs(w));
  const double t = tdmi_sel(w < 6.25, w, 6.25) - 3.125;
  const double s = root - 3.25, v = root - 5.05;
  double p = -0x1.6adc1bb64d88p-72;
  p = TDMI_H3(p, t, 0x1.e67eb783b10dcp-69, 0x1.3867ed7157d73p-66, -0x1.9bbf75445eac9p-62);
  p = TDMI_H3(p, t, 0x1.9aa8c3de0e31dp-61, 0x1.1ec20948fd9dp-56, -0x1.1ca77538f71dfp-53);
  p = TDMI_H3(p, t, -0x1.6fceaa1098759p-55, 0x1.d6c6f2d8e947dp-48, -0x1.686e61eafc74dp-45);
  p = TDMI_H3(p, t, -0x1.6bdbead52f3fbp-44, 0x1.7235e01768a5bp-39, -0x1.c8a3f8e7a8967p-37);
  p = TDMI_H3(p, t, -0x1.dc3f138c68b1bp-35, 0x1.20f5363d0d069p-30, -0x1.1a9eb0f03ff15p-28);
  p = TDMI_H3(p, t, -0x1.f36ced4662188p-26, 0x1.c6b4f88bee25fp-22, -0x1.6e8a53cde9e55p-20);
  p = TDMI_H3(p, t, -0x1.d1d1f7ca22323p-17, 0x1.879c2a20b529fp-13, -0x1.84576948356aap-11);
  p = TDMI_H3(p, t, -0x1.8b6c33114ead6p-8, 0x1.ebd80d9b13dfap-3, 0x1.a755e7c99ae86p0);
  double q = 0x1.02b0d4bec43cep-27;
  q = TDMI_H3(q, s, -0x1.0684119717fdfp-26, -0x1.6009ed3b7fe68p-26, 0x1.1a6ffb1cb4365p-23);
  q = TDMI_H3(q, s, -0x1.082434fb40156p-22, -0x1.d92e00f5c6ecdp-26, 0x1.8dcd53846c378p-20);
  q = TDMI_H3(q, s, -0x1.0b7ab0c733f1dp-18, 0x1.89961ff220611p-19, 0x1.a241eb72a9bffp-17);
  q = TDMI_H3(q, s, -0x1.8cf451a3006f1p-15, 0x1.1e6abae5bc261p-14, 0x1.932e8a8e77bc4p-16);
  q = TDMI_H3(q, s, -0x1.7448bcc0a2a3p-12, 0x1.f3cc546138204p-11, -0x1.ba9240d89b86bp-10);
  q = TDMI_H3(q, s, 0x1.468eeca93ac2ap-9, -0x1.ebadabba02284p-9, 0x1.5ffcfe5b6ce9p-8);
  q = TDMI_H2(q, s, 0x1.0158a6d641d55p0, 0x1.8abcc380d5a48p1);
  double r = 0x1.5f70413f101f3p-38;
  r = TDMI_H3(r, v, -0x1.13bd129c7c4b1p-36, 0x1.828bf54a829e5p-39, 0x1.59c6c0dd0197ep-34);
  r = TDMI_H3(r, v, -0x1.69e1d2a54d63dp-32, 0x1.1f7fa01f8c622p-30, -0x1.732ed10e9fb41p-29);
  r = TDMI_H3(r, v, 0x1.8f29cc834dbcfp-28, -0x1.7f5f04d28bb75p-27, 0x1.76ddb9f8c6a66p-26);
  r = TDMI_H3(r, v, -0x1.d80c3baa0463ap-25, 0x1.b0f99e5c11d51p-23, -0x1.e6fc3297c566ap-21);
  r = TDMI_H3(r, v, 0x1.1971db3b3bd8bp-18, -0x1.344608f95dab8p-16, 0x1.2acdb4cc33967p-14);
  r = TDMI_H3(r, v, -0x1.a415b08f39f6p-13, -0x1.6437de556cfa9p-13, 0x1.02a209f638a16p0);
  r = TDMI_H1(r, v, 0x1.39a07f9e2524cp2);
  return tdmi_sel(w < 6.25, p, tdmi_sel(w < 16.0, q, r));
}

/// Inverse of erf on [-1, 1]; NaN outside. Within 4 ulp (f64).
TDM_FN double tdm_erfinv(double x) {
  const double a = tdmi_abs(x);
  const tdmi_dd sq = tdmi_two_prod(a, a);
  const tdmi_dd prod = tdmi_two_prod(1.0 - a, 1.0 + a);
  const tdmi_log_t part = tdmi_log_parts(prod.h);
  const int small = a < 0.5;
  const double f = tdmi_sel(small, -sq.h, part.f);
  const double c = tdmi_sel(small, -sq.l, prod.l * tdmi_pow2(-part.k));
  const double k = tdmi_sel(small, 0.0, (double)part.k);
  const double w = -tdmi_log_sum(f, c * (1.0 - f * (1.0 - f)), k);
  double y = tdmi_erfinv_ratio(w);
  y = tdmi_sel(a < 1.0, x * y, x * tdmi_inf());
  return tdmi_sel(a <= 1.0, y, tdmi_nan());
}

// ---- f64: gamma family ------------------------------------------------------------------------

// lgamma(y) / ((y - 1) (y - 2)) for 1 <= y <= 2.5.
TDM_FN double tdmi_lgamma_core(double y) {
  const double t = y - 1.75;
  double p = 0x1.494e6c6ce0245p-27;
  p = TDMI_H3(p, t, -0x1.2fa92028c8269p-23, 0x1.0bf9786b71d68p-22, -0x1.264144e8d124p-26);
  p = TDMI_H3(p, t, 0x1.45ae13f35055cp-28, -0x1.70ce7d4040f1bp-21, 0x1.61ce36b82e3dp-20);
  p = TDMI_H3(p, t, -0x1.e8cd420c27151p-20, 0x1.bc04f94ee2f5bp-19, -0x1.b1accca0add2p-18);
  p = TDMI_H3(p, t, 0x1.9366e99a270cep-17, -0x1.75bb7db423181p-16, 0x1.5db35a75360d4p-15);
  p = TDMI_H3(p, t, -0x1.491865c967188p-14, 0x1.3777e20c4bb82p-13, -0x1.28f263b647386p-12);
  p = TDMI_H3(p, t, 0x1.1daecbd763f0dp-11, -0x1.1605627916d5ap-10, 0x1.12aa731e46abfp-9);
  p = TDMI_H3(p, t, -0x1.14f7c58ea6173p-8, 0x1.1f9587f9cf707p-7, -0x1.382e176f60acbp-6);
  p = TDMI_H3(p, t, 0x1.6cb6251711ce1p-5, -0x1.e96586307946ep-4, 0x1.ccf151e09cde8p-2);
  return p;
}

// sin(pi d), cos(pi d) for |d| <= 1/2.
TDM_FN double tdmi_sinpi(double d) {
  const double a = tdmi_abs(d);
  const double e = tdmi_sel(a > 0.25, 0.5 - a, a);
  const double h = e * 0x1.921fb54442d18p1, l = e * 0x1.1a62633145c07p-53;
  const double y = tdmi_sel(a > 0.25, tdmi_cos_kernel(h, l).h, tdmi_sin_kernel(h, l).h);
  return tdmi_sign(y, d);
}

TDM_FN double tdmi_cospi(double d) { return tdmi_sinpi(0.5 - tdmi_abs(d)); }

// x minus the nearest integer; 0 from 2^52 on.
TDM_FN double tdmi_off_integer(double x) {
  const double a = tdmi_abs(x);
  const double d = a - ((a + 0x1p52) - 0x1p52);
  return tdmi_sel(a < 0x1p52, tdmi_sel(x < 0.0, -d, d), 0.0);
}

// lgamma for x > 0: by recurrence from [1, 2.5], or Stirling's series from 8 on.
TDM_FN double tdmi_lgamma_positive(double x) {
  const int low = x < 1.0, big = x >= 8.0;
  double y = tdmi_sel(low, x + 1.0, tdmi_sel(big, 2.0, x));
  double y1, y2, prod = 1.0, logs, core, inv, z, series;
  int i;
  for (i = 0; i < 6; ++i) {
    const int over = y > 2.5;
    y = tdmi_sel(over, y - 1.0, y);
    prod = tdmi_sel(over, prod * y, prod);
  }
  y1 = tdmi_sel(low, x, y - 1.0);
  y2 = tdmi_sel(low, x - 1.0, y - 2.0);
  logs = tdm_log(tdmi_sel(low | big, x, prod));
  core = y1 * y2 * tdmi_lgamma_core(y) + tdmi_sel(low, -logs, logs);
  inv = 1.0 / tdmi_sel(big, x, 8.0);
  z = inv * inv;
  series =
      TDMI_H4(-3617.0 / 122400.0, z, 1.0 / 156.0, -691.0 / 360360.0, 1.0 / 1188.0, -1.0 / 1680.0);
  series = TDMI_H3(series, z, 1.0 / 1260.0, -1.0 / 360.0, 1.0 / 12.0);
  return tdmi_sel(big, (x - 0.5) * (logs - 1.0) + (0x1.acfe390c97d6ap-2 + inv * series), core);
}

/// log|gamma(x)|; +inf at 0, -1, -2 ... Within 4 ulp for x > 0; at x < 0, where zeros lie between
/// the poles, within 4 ulp of the largest of 1, lgamma(|x|) and the result.
TDM_FN double tdm_lgamma(double x) {
  const double a = tdmi_abs(x);
  const double plus = tdmi_lgamma_positive(a);
  const double s = tdmi_abs(tdmi_sinpi(tdmi_off_integer(a)));
  // log(pi / (a sin(pi a))) - lgamma(a)
  const double minus = -(tdm_log(a * s * 0x1.45f306dc9c883p-2) + plus);
  const int neg = x < 0.0, pole = s == 0.0;
  double y = tdmi_sel(x > 0.0, plus, minus);
  y = tdmi_sel(neg & pole, tdmi_inf(), y);
  y = tdmi_sel(a < 0x1p-60, -tdm_log(a), y);
  y = tdmi_sel(a == tdmi_inf(), tdmi_inf(), y);
  return tdmi_sel(x != x, x, y);
}

/// Derivative of lgamma. -inf at +0, +inf at -0, NaN at -1, -2 ... Within 4 ulp for x > 0; at x < 0
/// within 8 ulp of the largest of 1, digamma(1 - x) and the result.
TDM_FN double tdm_digamma(double x) {
  const int neg = x < 0.0, whole = tdmi_off_integer(x) == 0.0;
  const double a = tdmi_sel(neg, 1.0 - x, x);
  const int low = a < 1.0, big = a >= 10.0;
  double y = tdmi_sel(low, a + 1.0, tdmi_sel(big, 2.0, a));
  double n = tdmi_sel(low, -1.0, 0.0), d = tdmi_sel(low, a, 1.0);
  double t, core, inv, z, series, far, off, r;
  int i;
  for (i = 0; i < 8; ++i) {  // n / d = sum of 1 / y
    const int over = y > 2.5;
    y = tdmi_sel(over, y - 1.0, y);
    n = tdmi_sel(over, n * y + d, n);
    d = tdmi_sel(over, d * y, d);
  }
  t = y - 1.75;
  double p = 0x1.ef1ccbe7fd7cbp-22;
  p = TDMI_H3(p, t, -0x1.38c3b5a53f5d2p-20, 0x1.c6cf07a9ae4e2p-22, 0x1.52def4ebff256p-21);
  p = TDMI_H3(p, t, 0x1.73f2fd39e9db3p-20, -0x1.3f066d1b2071ap-18, 0x1.99384c2e94369p-18);
  p = TDMI_H3(p, t, -0x1.18c2107f445aap-17, 0x1.0af72e491fec3p-16, -0x1.ebec669ffed37p-16);
  p = TDMI_H3(p, t, 0x1.aa6784629f2f8p-15, -0x1.727eaa70841efp-14, 0x1.4487301ccd327p-13);
  p = TDMI_H3(p, t, -0x1.1c456508fb92p-12, 0x1.f1c20aad771efp-12, -0x1.b3f173fd0e3a3p-11);
  p = TDMI_H3(p, t, 0x1.7e0a951edc056p-10, -0x1.4f1c2b227ff81p-9, 0x1.26602205ed9b1p-8);
  p = TDMI_H3(p, t, -0x1.0335d253a7648p-7, 0x1.ca49471b09a1ep-7, -0x1.97cc6e1078b2bp-6);
  p = TDMI_H3(p, t, 0x1.6effaf57f3004p-5, -0x1.510ab0e548a1ap-4, 0x1.41c830a320654p-3);
  p = TDMI_H2(p, t, -0x1.4e15b17372db3p-2, 0x1.b763ca67112ap-1);
  core = ((y - 0x1.762d86356be3fp0) - 0x1.b86a722197829p-54) * p + n / d;
  inv = 1.0 / tdmi_sel(big, a, 10.0);
  z = inv * inv;
  series = TDMI_H4(-3617.0 / 8160.0, z, 1.0 / 12.0, -691.0 / 32760.0, 1.0 / 132.0, -1.0 / 240.0);
  series = TDMI_H3(series, z, 1.0 / 252.0, -1.0 / 120.0, 1.0 / 12.0);
  far = tdm_log(tdmi_sel(big, a, 10.0)) - (0.5 * inv + z * series);
  r = tdmi_sel(big, far, core);
  off = tdmi_off_integer(x);
  off = tdmi_sel(neg & (whole ^ 1), off, 0.5);
  r = r - tdmi_sel(neg, 0x1.921fb54442d18p1 * tdmi_cospi(off) / tdmi_sinpi(off), 0.0);
  r = tdmi_sel(neg & whole, tdmi_nan(), r);
  r = tdmi_sel(x == 0.0, tdmi_sign(tdmi_inf(), -x), r);
  return tdmi_sel(x != x, x, r);
}

// ---- f64: relatives of erfc -------------------------------------------------------------------

/// exp(x^2) erfc(x), without overflow for x > 0; inf below -26.7. Within 4 ulp.
TDM_FN double tdm_erfcx(double x) {
  const double a = tdmi_abs(x);
  const double c = tdmi_sel(a > 28.0, 28.0, a);
  const tdmi_dd sq = tdmi_two_prod(c, c);
  const tdmi_exp_t e = tdmi_exp_parts(sq.h, sq.l);
  const double grown = tdmi_scale(1.0 + (e.t + e.l), e.n);
  const double small = a + a * tdmi_erf_rest(a * a);
  const double r = 1.0 / tdmi_sel(a > 28.0, a, 28.0), z = r * r;
  double far = TDMI_H3(10395.0 / 64.0, z, -945.0 / 32.0, 105.0 / 16.0, -15.0 / 8.0);
  double y = tdmi_erfcx_scaled(c).h / (1.0 + (c + c));
  far = 0x1.20dd750429b6dp-1 * r * TDMI_H3(far, z, 0.75, -0.5, 1.0);
  y = tdmi_sel(a > 28.0, far, y);
  y = tdmi_sel(x < 0.0, (grown + grown) - y, y);
  y = tdmi_sel(a < 0.375, grown * (1.0 - tdmi_sel(x < 0.0, -small, small)), y);
  y = tdmi_sel(x < -28.0, tdmi_inf(), y);
  return tdmi_sel(x != x, x, y);
}

// s - erfinv(x) for s^2 = -log(1 - x^2), 6 <= s <= 27.3.
TDM_FN double tdmi_erfinv_gap(double s) {
  const double u = (s - 12.0) / (s + 12.0);
  double p = 0x1.09568dda5d13fp-9;
  p = TDMI_H3(p, u, -0x1.bce8c3ab490fp-7, 0x1.ba2c90408c27cp-6, -0x1.20afc9d5be5cap-5);
  p = TDMI_H3(p, u, 0x1.562da8fff6f44p-5, -0x1.978db4c6def05p-5, 0x1.d3d57b1a9aca7p-5);
  p = TDMI_H3(p, u, -0x1.04bbb8d9055f5p-4, 0x1.18b452bd15536p-4, -0x1.28e8aa50efee9p-4);
  p = TDMI_H3(p, u, 0x1.2fdad98695797p-4, -0x1.31d2babf77d85p-4, 0x1.27a5e22bc636bp-4);
  p = TDMI_H3(p, u, -0x1.182b1396204bfp-4, 0x1.f1715e142b2dp-5, -0x1.a923cd3563a86p-5);
  p = TDMI_H3(p, u, 0x1.31c1b58977c5ap-5, -0x1.685610a0b92e8p-6, -0x1.432587078c7ap-8);
  p = TDMI_H3(p, u, 0x1.062237c0a3e74p-5, -0x1.d51b682f2854ap-4, 0x1.9453e839264fep-4);
  return p;
}

/// The x at which the normal distribution function is p; -inf at 0, inf at 1, NaN outside 0..1.
/// Within 8 ulp.
TDM_FN double tdm_ndtri(double p) {
  const double low = tdmi_sel(p > 0.5, 1.0 - p, p);
  const int far = low<0x1p-50, near = low> 0.25;
  const double m = tdmi_sel(far, 0x1p-50, low);
  const double x = 1.0 - (m + m);
  const tdmi_dd rest = tdmi_fast_two(1.0, -m);
  const tdmi_dd sq = tdmi_two_prod(x, x);
  const tdmi_dd prod = tdmi_two_prod(4.0 * m, rest.h);  // 1 - x^2
  const tdmi_log_t part = tdmi_log_parts(prod.h);
  const double f = tdmi_sel(near, -sq.h, part.f);
  const double c = tdmi_sel(near, -sq.l, (prod.l + 4.0 * m * rest.l) * tdmi_pow2(-part.k));
  const double w = -tdmi_log_sum(f, c * (1.0 - f * (1.0 - f)), tdmi_sel(near, 0.0, (double)part.k));
  const double s = tdm_sqrt(-tdm_log(4.0 * tdmi_sel(far, low, 0x1p-56)));
  double y = tdmi_sel(far, s - tdmi_erfinv_gap(s), x * tdmi_erfinv_ratio(w));
  y = -0x1.6a09e667f3bcdp0 * tdmi_sel(low == 0.0, tdmi_inf(), y);
  y = tdmi_sel(p > 0.5, -y, y);
  return tdmi_sel((p >= 0.0) & (p <= 1.0), y, tdmi_nan());
}

// ---- f64: modified Bessel functions -----------------------------------------------------------

/// exp(-|x|) I0(x). Within 4 ulp.
TDM_FN double tdm_i0e(double x) {
  const double a = tdmi_abs(x);
  const int big = a > 8.0;
  const double n = tdmi_sel(big, 8.0, a), f = tdmi_sel(big, a, 8.0);
  const double z = 0.25 * n * n, t = 16.0 / f - 1.0;
  double p = 0x1.e01e79f4df00dp-97;
  p = TDMI_H3(p, z, 0x1.42480779cbf93p-89, 0x1.6fbae4b6a68e3p-81, 0x1.3d94ae6c4473fp-73);
  p = TDMI_H3(p, z, 0x1.e738b09f4e232p-66, 0x1.4196b26263409p-58, 0x1.69caaf017e1b2p-51);
  p = TDMI_H3(p, z, 0x1.5601876126642p-44, 0x1.0b3132940d893p-37, 0x1.522a43f5b69afp-31);
  p = TDMI_H3(p, z, 0x1.522a43f65b53ep-25, 0x1.02e85c089882cp-19, 0x1.23456789abdp-14);
  p = TDMI_H3(p, z, 0x1.c71c71c71c71bp-10, 0x1.c71c71c71c71cp-6, 0x1p-2);
  p = TDMI_H2(p, z, 0x1p0, 0x1p0);
  double q = 0x1.89b0de605f3f8p-34;
  q = TDMI_H3(q, t, 0x1.5b5b11ecf0096p-35, -0x1.60cbe47dafaeap-31, -0x1.463e9ea378babp-32);
  q = TDMI_H3(q, t, 0x1.274937430f4b3p-29, 0x1.399fa221f8c02p-30, -0x1.363f1e6bbeb29p-28);
  q = TDMI_H3(q, t, -0x1.b4dbb574409a4p-29, 0x1.bf923715fb97ap-28, 0x1.fa6219f219058p-28);
  q = TDMI_H3(q, t, -0x1.589f83b3e1382p-28, -0x1.ca69ca5295399p-27, -0x1.d72de878aec4p-28);
  q = TDMI_H3(q, t, 0x1.0308f8d9e6ffdp-27, 0x1.728770787216ap-26, 0x1.51d36330be614p-25);
  q = TDMI_H3(q, t, 0x1.7d0ce28e7017ap-24, 0x1.3f499b6351175p-22, 0x1.8e513c540a037p-20);
  q = TDMI_H3(q, t, 0x1.75e5ee752b9ep-17, 0x1.1daa72b5ce881p-13, 0x1.b87969bb93aebp-9);
  q = TDMI_H1(q, t, 0x1.9bd428ad249a5p-2);
  return tdmi_sel(big, q / tdm_sqrt(f), p * tdm_exp(-n));
}

/// exp(-|x|) I1(x). Within 4 ulp.
TDM_FN double tdm_i1e(double x) {
  const double a = tdmi_abs(x);
  const int big = a > 8.0;
  const double n = tdmi_sel(big, 8.0, a), f = tdmi_sel(big, a, 8.0);
  const double z = 0.25 * n * n, t = 16.0 / f - 1.0;
  double p = 0x1.a4cba49202a57p-101;
  p = TDMI_H3(p, z, 0x1.3249f65701a8cp-93, 0x1.6f100e6548d67p-85, 0x1.52d7cd6d9b834p-77);
  p = TDMI_H3(p, z, 0x1.166773782116bp-69, 0x1.8bcd6e89e50b9p-62, 0x1.e2638dabe056ap-55);
  p = TDMI_H3(p, z, 0x1.f17696cdd0f43p-48, 0x1.ab81ea80dd2ecp-41, 0x1.2c9758da9eef6p-34);
  p = TDMI_H3(p, z, 0x1.522a43f65872dp-28, 0x1.27e4fb7789d6p-22, 0x1.845c8a0ce513fp-17);
  p = TDMI_H3(p, z, 0x1.6c16c16c16c16p-12, 0x1.c71c71c71c71cp-8, 0x1.5555555555555p-4);
  p = TDMI_H2(p, z, 0x1p-1, 0x1p0);
  double q = -0x1.9caa0f1cc3a61p-34;
  q = TDMI_H3(q, t, -0x1.433b298b05dbcp-35, 0x1.71bd28ae20275p-31, 0x1.330202c1dbcebp-32);
  q = TDMI_H3(q, t, -0x1.35d7f9ade701cp-29, -0x1.2cb9db07e6e92p-30, 0x1.46ef5622eafcp-28);
  q = TDMI_H3(q, t, 0x1.ae0f8666a4829p-29, -0x1.dd223e2fabad7p-28, -0x1.00df2bf9dc95fp-27);
  q = TDMI_H3(q, t, 0x1.7f04a6ec1cbfap-28, 0x1.e01eeec086bcp-27, 0x1.d67756b6e492p-28);
  q = TDMI_H3(q, t, -0x1.2116275bd6982p-27, -0x1.91e649042bf21p-26, -0x1.727e84336e8bep-25);
  q = TDMI_H3(q, t, -0x1.ad8b142309a8ep-24, -0x1.7613744a291e8p-22, -0x1.ec8e125a5315bp-20);
  q = TDMI_H3(q, t, -0x1.f89c23094e93dp-17, -0x1.cbc54df1d4a68p-13, -0x1.3f796198ee60ap-7);
  q = TDMI_H1(q, t, 0x1.8ebe783a8403p-2);
  return tdmi_sign(tdmi_sel(big, q / tdm_sqrt(f), 0.5 * n * p * tdm_exp(-n)), x);
}

// ---- f64: zeta and incomplete gamma functions; far from any loop, so they may branch ------------

// Sum of (q + k)^-s over k >= 0 for s > 1, q > 0: ten terms, then Euler and Maclaurin's formula.
TDM_FAR double tdmi_zeta_positive(double s, double q) {
  const double a = q + 10.0, last = tdm_pow(a, -s);
  // B(2k) / (2k)!
  TDM_TABLE double c[10] = {1.0 / 12.0,
                            -1.0 / 720.0,
                            1.0 / 30240.0,
                            -1.0 / 1209600.0,
                            1.0 / 47900160.0,
                            -691.0 / 1307674368000.0,
                            1.0 / 74724249600.0,
                            -3617.0 / 10670622842880000.0,
                            43867.0 / 5109094217170944000.0,
                            -174611.0 / 802857662698291200000.0};
  double sum = 0.0, factor = last * s / a;
  int k;
  if (last != 0.0) {
    for (k = 0; k < 10; ++k) {
      sum = sum + c[k] * factor;
      factor = factor * (s + (2 * k + 1)) * (s + (2 * k + 2)) / (a * a);
    }
    sum = sum + last * (a / (s - 1.0) + 0.5);
  }
  for (k = 9; k >= 0; --k) sum = sum + tdm_pow(q + k, -s);
  return sum;
}

/// Hurwitz' zeta function, the sum of (q + k)^-s over k >= 0. inf at s = 1 and at q = 0, -1, ...;
/// NaN for s < 1, and for q < 0 unless s is whole. For q > 0 within max(8, s) ulp.
TDM_FAR double tdm_zeta(double s, double q) {
  const double whole = tdmi_abs(q) < 0x1p52 ? q - tdmi_off_integer(q) : q;
  const double floor = whole > q ? whole - 1.0 : whole;
  double near, high;
  if (s != s || q != q) return tdmi_nan();
  if (s == 1.0) return tdmi_inf();
  if (s < 1.0) return tdmi_nan();
  if (q == tdmi_inf()) return 0.0;
  if (s == tdmi_inf()) return q > 0.0 ? tdm_pow(q, -s) : tdmi_nan();
  if (q > 0.0) return tdmi_zeta_positive(s, q);
  if (floor == q) return tdmi_inf();
  if (tdmi_off_integer(s) != 0.0) return tdmi_nan();
  // Below zero lie near, near + 1, ... -q after the sign; above it q - floor, ...
  near = (floor + 1.0) - q;
  high = tdmi_zeta_positive(s, near) - tdmi_zeta_positive(s, 1.0 - q);
  return tdmi_zeta_positive(s, q - floor) + (tdmi_off_integer(0.5 * s) == 0.0 ? high : -high);
}

// v - log(1 + v).
TDM_FN double tdmi_log1p_gap(double v) {
  double p = 1.0 / 17.0;
  if (!(tdmi_abs(v) < 0.1)) return v - tdm_log1p(v);
  p = TDMI_H4(p, -v, 1.0 / 16.0, 1.0 / 15.0, 1.0 / 14.0, 1.0 / 13.0);
  p = TDMI_H4(p, -v, 1.0 / 12.0, 1.0 / 11.0, 1.0 / 10.0, 1.0 / 9.0);
  p = TDMI_H4(p, -v, 1.0 / 8.0, 1.0 / 7.0, 1.0 / 6.0, 1.0 / 5.0);
  p = TDMI_H3(p, -v, 1.0 / 4.0, 1.0 / 3.0, 1.0 / 2.0);
  return v * v * p;
}

// x^a exp(-x) / gamma(a + 1) for a, x > 0.
TDM_FAR double tdmi_gamma_weight(double a, double x) {
  const double off = (x - a) / a, r = 1.0 / a, z = r * r;
  double gap, stirling;
  if (a < 10.0) return tdm_pow(x, a) * tdm_exp(-x) / tdm_exp(tdm_lgamma(a + 1.0));
  gap = off > -0.5 ? a * tdmi_log1p_gap(off) : (x - a) - a * tdm_log(x / a);
  stirling = TDMI_H4(-691.0 / 360360.0, z, 1.0 / 1188.0, -1.0 / 1680.0, 1.0 / 1260.0, -1.0 / 360.0);
  stirling = r * TDMI_H1(stirling, z, 1.0 / 12.0);
  return tdm_exp(-(gap + stirling)) / tdm_sqrt(0x1.921fb54442d18p2 * a);
}

// The integral of (t / x)^(a - 1) exp(x - t) dt / x from x away from a > 100, by Gauss' rule of 32
// points up to where the integrand is below exp(-40).
TDM_FAR double tdmi_gamma_tail(double a, double x, int up) {
  TDM_TABLE double node[16] = {
      0x1.8bbc8488cc499p-5, 0x1.27e0ea717f237p-3, 0x1.ea0f7e19c094bp-3, 0x1.53d55ce57bdf6p-2,
      0x1.af76b57c6f8f1p-2, 0x1.038862866b29dp-1, 0x1.2ce9146962ca4p-1, 0x1.537a89c487f8ap-1,
      0x1.76e0931d693bap-1, 0x1.96c69481c4bc5p-1, 0x1.b2e04fd686a13p-1, 0x1.caea9b4574cb9p-1,
      0x1.deac0259f7f42p-1, 0x1.edf5518053baap-1, 0x1.f8a212714bcdcp-1, 0x1.fe995e70409b6p-1};
  TDM_TABLE double weight[16] = {
      0x1.8b6d9eaec77adp-4, 0x1.87bc776f8c6d7p-4, 0x1.8062fc0f6fef9p-4, 0x1.7572bdb3f6e51p-4,
      0x1.6705e18e13ed1p-4, 0x1.553ee25ebebc6p-4, 0x1.40483e126fd14p-4, 0x1.2854103b35e0cp-4,
      0x1.0d9b9a62cac1p-4,  0x1.e0bd76c924981p-5, 0x1.a1c6ae961fbfap-5, 0x1.5ee963a335495p-5,
      0x1.18c5800a355d9p-5, 0x1.a0060a8531ffap-6, 0x1.0aa3c248696c9p-6, 0x1.cbf8bc743cc5cp-8};
  const double b = x - (a - 1.0), k = 40.0 / (a - 1.0), away = up ? b : -b;
  double end = up ? k + tdm_sqrt(k * k + (k + k)) : tdm_sqrt(k + k), sum = 0.0;
  int i, side;
  if (away * end > 40.0) end = 40.0 / away;
  for (i = 0; i < 16; ++i) {
    for (side = -1; side <= 1; side += 2) {
      const double v = 0.5 * end * (1.0 + side * node[i]) * (up ? 1.0 : -1.0);
      sum = sum + weight[i] * tdm_exp(-(b * v) - (a - 1.0) * tdmi_log1p_gap(v));
    }
  }
  return 0.5 * end * sum;
}

// Upper tail for a <= 1, x <= 1.1, where 1 - P would lose digits.
TDM_FAR double tdmi_gamma_upper_small(double a, double x) {
  const double e = a * tdm_log(x) - a * (a - 1.0) * tdmi_lgamma_core(a + 1.0);
  double term = 1.0, sum = 0.0;
  int n;
  for (n = 1; n < 30; ++n) {
    term = term * -x / n;
    sum = sum + term / (a + n);
  }
  return -tdm_expm1(e) - tdm_exp(e) * a * sum;
}

// The lower (0) or upper (1) part of the gamma distribution's mass.
TDM_FAR double tdmi_gamma_part(double a, double x, int upper) {
  const double none = upper ? 1.0 : 0.0, all = 1.0 - none;
  double y;
  int n, up;
  if (!(a >= 0.0) || !(x >= 0.0)) return tdmi_nan();
  if (a == tdmi_inf()) return x == tdmi_inf() ? tdmi_nan() : none;
  if (a == 0.0) return x > 0.0 ? all : tdmi_nan();
  if (x == 0.0) return none;
  if (x == tdmi_inf()) return all;
  if (upper && a <= 1.0 && x <= 1.1) return tdmi_gamma_upper_small(a, x);
  up = x >= a && (x > 1.1 || a > 100.0);
  if (a > 100.0) {
    y = tdmi_gamma_weight(a, x) * a * tdmi_gamma_tail(a, x, up);
  } else if (!up) {  // power series
    double term = 1.0, sum = 1.0;
    for (n = 1; n < 1000 && term > sum * 0x1p-54; ++n) {
      term = term * (x / (a + n));
      sum = sum + term;
    }
    y = tdmi_gamma_weight(a, x) * sum;
  } else {  // continued fraction, after Lentz
    double b = x + 1.0 - a, c = 0x1p1000, d = 1.0 / b, h = d, step = 0.0;
    for (n = 1; n < 1000 && tdmi_abs(step - 1.0) > 0x1p-53; ++n) {
      const double t = -n * (n - a);
      b = b + 2.0;
      d = 1.0 / (b + t * d);
      c = b + t / c;
      step = c * d;
      h = h * step;
    }
    y = tdmi_gamma_weight(a, x) * a * h;
  }
  y = y > 1.0 ? 1.0 : y;
  return up == upper ? y : 1.0 - y;
}

/// Lower regularised incomplete gamma function P(a, x); NaN for a < 0 or x < 0. Relative error at
/// most 1e-13 up to a = 1e4, growing with the root of a.
TDM_FN double tdm_gammainc(double a, double x) { return tdmi_gamma_part(a, x, 0); }
/// Upper one, Q = 1 - P, without its rounding.
TDM_FN double tdm_gammaincc(double a, double x) { return tdmi_gamma_part(a, x, 1); }

// ---- f32 functions in f64 without second words: 2^-31 and one rounding ------------------------

// exp(a^2) erfc(a) for a >= 0; times 1 + 2a it is a polynomial in (a - 3) / (a + 3).
TDM_FN double tdmi_short_erfcx(double a) {
  const double one = 1.0 / ((a + 3.0) * (1.0 + (a + a)));  // one division for both quotients
  const double t = (a - 3.0) * (1.0 + (a + a)) * one, z = t * t, z2 = z * z;
  double p = 0x1.0420f6b11411bp-18, p1 = -0x1.70a45fef5e612p-17, p2 = -0x1.b4e9f4528cbc5p-14,
         p3 = 0x1.da1532b22fe9dp-14;
  p = TDMI_H3(p, z2, 0x1.eef789ccc7ff8p-10, -0x1.e88b86f1fa6f3p-4, 0x1.40c522d7d47b6p0);
  p1 = TDMI_H3(p1, z2, -0x1.944a4096fa1bfp-11, 0x1.17cae8c6dcea5p-4, -0x1.15c0847f2f469p-3);
  p2 = TDMI_H2(p2, z2, -0x1.857413306be27p-6, -0x1.85a15b8ddb9b7p-5);
  p3 = TDMI_H2(p3, z2, 0x1.4b1422337a9d3p-9, 0x1.09835dce96e28p-3);
  p = (p + t * p1) + z * (p2 + t * p3);
  return p * ((a + 3.0) * one);
}

TDM_FN float tdm_erfcf(float x) {
  const double d = (double)x, a = tdmi_abs(d), c = tdmi_sel(a > 10.5, 10.5, a);
  const double y = tdmi_short_exp_near(-c * c) * tdmi_short_erfcx(c);
  return (float)tdmi_sel(d < 0.0, 2.0 - y, y);
}

TDM_FN float tdm_erfcxf(float x) {
  const double a = tdmi_abs((double)x), c = tdmi_sel(a > 0x1p160, 0x1p160, a);
  const double grown = tdmi_short_exp(a * a), y = tdmi_short_erfcx(c);
  return (float)tdmi_sel(x < 0.0f, (grown + grown) - y, y);
}

// atan(q) for 0 <= q <= 1.
TDM_FN double tdmi_atan_below_one(double q) {
  const double z = q * q;
  const double w = z * z;
  double p = -0x1.eae3fce3e0f88p-11, p1 = 0x1.96cc73386f136p-8;
  p = TDMI_H3(p, w, -0x1.3b92d497779dep-6, -0x1.d7eaf8f9235bfp-5, -0x1.72251c83737bbp-4);
  p = TDMI_H2(p, w, -0x1.249035356f79ap-3, -0x1.5555554e74b35p-2);
  p1 = TDMI_H2(p1, w, 0x1.39fa7ae128adep-5, 0x1.2fd217ccc640ep-4);
  p1 = TDMI_H2(p1, w, 0x1.c6d94a4e39294p-4, 0x1.99998c8c70e06p-3);
  p = p + z * p1;
  return q + q * (z * p);
}

TDM_FN float tdm_atanf(float x) {
  const double a = tdmi_abs((double)x);
  const double r = tdmi_atan_below_one(tdmi_sel(a > 1.0, 1.0 / a, a));
  return tdmi_signf((float)tdmi_sel(a > 1.0, 0x1.921fb54442d18p0 - r, r), x);
}

TDM_FN float tdm_atan2f(float y, float x) {
  const double a = tdmi_abs((double)y), b = tdmi_abs((double)x);
  const double low = tdmi_sel(a > b, b, a), high = tdmi_sel(a > b, a, b);
  double r = tdmi_sel(low == high, 1.0, low / high);
  r = tdmi_atan_below_one(tdmi_sel(low == 0.0, 0.0, r));
  r = tdmi_sel(a > b, 0x1.921fb54442d18p0 - r, r);
  r = tdmi_sel((int)(tdmi_bitsf(x) >> 31), 0x1.921fb54442d18p1 - r, r);
  return tdmi_self((x != x) | (y != y), x + y, tdmi_signf((float)r, y));
}

// r = asin(s) for s = |x|, or where that is above 1/2 for s = sqrt((1 - |x|) / 2).
TDM_FN double tdmi_short_asin(double a) {
  const int mid = a < 0.5;
  const double z = tdmi_sel(mid, a * a, 0.5 * (1.0 - a)), w = z * z;
  const double s = tdmi_sel(mid, a, tdm_sqrt(z));
  double p = 0x1.1bd7a9c001251p-5, p1 = 0x1.ec0244b20d70ap-8;
  p = TDMI_H3(p, w, 0x1.932267bd9a055p-6, 0x1.6ddac4977c078p-5, 0x1.55555605edf4bp-3);
  p1 = TDMI_H2(p1, w, 0x1.ed5ca43b9aaa5p-6, 0x1.3332a9f022281p-4);
  p = p + z * p1;
  return s + s * (z * p);
}

TDM_FN float tdm_asinf(float x) {
  const double a = tdmi_abs((double)x), r = tdmi_short_asin(a);
  return tdmi_signf((float)tdmi_sel(a < 0.5, r, 0x1.921fb54442d18p0 - (r + r)), x);
}

TDM_FN float tdm_acosf(float x) {
  const double a = tdmi_abs((double)x), r = tdmi_short_asin(a);
  const double y = tdmi_sel(a < 0.5, 0x1.921fb54442d18p0 - r, r + r);
  return (float)tdmi_sel(x < 0.0f, 0x1.921fb54442d18p1 - y, y);
}

// Below 1/256 its series, else half the logarithm of (1 + a) / (1 - a).
TDM_FN float tdm_atanhf(float x) {
  const double a = tdmi_abs((double)x), z = a * a;
  double y = 0.5 * tdmi_short_log((1.0 + a) / tdmi_sel(a < 1.0, 1.0 - a, 1.0));
  y = tdmi_sel(a < 0x1p-8, a + a * (z * TDMI_H1(1.0 / 5.0, z, 1.0 / 3.0)), y);
  y = tdmi_sel(a < 1.0, y, tdmi_sel(a == 1.0, tdmi_inf(), tdmi_nan()));
  return tdmi_signf((float)y, x);
}

// Below 1 its series, else (e^a - e^-a) / 2.
TDM_FN float tdm_sinhf(float x) {
  const double a = tdmi_abs((double)x), z = a * a, w = z * z;
  const double e = tdmi_short_exp(a);
  double p = 0x1.9ffe925d7c92dp-13, p1 = 0x1.7a15b9eabda16p-19;
  p = TDMI_H1(p, w, 0x1.5555551b3d774p-3);
  p1 = TDMI_H1(p1, w, 0x1.111134fb58772p-7);
  p = p + z * p1;
  return tdmi_signf((float)tdmi_sel(a < 1.0, a + a * (z * p), 0.5 * (e - 1.0 / e)), x);
}

TDM_FN float tdm_coshf(float x) {
  const double e = tdmi_short_exp(tdmi_abs((double)x));
  return (float)(0.5 * (e + 1.0 / e));
}

TDM_FN float tdm_asinhf(float x) {
  const double a = tdmi_abs((double)x), z = a * a;
  double y = tdmi_short_log(a + tdm_sqrt(z + 1.0));
  y = tdmi_sel(a < 0x1p-10, a - a * (z * (1.0 / 6.0)), y);
  return tdmi_signf((float)tdmi_sel(a < tdmi_inf(), y, a), x);
}

TDM_FN float tdm_acoshf(float x) {
  const double a = (double)x;
  const double y = tdmi_short_log(a + tdm_sqrt((a - 1.0) * (a + 1.0)));
  return (float)tdmi_sel(a < 1.0, tdmi_nan(), tdmi_sel(a < tdmi_inf(), y, a));
}

// erfinv(x) / x at w = -log(1 - x^2), as tdmi_erfinv_ratio: for w <= 6.25, <= 16 and up to 104.
TDM_FN double tdmi_short_erfinv_near(double w) {
  const double t = w - 3.125;
  const double z = t * t;
  double p = -0x1.cca464cb0b4d1p-37, p1 = 0x1.74ee02bfc05c2p-38;
  p = TDMI_H3(p, z, 0x1.2115e4b32baccp-30, -0x1.f4676a79f1248p-26, -0x1.6e67d3deeb445p-20);
  p = TDMI_H3(p, z, 0x1.879b5aa9d09d8p-13, -0x1.8b6c2cacf6c42p-8, 0x1.a755e7c8a3a6bp0);
  p1 = TDMI_H3(p1, z, -0x1.45e36f8857ecdp-28, 0x1.ca5cb690f8753p-22, -0x1.d220d523ff5dcp-17);
  p1 = TDMI_H2(p1, z, -0x1.8455f84bfc7acp-11, 0x1.ebd80d1f32ffp-3);
  p = p + t * p1;
  return p;
}
TDM_FN double tdmi_short_erfinv_far(double root) {
  const double s = root - 3.25;
  const double z = s * s;
  double q = -0x1.4fc1c705e4e02p-15, q1 = 0x1.55732d38621fep-14;
  q = TDMI_H3(q, z, 0x1.3da27ae7835bdp-16, 0x1.f49d68f88d9efp-11, 0x1.4687dcc32ab43p-9);
  q = TDMI_H2(q, z, 0x1.5ffd2a4b392c7p-8, 0x1.8abcc380aa4d3p1);
  q1 = TDMI_H2(q1, z, -0x1.7ac7a602a3cecp-12, -0x1.ba365c75ba8fdp-10);
  q1 = TDMI_H2(q1, z, -0x1.ebb1ef8f515f5p-9, 0x1.0158a6e49d766p0);
  q = q + s * q1;
  return q;
}
TDM_FN double tdmi_short_erfinv_tail(double root) {
  const double v = root - 7.1;
  const double z = v * v;
  double r = 0x1.1ba43a3c83741p-36, r1 = -0x1.e22db60d43099p-35;
  r = TDMI_H3(r, z, -0x1.12e016791298p-33, 0x1.62448ba9731bap-27, 0x1.1e04dbea730bcp-22);
  r = TDMI_H3(r, z, 0x1.64c108bcc0c97p-18, -0x1.0b9e476971505p-11, 0x1.be126acdb6d75p2);
  r1 = TDMI_H3(r1, z, -0x1.77fdf507b32ffp-31, -0x1.b104affcad2f4p-25, -0x1.80acbd331cdd1p-20);
  r1 = TDMI_H2(r1, z, 0x1.1e919688eb1f3p-17, 0x1.022c9e0518b1ap0);
  r = r + v * r1;
  return r;
}

// w for |x| < 1, in f32: its logarithm may use -x^2 itself below 1/2.
TDM_FN float tdmi_erfinvf_w(float a) {
  const float square = a * a;
  const tdm_u32 v = tdmi_bitsf((1.0f - a) * (1.0f + a)) - 0x3f3504f3u;
  const float fu = tdmi_float((v & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  const float f = tdmi_self(a < 0.5f, -square, fu), z = f * f;
  float p = 0x1.055c6cp-3f, p1 = -0x1.38c2dep-4f;
  p = TDMI_H3(p, z, 0x1.22d98ap-3f, 0x1.99a018p-3f, 0x1.555554p-2f);
  p1 = TDMI_H3(p1, z, -0x1.0d827p-3f, -0x1.547292p-3f, -0x1.000226p-2f);
  p = p + f * p1;
  return (0.5f * z - z * f * p) - f - (float)((int)v >> 23) * 0x1.62e43p-1f;
}

// The ratio's polynomial without its constant 0x1.10d2fb4c2dfep0 for w < 6.25.
TDM_FN float tdmi_erfinvf_near(float w) {
  const float t = w - 0.75f, t2 = t * t;
  float p = -0x1.53eca254f6c84p-26f, p1 = 0x1.5ea1a9b346c94p-31f;
  p = TDMI_H2(p, t2, -0x1.22295b87b0f8p-20f, 0x1.6ff2a7d6d0c6dp-15f);
  p = TDMI_H2(p, t2, -0x1.414b41c82e8c9p-9f, 0x1.f64901e5c6c9ap-3f);
  p1 = TDMI_H2(p1, t2, 0x1.fc96cf697de7bp-23f, -0x1.7ab853afa7d2cp-19f);
  p1 = TDMI_H2(p1, t2, 0x1.95e31d32c2fd1p-15f, 0x1.8d70011b2da07p-8f);
  p = p + t * p1;
  return t * p;
}

// x times the sum of a large number, a small one and its rounding, v.
TDM_FN float tdmi_erfinvf_sum(float x, float large, float small, float v) {
  const float rest = v + small, sum = large + rest;
  return tdmi_signf(x * sum + x * ((large - sum) + rest), x);
}

/// erfinv for |x| <= TDM_ERFINV_NEAR; the bits of tdm_erfinvf.
#define TDM_ERFINV_NEAR 0.999f
TDM_FN float tdm_erfinvf_near(float x) {
  const float v = tdmi_erfinvf_near(tdmi_erfinvf_w(tdmi_absf(x)));
  return tdmi_erfinvf_sum(x, 0x1.10d2fcp0f, -0x1.67a404p-25f, v);
}

// w is below 16.7 for every number but 1.
TDM_FN float tdm_erfinvf(float x) {
  const float a = tdmi_absf(x), w = tdmi_erfinvf_w(a);
  const int near = w < 6.25f;
  const float s = tdm_sqrtf(tdmi_self(near, 6.25f, w)) - 3.25f, s2 = s * s;
  float v = tdmi_erfinvf_near(tdmi_self(near, w, 6.25f));
  float q = 0x1.2e93308ae518cp-14f, q1 = -0x1.5dd3f2498505bp-15f;
  q = TDMI_H2(q, s2, -0x1.6f8d3f47bd033p-12f, -0x1.bb4021231db6p-10f);
  q = TDMI_H2(q, s2, -0x1.eba0e9ff3c011p-9f, 0x1.0158a6a262dc8p0f);
  q1 = TDMI_H3(q1, s2, 0x1.02cdfc2fb66f2p-10f, 0x1.4598b74daf6e6p-9f, 0x1.60066d0813a7bp-8f);
  q = q + s * q1;
  v = tdmi_erfinvf_sum(x, tdmi_self(near, 0x1.10d2fcp0f, 0x1.8abcc4p1f),
                       tdmi_self(near, -0x1.67a404p-25f, -0x1.1c2506p-24f),
                       tdmi_self(near, v, s * q));
  v = tdmi_self(a < 1.0f, v, x * tdmi_inff());
  return tdmi_self(a <= 1.0f, v, tdmi_nanf());
}

// -sqrt(2) erfinv(1 - 2 low), from erfinv(x) / x; the other sign for p above 1/2.
TDM_FN double tdmi_short_ndtri_sum(double p, double low, double ratio) {
  const double y = -0x1.6a09e667f3bcdp0 * (1.0 - (low + low)) * ratio;
  return tdmi_sel(p > 0.5, -y, y);
}

/// ndtri for p from TDM_NDTRI_NEAR to 1 - TDM_NDTRI_NEAR; the bits of tdm_ndtrif.
#define TDM_NDTRI_NEAR 0.0005f
TDM_FN float tdm_ndtrif_near(float x) {
  const double p = (double)x, low = tdmi_sel(p > 0.5, 1.0 - p, p);
  const double w = -tdmi_short_log(4.0 * low * (1.0 - low));
  return (float)tdmi_short_ndtri_sum(p, low, tdmi_short_erfinv_near(w));
}

TDM_FN float tdm_ndtrif(float x) {
  const double p = (double)x, low = tdmi_sel(p > 0.5, 1.0 - p, p);
  const double w = -tdmi_short_log(4.0 * low * (1.0 - low));
  const int near = w < 6.25;
  const double root = tdm_sqrt(tdmi_sel(near, 6.25, w));
  double y = tdmi_sel(root < 4.0, tdmi_short_erfinv_far(root), tdmi_short_erfinv_tail(root));
  y = tdmi_sel(near, tdmi_short_erfinv_near(tdmi_sel(near, w, 6.25)), y);
  y = tdmi_short_ndtri_sum(p, low, tdmi_sel(low == 0.0, tdmi_inf(), y));
  return (float)tdmi_sel((p >= 0.0) & (p <= 1.0), y, tdmi_nan());
}

// lgamma(y) / ((y - 1) (y - 2)) for 1 <= y <= 2.5.
TDM_FN double tdmi_short_lgamma_core(double y) {
  const double t = y - 1.75;
  const double z = t * t;
  double p = 0x1.413d44280bda5p-14, p1 = -0x1.68db250a7d19ep-15;
  p = TDMI_H3(p, z, 0x1.ef825b92bc6d3p-14, 0x1.242a4e423e55fp-11, 0x1.1255c246fdcfcp-9);
  p = TDMI_H3(p, z, 0x1.1f9790c9d241ep-7, 0x1.6cb6206e015dcp-5, 0x1.ccf151e17b0bdp-2);
  p1 = TDMI_H3(p1, z, -0x1.eb6309a6f6563p-15, -0x1.328302b2edcbep-12, -0x1.15729351d35p-10);
  p1 = TDMI_H3(p1, z, -0x1.14fc3ce0517bfp-8, -0x1.382e08315f109p-6, -0x1.e965863f7ae94p-4);
  p = p + t * p1;
  return p;
}

// lgamma for x > 0, Stirling's series from 4 on.
TDM_FN double tdmi_short_lgamma_positive(double x) {
  const int low = x < 1.0, big = x >= 4.0;
  double y = tdmi_sel(low, x + 1.0, tdmi_sel(big, 2.0, x));
  double prod = 1.0, y1, y2, logs, core, inv, z, series;
  int i;
  for (i = 0; i < 2; ++i) {
    const int over = y > 2.5;
    y = tdmi_sel(over, y - 1.0, y);
    prod = tdmi_sel(over, prod * y, prod);
  }
  y1 = tdmi_sel(low, x, y - 1.0);
  y2 = tdmi_sel(low, x - 1.0, y - 2.0);
  logs = tdmi_short_log(tdmi_sel(low | big, x, prod));
  core = y1 * y2 * tdmi_short_lgamma_core(y) + tdmi_sel(low, -logs, logs);
  inv = 1.0 / tdmi_sel(big, x, 4.0);
  z = inv * inv;
  series = TDMI_H3(-691.0 / 360360.0, z, 1.0 / 1188.0, -1.0 / 1680.0, 1.0 / 1260.0);
  series = TDMI_H2(series, z, -1.0 / 360.0, 1.0 / 12.0);
  return tdmi_sel(big, (x - 0.5) * (logs - 1.0) + (0x1.acfe390c97d6ap-2 + inv * series), core);
}

// sin(pi d) for |d| <= 1/2.
TDM_FN double tdmi_short_sinpi(double d) {
  const double z = d * d, w = z * z;
  double p = -0x1.e29b1389f0214p-8, p1 = 0x1.d52b9e932e435p-12;
  p = TDMI_H2(p, w, -0x1.32d2c9bdb8f7ap-1, -0x1.4abbce624e0e3p2);
  p1 = TDMI_H2(p1, w, 0x1.50770f3ec6145p-4, 0x1.466bc66f4acd3p1);
  p = p + z * p1;
  return 0x1.921fb54442d18p1 * d + d * (z * p);
}

/// lgamma for x > 0; the bits of tdm_lgammaf.
TDM_FN float tdm_lgammaf_near(float x) {
  const double y = tdmi_short_lgamma_positive((double)x);
  return (float)tdmi_sel((double)x == tdmi_inf(), tdmi_inf(), y);
}

// At x < 0 within 2 ulp of the largest of 1, lgamma(|x|) and the result.
TDM_FN float tdm_lgammaf(float v) {
  const double x = (double)v, a = tdmi_abs(x);
  const double plus = tdmi_short_lgamma_positive(a);
  const double s = tdmi_abs(tdmi_short_sinpi(tdmi_off_integer(a)));
  // log(pi / (a sin(pi a))) - lgamma(a)
  double y = -(tdmi_short_log(a * s * 0x1.45f306dc9c883p-2) + plus);
  y = tdmi_sel(x < 0.0, tdmi_sel(s == 0.0, tdmi_inf(), y), plus);
  y = tdmi_sel((a == 0.0) | (a == tdmi_inf()), tdmi_inf(), y);
  return (float)tdmi_sel(x != x, x, y);
}

// digamma for a > 0, its asymptotic series from 5 on.
TDM_FN double tdmi_short_digamma_positive(double a) {
  const int low = a < 1.0, big = a >= 5.0;
  const double c = tdmi_sel(big, a, 5.0), inv = 1.0 / c, z = inv * inv;
  double y = tdmi_sel(low, a + 1.0, tdmi_sel(big, 2.0, a));
  double n = tdmi_sel(low, -1.0, 0.0), m = tdmi_sel(low, a, 1.0);
  double t, w, series, r;
  int i;
  for (i = 0; i < 3; ++i) {  // n / m = sum of 1 / y
    const int over = y > 2.5;
    y = tdmi_sel(over, y - 1.0, y);
    n = tdmi_sel(over, n * y + m, n);
    m = tdmi_sel(over, m * y, m);
  }
  t = y - 1.75;
  w = t * t;
  double p = 0x1.fc80aafc359c4p-14, p1 = -0x1.aebdb3e573fe6p-13;
  p = TDMI_H3(p, w, 0x1.23d362bd43d62p-14, 0x1.13a413cc6043dp-11, 0x1.798841ab9bceep-10);
  p = TDMI_H3(p, w, 0x1.2698079d64b37p-8, 0x1.ca4649e9ceccap-7, 0x1.6effb96b2a515p-5);
  p = TDMI_H2(p, w, 0x1.41c8309650b3dp-3, 0x1.b763ca6713c27p-1);
  p1 = TDMI_H3(p1, w, -0x1.1f9813ef01a2ep-13, -0x1.db7a5f84e9321p-11, -0x1.4c08e53564a67p-9);
  p1 = TDMI_H2(p1, w, -0x1.03580a46c991p-7, -0x1.97caddcd5d92p-6);
  p1 = TDMI_H2(p1, w, -0x1.510ab4fa4b5dap-4, -0x1.4e15b1705a60cp-2);
  p = p + t * p1;
  r = ((y - 0x1.762d86356be3fp0) - 0x1.b86a722197829p-54) * p + n / m;
  series = TDMI_H4(1.0 / 12.0, z, -691.0 / 32760.0, 1.0 / 132.0, -1.0 / 240.0, 1.0 / 252.0);
  series = TDMI_H2(series, z, -1.0 / 120.0, 1.0 / 12.0);
  r = tdmi_sel(big, tdmi_short_log(c) - (0.5 * inv + z * series), r);
  return tdmi_sel(a == tdmi_inf(), a, r);
}

/// digamma for x > 0; the bits of tdm_digammaf.
TDM_FN float tdm_digammaf_near(float x) { return (float)tdmi_short_digamma_positive((double)x); }

TDM_FN float tdm_digammaf(float v) {
  const double x = (double)v, off = tdmi_off_integer(x);
  const int neg = x < 0.0, whole = off == 0.0;
  const double a = tdmi_sel(neg, 1.0 - x, x), d = tdmi_sel(neg & (whole ^ 1), off, 0.5);
  const double cotangent = tdmi_short_sinpi(0.5 - tdmi_abs(d)) / tdmi_short_sinpi(d);
  double r = tdmi_short_digamma_positive(a);
  r = r - tdmi_sel(neg, 0x1.921fb54442d18p1 * cotangent, 0.0);
  r = tdmi_sel(neg & whole, tdmi_nan(), r);
  r = tdmi_sel(x == 0.0, tdmi_sign(tdmi_inf(), -x), r);
  return (float)tdmi_sel(x != x, x, r);
}

// exp(-n) I0(n) for 0 <= n <= 8.
TDM_FN double tdmi_short_i0e_near(double n) {
  const double z = 0.25 * n * n, z2 = z * z;
  double p = 0x1.4053daf898ef1p-43, p1 = 0x1.6f562a311f3ebp-38;
  p = TDMI_H3(p, z2, 0x1.6acb561dde01ep-31, 0x1.035fecd84a04dp-19, 0x1.c71ef6abf550cp-10);
  p = TDMI_H2(p, z2, 0x1.000002522929ep-2, 0x1.0000000134561p0);
  p1 = TDMI_H2(p1, z2, 0x1.4dd94f70df17ap-25, 0x1.233579b517131p-14);
  p1 = TDMI_H2(p1, z2, 0x1.c71c39b7da25ep-6, 0x1.ffffffba1c92ap-1);
  p = p + z * p1;
  return p * tdmi_short_exp_near(-n);
}

/// exp(-|x|) I0(x) for |x| <= TDM_BESSEL_NEAR; the bits of tdm_i0ef.
#define TDM_BESSEL_NEAR 8.0f
TDM_FN float tdm_i0ef_near(float x) { return (float)tdmi_short_i0e_near(tdmi_abs((double)x)); }

TDM_FN float tdm_i0ef(float x) {
  const double a = tdmi_abs((double)x);
  const int big = a > 8.0;
  const double f = tdmi_sel(big, a, 8.0), t = 16.0 / f - 1.0, t2 = t * t;
  const double near = tdmi_short_i0e_near(tdmi_sel(big, 8.0, a));
  double q = 0x1.d2e586019b16cp-24, q1 = 0x1.11377d6f988d9p-25;
  q = TDMI_H3(q, t2, 0x1.8c3b74534ad85p-20, 0x1.1dab09fad45a1p-13, 0x1.9bd428acb103cp-2);
  q1 = TDMI_H3(q1, t2, 0x1.49a088196db7bp-22, 0x1.75cbd60e06fdep-17, 0x1.b8796bbedfb0ep-9);
  q = q + t * q1;
  return (float)tdmi_sel(big, q / tdm_sqrt(f), near);
}

// exp(-n) I1(n) for 0 <= n <= 8.
TDM_FN double tdmi_short_i1e_near(double n) {
  const double z = 0.25 * n * n, z2 = z * z;
  double p = 0x1.c2e2207698f8dp-47, p1 = 0x1.36bc879488ebbp-41;
  p = TDMI_H3(p, z2, 0x1.3e83d18aadd09p-34, 0x1.2845b56ad8b92p-22, 0x1.6c17f156dc41ap-12);
  p = TDMI_H2(p, z2, 0x1.555556b5cdb85p-4, 0x1.0000000041f2fp0);
  p1 = TDMI_H2(p1, z2, 0x1.4ede649085efp-28, 0x1.844ebb2d6be68p-17);
  p1 = TDMI_H2(p1, z2, 0x1.c71c5480ebae3p-8, 0x1.ffffffe7a7ee6p-2);
  p = p + z * p1;
  return 0.5 * n * p * tdmi_short_exp_near(-n);
}

/// exp(-|x|) I1(x) for |x| <= TDM_BESSEL_NEAR; the bits of tdm_i1ef.
TDM_FN float tdm_i1ef_near(float x) {
  return tdmi_signf((float)tdmi_short_i1e_near(tdmi_abs((double)x)), x);
}

TDM_FN float tdm_i1ef(float x) {
  const double a = tdmi_abs((double)x);
  const int big = a > 8.0;
  const double f = tdmi_sel(big, a, 8.0), t = 16.0 / f - 1.0, t2 = t * t;
  const double near = tdmi_short_i1e_near(tdmi_sel(big, 8.0, a));
  double q = -0x1.0747f2eab8769p-23, q1 = -0x1.3368afce112bcp-25;
  q = TDMI_H3(q, t2, -0x1.ea200b04499dap-20, -0x1.cbc6020e9777cp-13, 0x1.8ebe783b0f157p-2);
  q1 = TDMI_H3(q1, t2, -0x1.80c46117df2b4p-22, -0x1.f880a34b4f043p-17, -0x1.3f79622264d04p-7);
  q = q + t * q1;
  return tdmi_signf((float)tdmi_sel(big, q / tdm_sqrt(f), near), x);
}

// As tdmi_zeta_positive, with five terms and five of Euler and Maclaurin's formula: 2^-34.
TDM_FAR double tdmi_short_zeta_positive(double s, double q) {
  const double a = q + 5.0, r = 1.0 / a, z = r * r, last = tdmi_short_exp(-s * tdmi_short_log(a));
  double sum, term = last * s * r;
  int k;
  sum = last * (a / (s - 1.0) + 0.5) + term * (1.0 / 12.0);
  term = term * (s + 1.0) * (s + 2.0) * z;
  sum = sum - term * (1.0 / 720.0);
  term = term * (s + 3.0) * (s + 4.0) * z;
  sum = sum + term * (1.0 / 30240.0);
  term = term * (s + 5.0) * (s + 6.0) * z;
  sum = sum - term * (1.0 / 1209600.0);
  term = term * (s + 7.0) * (s + 8.0) * z;
  sum = sum + term * (1.0 / 47900160.0);
  for (k = 4; k >= 0; --k) sum = sum + tdmi_short_exp(-s * tdmi_short_log(q + k));
  return sum;
}

TDM_FN float tdm_zetaf(float s, float q) {
  // Above 200 every power is 0, 1 or infinite but that of a q very close to 1.
  if (s > 1.0f && s <= 200.0f && q > 0.0f && q < 0x1p100f)
    return (float)tdmi_short_zeta_positive((double)s, (double)q);
  if (s < 1.0f && q == q) return tdmi_nanf();
  return (float)tdm_zeta((double)s, (double)q);
}

// The lower (0) or upper (1) part of the gamma distribution's mass for 0 < a < 10, 0 < x < inf, as
// tdmi_gamma_part, by steps that a loop may take for many pairs side by side.

// x^a exp(-x) / gamma(a + 1).
TDM_FN double tdmi_short_gamma_weight(double a, double x) {
  return tdmi_short_exp(a * tdmi_short_log(x) - x - tdmi_short_lgamma_positive(a + 1.0));
}

// Which way it is computed: by the power series, by the continued fraction, or for the upper part
// of small a and x by a series of its own.
TDM_FN int tdmi_gamma_by_small(double a, double x, int upper) {
  return upper & (a <= 1.0) & (x <= 1.1);
}
TDM_FN int tdmi_gamma_by_series(double a, double x, int upper) {
  return ((x < a) | (x <= 1.1)) & (tdmi_gamma_by_small(a, x, upper) ^ 1);
}

// The power series: a term that is 0 ends it.
typedef struct {
  double term, sum;
} tdmi_series_t;
TDM_FN tdmi_series_t tdmi_gamma_series_step(tdmi_series_t s, double a, double x, double n) {
  const int more = s.term > s.sum * 0x1p-33;
  s.term = tdmi_sel(more, s.term * (x / (a + n)), 0.0);
  s.sum = s.sum + s.term;
  return s;
}

// The continued fraction by its recurrence: p / q, two steps of it apart, until `more` is 0.
typedef struct {
  double p0, q0, p, q, more;
} tdmi_fraction_t;
TDM_FN tdmi_fraction_t tdmi_gamma_fraction_start(double a, double x, int wanted) {
  tdmi_fraction_t f;
  f.p0 = 0.0;
  f.q0 = f.p = 1.0;
  f.q = x + 1.0 - a;
  f.more = tdmi_sel(wanted, 1.0, 0.0);
  return f;
}
TDM_FN tdmi_fraction_t tdmi_gamma_fraction_step(tdmi_fraction_t f, double a, double x, double n) {
  const double b = x + 1.0 - a + (n + n), t = n * (a - n);
  const double p = b * f.p + t * f.p0, q = b * f.q + t * f.q0;
  const double gap = tdmi_abs(p * f.q - f.p * q);
  const double scale = tdmi_sel(tdmi_abs(q) > 0x1p400, 0x1p-400, 1.0);
  const int on = f.more > 0.0;
  f.more = tdmi_sel(on & (gap > tdmi_abs(p * f.q) * 0x1p-32), 1.0, 0.0);
  f.p0 = tdmi_sel(on, f.p * scale, f.p0);
  f.q0 = tdmi_sel(on, f.q * scale, f.q0);
  f.p = tdmi_sel(on, p * scale, f.p);
  f.q = tdmi_sel(on, q * scale, f.q);
  return f;
}

TDM_FN double tdmi_gamma_small(double a, double x) {
  const double e = a * tdmi_short_log(x) - a * (a - 1.0) * tdmi_short_lgamma_core(a + 1.0);
  double term = 1.0, sum = 0.0;
  int n;
  for (n = 1; n < 14; ++n) {
    term = term * (-x * (1.0 / n));
    sum = sum + term / (a + n);
  }
  return -tdm_expm1(e) - tdmi_short_exp(e) * a * sum;
}

// From the sum of either series; the upper part by the fraction is not 1 minus anything.
TDM_FN double tdmi_gamma_end(double y, int series, int upper) {
  y = tdmi_sel(y > 1.0, 1.0, y);
  return tdmi_sel(series ^ upper, y, 1.0 - y);
}

TDM_FAR double tdmi_short_gamma_part(double a, double x, int upper) {
  const int series = tdmi_gamma_by_series(a, x, upper);
  tdmi_fraction_t f;
  int n;
  if (tdmi_gamma_by_small(a, x, upper)) return tdmi_gamma_small(a, x);
  if (series) {
    tdmi_series_t s;
    s.term = s.sum = 1.0;
    for (n = 1; n < 1000 && s.term > 0.0; ++n) s = tdmi_gamma_series_step(s, a, x, n);
    return tdmi_gamma_end(tdmi_short_gamma_weight(a, x) * s.sum, 1, upper);
  }
  f = tdmi_gamma_fraction_start(a, x, 1);
  for (n = 1; n < 1000 && f.more > 0.0; ++n) f = tdmi_gamma_fraction_step(f, a, x, n);
  return tdmi_gamma_end(tdmi_short_gamma_weight(a, x) * a * f.p / f.q, 0, upper);
}

// Where the steps above hold; elsewhere f64's way is taken.
TDM_FN int tdmi_gamma_near(float a, float x) {
  return (a > 0.0f) & (a < 10.0f) & (x > 0.0f) & (x < 0x1p100f);
}
TDM_FN float tdm_gammaincf(float a, float x) {
  if (tdmi_gamma_near(a, x)) return (float)tdmi_short_gamma_part((double)a, (double)x, 0);
  return (float)tdm_gammainc((double)a, (double)x);
}
TDM_FN float tdm_gammainccf(float a, float x) {
  if (tdmi_gamma_near(a, x)) return (float)tdmi_short_gamma_part((double)a, (double)x, 1);
  return (float)tdm_gammaincc((double)a, (double)x);
}

// ---- f32 functions that are computed in f64 and rounded once --------------------------------

TDM_FN float tdm_cbrtf(float x) { return (float)tdm_cbrt((double)x); }

#endif
