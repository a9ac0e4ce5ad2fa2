// SPDX-License-Identifier: Apache-2.0
// The math functions of every kernel, in a subset of C99 that is also C++, CUDA C and OpenCL C.
// Reference executors, the tile interpreter and emitted code compile this one text, so they give
// equal bits. Holds: only + - * / sqrt and integer operations in a fixed order; no fused
// multiply-add (build with -ffp-contract=off, NVRTC with --fmad=false), no libm, no tables; selects
// instead of branches, so loops vectorise. Special values are those of C's libm; a NaN's payload is
// not promised. Bounds (bench/prelude_check): 2 ulp in f32, over all floats where the arithmetic is
// f32 and by rounding once where it is f64; 2 ulp in f64 at 10^7 points a function; erfinv, lgamma
// and digamma state their own. Coefficients: minimax fits of scripts/fit_prelude.py. A guard and
// not `#pragma once`, because this text is also pasted into emitted files.
#ifndef TDM_MATH_PRELUDE_H
#define TDM_MATH_PRELUDE_H

// static, not C++ inline: files built for other instruction sets must not share one copy.
#if defined(__CUDACC__)
#define TDM_FN static __device__ __forceinline__
#define TDM_FAR static __device__ __noinline__
#define TDM_BRANCHES 1
#else
#define TDM_FN static inline __attribute__((always_inline))
#define TDM_FAR static __attribute__((noinline, unused))
#endif

// A table within a function, the type of 64 bits: OpenCL C has neither `static` there nor long
// long.
typedef unsigned int tdm_u32;
#if defined(__OPENCL_VERSION__)
#define TDM_TABLE const
#define TDM_BRANCHES 1
typedef ulong tdm_u64;
#else
#define TDM_TABLE static const
typedef unsigned long long tdm_u64;
#endif

// ---- bits -------------------------------------------------------------------------------------

#if defined(__CUDACC__)
TDM_FN tdm_u32 tdmi_bitsf(float x) { return __float_as_uint(x); }
TDM_FN float tdmi_float(tdm_u32 u) { return __uint_as_float(u); }
TDM_FN tdm_u64 tdmi_bits(double x) { return (tdm_u64)__double_as_longlong(x); }
TDM_FN double tdmi_double(tdm_u64 u) { return __longlong_as_double((long long)u); }
TDM_FN float tdm_sqrtf(float x) { return __fsqrt_rn(x); }
TDM_FN double tdm_sqrt(double x) { return __dsqrt_rn(x); }
#elif defined(__OPENCL_VERSION__)
TDM_FN tdm_u32 tdmi_bitsf(float x) { return as_uint(x); }
TDM_FN float tdmi_float(tdm_u32 u) { return as_float(u); }
TDM_FN tdm_u64 tdmi_bits(double x) { return as_ulong(x); }
TDM_FN double tdmi_double(tdm_u64 u) { return as_double(u); }
TDM_FN float tdm_sqrtf(float x) { return sqrt(x); }
TDM_FN double tdm_sqrt(double x) { return sqrt(x); }
#else
TDM_FN tdm_u32 tdmi_bitsf(float x) {
  tdm_u32 u;
  __builtin_memcpy(&u, &x, 4);
  return u;
}

TDM_FN float tdmi_float(tdm_u32 u) {
  float x;
  __builtin_memcpy(&x, &u, 4);
  return x;
}

TDM_FN tdm_u64 tdmi_bits(double x) {
  tdm_u64 u;
  __builtin_memcpy(&u, &x, 8);
  return u;
}

TDM_FN double tdmi_double(tdm_u64 u) {
  double x;
  __builtin_memcpy(&x, &u, 8);
  return x;
}

TDM_FN float tdm_sqrtf(float x) { return __builtin_sqrtf(x); }
TDM_FN double tdm_sqrt(double x) { return __builtin_sqrt(x); }
#endif
TDM_FN float tdm_rsqrtf(float x) { return 1.0f / tdm_sqrtf(x); }
TDM_FN double tdm_rsqrt(double x) { return 1.0 / tdm_sqrt(x); }

// Selects by mask. With `?:` on floats gcc sinks arithmetic into the arms and then, as that may
// trap, refuses to vectorise the loop.
TDM_FN float tdmi_self(int c, float a, float b) {
  const tdm_u32 m = 0u - (tdm_u32)(c != 0);
  return tdmi_float((tdmi_bitsf(a) & m) | (tdmi_bitsf(b) & ~m));
}

TDM_FN double tdmi_sel(int c, double a, double b) {
  const tdm_u64 m = (tdm_u64)0 - (tdm_u64)(c != 0);
  return tdmi_double((tdmi_bits(a) & m) | (tdmi_bits(b) & ~m));
}

TDM_FN float tdmi_absf(float x) { return tdmi_float(tdmi_bitsf(x) & 0x7fffffffu); }
TDM_FN double tdmi_abs(double x) { return tdmi_double(tdmi_bits(x) & 0x7fffffffffffffffu); }

// The same, by the low bit of a word. (gcc 12 does not vectorise `int & 1` as an f64 condition.)
TDM_FN double tdmi_sel_odd(tdm_u32 word, double a, double b) {
  const tdm_u64 m = (tdm_u64)0 - (tdm_u64)(word & 1u);
  return tdmi_double((tdmi_bits(a) & m) | (tdmi_bits(b) & ~m));
}

// |x| with the sign of s.
TDM_FN float tdmi_signf(float x, float s) {
  return tdmi_float((tdmi_bitsf(x) & 0x7fffffffu) | (tdmi_bitsf(s) & 0x80000000u));
}

TDM_FN double tdmi_sign(double x, double s) {
  return tdmi_double((tdmi_bits(x) & 0x7fffffffffffffffu) | (tdmi_bits(s) & 0x8000000000000000u));
}

TDM_FN float tdmi_nanf(void) { return tdmi_float(0x7fc00000u); }
TDM_FN float tdmi_inff(void) { return tdmi_float(0x7f800000u); }
TDM_FN double tdmi_nan(void) { return tdmi_double(0x7ff8000000000000u); }
TDM_FN double tdmi_inf(void) { return tdmi_double(0x7ff0000000000000u); }

// 2^n, -126 <= n <= 127; -1022 <= n <= 1023. (Unsigned: a NaN's n is anything.)
TDM_FN float tdmi_pow2f(int n) { return tdmi_float(((tdm_u32)n + 127u) << 23); }
TDM_FN double tdmi_pow2(int n) { return tdmi_double((tdm_u64)((tdm_u32)n + 1023u) << 52); }

// y * 2^n in two steps, so that n may exceed the exponent range by a factor of almost two.
TDM_FN float tdmi_scalef(float y, int n) {
  const int h = n >> 1;
  return y * tdmi_pow2f(h) * tdmi_pow2f(n - h);
}

TDM_FN double tdmi_scale(double y, int n) {
  const int h = n >> 1;
  return y * tdmi_pow2(h) * tdmi_pow2(n - h);
}

// Adding and subtracting 1.5 * 2^52 rounds |x| < 2^51 to an integer, which the low bits hold.
#define TDMI_ROUNDF 12582912.0f
#define TDMI_ROUND 6755399441055744.0
TDM_FN int tdmi_lowf(float shifted) { return (int)(tdmi_bitsf(shifted) - 0x4b400000u); }
TDM_FN int tdmi_low(double shifted) { return (int)(tdm_u32)tdmi_bits(shifted); }
TDM_FN int tdmi_less_one(int n) { return (int)((tdm_u32)n - 1u); }

// Horner steps: p * z + a, then * z + b, ...
#define TDMI_H1(p, z, a) ((p) * (z) + (a))
#define TDMI_H2(p, z, a, b) (((p) * (z) + (a)) * (z) + (b))
#define TDMI_H3(p, z, a, b, c) ((((p) * (z) + (a)) * (z) + (b)) * (z) + (c))
#define TDMI_H4(p, z, a, b, c, d) (((((p) * (z) + (a)) * (z) + (b)) * (z) + (c)) * (z) + (d))

// ---- f32: exp family --------------------------------------------------------------------------

// e^x = 2^n * (1 + t), |t| < 0.42, for -104 <= x <= 89.
typedef struct {
  float t;
  int n;
} tdmi_expf_t;

TDM_FN tdmi_expf_t tdmi_expf_parts(float x) {
  const float s = x * 0x1.715476p0f + TDMI_ROUNDF;
  const float n = s - TDMI_ROUNDF;
  const float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  tdmi_expf_t e;
  float p = 0x1.6a3164p-10f;
  p = TDMI_H4(p, r, 0x1.1239c8p-7f, 0x1.5558c8p-5f, 0x1.555492p-3f, 0x1.fffffcp-2f);
  e.t = r * r * p + r;
  e.n = tdmi_lowf(s);
  return e;
}

TDM_FN float tdm_expf(float x) {
  // What is 0 is not computed: a subnormal product costs a hundred cycles on many processors, and
  // masked scores are full of -infinity.
  const int none = x < -104.0f;
  const float c = tdmi_self(none, 0.0f, tdmi_self(x > 89.0f, 89.0f, x));
  const tdmi_expf_t e = tdmi_expf_parts(c);
  return tdmi_self(none, 0.0f, tdmi_scalef(1.0f + e.t, e.n));
}

TDM_FN float tdm_exp2f(float x) {
  float c = tdmi_self(x > 129.0f, 129.0f, x);
  float s, r;
  c = tdmi_self(c < -151.0f, -151.0f, c);
  s = c + TDMI_ROUNDF;
  r = c - (s - TDMI_ROUNDF);
  float p = 0x1.4447acp-13f;
  p = TDMI_H4(p, r, 0x1.5f096ap-10f, 0x1.3b2a28p-7f, 0x1.c6af7ap-5f, 0x1.ebfbep-3f);
  p = TDMI_H1(p, r, 0x1.62e43p-1f);
  return tdmi_scalef(1.0f + r * p, tdmi_lowf(s));
}

// 2^(n-1) (1 + t) - 1/2, doubled: the sum of the two large terms is kept with its rounding error.
TDM_FN float tdm_expm1f(float x) {
  float c = tdmi_self(x > 89.0f, 89.0f, x);
  float s, n, hi, lo, r, err, h, a, b, sum, y;
  c = tdmi_self(c < -20.0f, -20.0f, c);
  s = c * 0x1.715476p0f + TDMI_ROUNDF;
  n = s - TDMI_ROUNDF;
  hi = c - n * 0x1.62e4p-1f;
  lo = n * 0x1.7f7d1cp-20f;
  r = hi - lo;
  err = (hi - r) - lo;
  float p = 0x1.6ba16ep-10f;
  p = TDMI_H4(p, r, 0x1.122544p-7f, 0x1.5556eep-5f, 0x1.5554b4p-3f, 0x1.fffffep-2f);
  p = r * r * p + err;
  h = tdmi_pow2f(tdmi_less_one(tdmi_lowf(s)));
  a = h - 0.5f;
  b = h * r;
  sum = a + b;
  y = sum + ((b - (sum - a)) + h * p);
  return tdmi_self(tdmi_absf(x) < 0x1p-25f, x, y + y);
}

// y / (1 + y) or 1 / (1 + y) with y = e^-|x|; then the rounding errors of y and 1 + y are put back,
// divided by 1 + y (which the quotient gives).
TDM_FN float tdm_sigmoidf(float x) {
  const float a = tdmi_absf(x);
  const int neg = x < 0.0f;
  const tdmi_expf_t e = tdmi_expf_parts(-tdmi_self(a > 104.0f, 104.0f, a));
  const float m = 1.0f + e.t;
  const float y = tdmi_scalef(m, e.n);
  const float yl = tdmi_scalef((1.0f - m) + e.t, e.n);
  const float d = 1.0f + y;
  const float lost = (y - (d - 1.0f)) + yl;
  const float q = tdmi_self(neg, y, 1.0f) / d;
  const float inverse = tdmi_self(neg, 1.0f - q, q);
  return q + (tdmi_self(neg, yl, 0.0f) - q * lost) * inverse;
}

TDM_FN float tdm_tanhf(float x) {
  const float a = tdmi_absf(x);
  const float z = x * x;
  const float c = tdmi_self(a > 10.0f, 10.0f, a);
  const tdmi_expf_t e = tdmi_expf_parts(c + c);
  const float big = 1.0f - 2.0f / ((1.0f + e.t) * tdmi_pow2f(e.n) + 1.0f);
  float p = -0x1.750fb8p-8f;
  p = TDMI_H4(p, z, 0x1.51f95cp-6f, -0x1.b835b6p-5f, 0x1.1106f6p-3f, -0x1.555532p-2f);
  return tdmi_signf(tdmi_self(a < 0.625f, a + a * (z * p), big), x);
}

// |x| < 0.93: x + x P(x^2). Above: 1 - exp(-t - t P(t)).
TDM_FN float tdm_erff(float x) {
  const float a = tdmi_absf(x);
  const float t = tdmi_self(a > 4.0f, 4.0f, a);
  const float z = x * x;
  tdmi_expf_t e;
  float big;
  float q = -0x1.c0bd7cp-13f;
  q = TDMI_H4(q, t, 0x1.a561bp-9f, -0x1.77069ap-6f, 0x1.af26bcp-4f, 0x1.457ce6p-1f);
  q = TDMI_H1(q, t, 0x1.073282p-3f);
  float p = 0x1.502ad6p-14f;
  p = TDMI_H4(p, z, -0x1.a647bp-11f, 0x1.545144p-8f, -0x1.b801dap-6f, 0x1.ce2d6cp-4f);
  p = TDMI_H2(p, z, -0x1.81274p-2f, 0x1.06eba8p-3f);
  e = tdmi_expf_parts(-(t + t * q));
  big = 1.0f - (1.0f + e.t) * tdmi_pow2f(e.n);
  return tdmi_self(a < 0.93f, x + x * p, tdmi_signf(big, x));
}

// ---- f32: log family --------------------------------------------------------------------------

// x = 2^k * (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), for 0 < x < inf.
typedef struct {
  float f;
  int k;
} tdmi_logf_t;

TDM_FN tdmi_logf_t tdmi_logf_parts(float x) {
  const int tiny = x < 0x1p-126f;
  const tdm_u32 v = tdmi_bitsf(x * tdmi_self(tiny, 0x1p23f, 1.0f)) - 0x3f3504f3u;
  tdmi_logf_t r;
  r.k = ((int)v >> 23) - (tiny ? 23 : 0);
  r.f = tdmi_float((v & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  return r;
}

// y for 0 < x < inf, and C's values elsewhere.
TDM_FN float tdmi_logf_edges(float x, float y) {
  y = tdmi_self(x < tdmi_inff(), y, x);
  y = tdmi_self(x < 0.0f, tdmi_nanf(), y);
  return tdmi_self(x == 0.0f, -tdmi_inff(), y);
}

// k ln 2 + log(1 + f) + c, |c| far below the rest.
TDM_FN float tdmi_logf_sum(float f, float c, float k) {
  const float z = f * f;
  float p = -0x1.38c2dep-4f;
  p = TDMI_H4(p, f, 0x1.055c6cp-3f, -0x1.0d827p-3f, 0x1.22d98ap-3f, -0x1.547292p-3f);
  p = TDMI_H3(p, f, 0x1.99a018p-3f, -0x1.000226p-2f, 0x1.555554p-2f);
  return k * 0x1.62e4p-1f + (f - (0.5f * z - ((z * f) * p + (c + k * 0x1.7f7d1cp-20f))));
}

TDM_FN float tdm_logf(float x) {
  const tdmi_logf_t r = tdmi_logf_parts(x);
  return tdmi_logf_edges(x, tdmi_logf_sum(r.f, 0.0f, (float)r.k));
}

TDM_FN float tdm_log2f(float x) {
  const tdmi_logf_t r = tdmi_logf_parts(x);
  const float f = r.f;
  float p = -0x1.db8ea4p-4f;
  p = TDMI_H4(p, f, 0x1.7e4d96p-3f, -0x1.819e1ap-3f, 0x1.a232dap-3f, -0x1.eb6cb2p-3f);
  p = TDMI_H4(p, f, 0x1.278aeep-2f, -0x1.7156b4p-2f, 0x1.ec7026p-2f, -0x1.715476p-1f);
  p = TDMI_H1(p, f, 0x1.c551dap-2f);
  return tdmi_logf_edges(x, (float)r.k + (f + f * p));
}

TDM_FN float tdm_log10f(float x) {
  const tdmi_logf_t r = tdmi_logf_parts(x);
  const float f = r.f, k = (float)r.k;
  float p = -0x1.15c5ap-5f;
  p = TDMI_H4(p, f, 0x1.c948d6p-5f, -0x1.d2d1d4p-5f, 0x1.f86e1ep-5f, -0x1.27c1f8p-4f);
  p = TDMI_H4(p, f, 0x1.63d4fap-4f, -0x1.bcbb24p-4f, 0x1.287a4ep-3f, -0x1.bcb7b2p-3f);
  p = TDMI_H1(p, f, -0x1.0d213ap-4f);
  return tdmi_logf_edges(x, k * 0x1.344p-2f + (0.5f * f + (f * p + k * 0x1.3509f8p-18f)));
}

// log of 1 + x with the rounding error of that sum put back, divided by 1 + x (roughly: 1/(1+f)).
TDM_FN float tdm_log1pf(float x) {
  const float u = 1.0f + x;
  const float back = u - 1.0f;
  const float lost = (1.0f - (u - back)) + (x - back);
  const tdm_u32 v = tdmi_bitsf(u) - 0x3f3504f3u;
  const int k = (int)v >> 23;
  const float fu = tdmi_float((v & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  const float cu = lost * tdmi_pow2f(-(k > 126 ? 126 : k)) * (1.0f - fu * (1.0f - fu));
  const float f = tdmi_self(k == 0, x, fu);
  const float c = tdmi_self(k == 0, 0.0f, cu);
  const float y = tdmi_logf_edges(u, tdmi_logf_sum(f, c, (float)k));
  return tdmi_self(tdmi_absf(x) < 0x1p-25f, x, y);
}

// ---- f32: sin, cos, tan -----------------------------------------------------------------------

/// Up to here sin, cos and tan may be taken from tdm_sinf_near and its like, which give the same
/// bits as tdm_sinf at a third of the cost: a loop may look at the largest |x| first.
#define TDM_TRIG_NEAR 1048576.0f

// a - quarter * pi/2, |r| <= pi/4 (f64: the last bits of f32 near multiples of pi/2).
typedef struct {
  double r;
  tdm_u32 quarter;
} tdmi_trigf_t;

TDM_FN tdmi_trigf_t tdmi_trigf_near(double a) {
  const double s = a * 0x1.45f306dc9c883p-1 + TDMI_ROUND;
  const double n = s - TDMI_ROUND;
  tdmi_trigf_t t;
  t.r = (a - n * 0x1.921fb544p0) - n * 0x1.0b4611a626331p-34;
  t.quarter = (tdm_u32)tdmi_bits(s);
  return t;
}

// The same for any a. x * 2/pi modulo 4 in three exact or small products: the bits of 2/pi that
// would only give multiples of 4 are left out, by ranges of 26 binary orders (29 + 29 + 53 bits).
TDM_FN tdmi_trigf_t tdmi_trigf_far(float a) {
  const tdm_u32 u = tdmi_bitsf(a);
  const int g1 = u >= 0x4c800000u, g2 = u >= 0x59800000u, g3 = u >= 0x66800000u,
            g4 = u >= 0x73800000u;
  const double x = (double)a;
  double c1 = tdmi_sel(g1, 0x1.17cc1b6p-3, 0x1.4p-1);
  double c2 = tdmi_sel(g1, 0x1.27220a9p-31, 0x1.7cc1b7p-7);
  double c3 = tdmi_sel(g1, 0x1.3f84eafa3ea6ap-61, 0x1.391054a7f09d6p-34);
  double t1, t2, s1, s2, s3, v;
  tdmi_trigf_t t;
  c1 = tdmi_sel(g2, 0x1.c9c882ap-29, c1);
  c2 = tdmi_sel(g2, 0x1.4fe13a8p-59, c2);
  c3 = tdmi_sel(g2, 0x1.f47d4d377036ep-86, c3);
  c1 = tdmi_sel(g3, 0x1.4a7f09dp-54, c1);
  c2 = tdmi_sel(g3, 0x1.7d1f534p-84, c2);
  c3 = tdmi_sel(g3, 0x1.bb81b6c52b328p-113, c3);
  c1 = tdmi_sel(g4, 0x1.57d1f53p-80, c1);
  c2 = tdmi_sel(g4, 0x1.377036cp-110, c2);
  c3 = tdmi_sel(g4, 0x1.8a5664f10e41p-138, c3);
  t1 = x * c1;
  s1 = t1 + TDMI_ROUND;
  t1 = t1 - (s1 - TDMI_ROUND);
  t2 = x * c2;
  s2 = t2 + TDMI_ROUND;
  t2 = t2 - (s2 - TDMI_ROUND);
  s3 = (t1 + t2) + TDMI_ROUND;
  v = ((t1 - (s3 - TDMI_ROUND)) + t2) + x * c3;
  t.r = v * 0x1.921fb54442d18p0;
  t.quarter = (tdm_u32)tdmi_bits(s1) + (tdm_u32)tdmi_bits(s2) + (tdm_u32)tdmi_bits(s3);
  return t;
}

TDM_FN tdmi_trigf_t tdmi_trigf_reduce(float a) {
  tdmi_trigf_t t = tdmi_trigf_near((double)a);
#ifdef TDM_BRANCHES
  if (!(a <= TDM_TRIG_NEAR)) t = tdmi_trigf_far(a);
#else
  const int near = a <= TDM_TRIG_NEAR;
  const tdmi_trigf_t far = tdmi_trigf_far(a);
  const tdm_u32 m = 0u - (tdm_u32)near;
  t.r = tdmi_sel(near, t.r, far.r);
  t.quarter = (t.quarter & m) | (far.quarter & ~m);
#endif
  return t;
}

// sin of quarter * pi/2 + r, times the sign bit.
TDM_FN float tdmi_sinf_quarter(tdmi_trigf_t t, tdm_u32 sign) {
  const float r = (float)t.r;
  const float z = r * r;
  float y;
  float s = -0x1.995248p-13f;
  s = TDMI_H2(s, z, 0x1.110774p-7f, -0x1.555546p-3f);
  float c = 0x1.99e864p-16f;
  c = TDMI_H2(c, z, -0x1.6c0c28p-10f, 0x1.55554ap-5f);
  s = r + r * (z * s);
  c = 1.0f - (0.5f * z - z * z * c);
  y = tdmi_self((int)(t.quarter & 1u), c, s);
  return tdmi_float(tdmi_bitsf(y) ^ ((t.quarter & 2u) << 30) ^ sign);
}

TDM_FN float tdm_sinf(float x) {
  return tdmi_sinf_quarter(tdmi_trigf_reduce(tdmi_absf(x)), tdmi_bitsf(x) & 0x80000000u);
}

TDM_FN float tdm_cosf(float x) {
  tdmi_trigf_t t = tdmi_trigf_reduce(tdmi_absf(x));
  t.quarter += 1u;
  return tdmi_sinf_quarter(t, 0u);
}

/// sin for |x| <= TDM_TRIG_NEAR (or NaN); the bits of tdm_sinf.
TDM_FN float tdm_sinf_near(float x) {
  return tdmi_sinf_quarter(tdmi_trigf_near((double)tdmi_absf(x)), tdmi_bitsf(x) & 0x80000000u);
}

/// cos for |x| <= TDM_TRIG_NEAR (or NaN); the bits of tdm_cosf.
TDM_FN float tdm_cosf_near(float x) {
  tdmi_trigf_t t = tdmi_trigf_near((double)tdmi_absf(x));
  t.quarter += 1u;
  return tdmi_sinf_quarter(t, 0u);
}

TDM_FN float tdmi_tanf_quarter(tdmi_trigf_t t, tdm_u32 sign) {
  const double r = t.r;
  const double z = r * r;
  float y;
  double s = 0x1.6cd1a675e5bc4p-19;
  s = TDMI_H3(s, z, -0x1.a00f7de54549cp-13, 0x1.11110868cb78dp-7, -0x1.5555554c6fb5bp-3);
  double c = -0x1.241e68aace0e2p-22;
  c = TDMI_H3(c, z, 0x1.a010dde00c3c9p-16, -0x1.6c16b828c2b98p-10, 0x1.5555554ed87c8p-5);
  s = r + r * (z * s);
  c = 1.0 - (0.5 * z - z * z * c);
  y = (float)(tdmi_sel_odd(t.quarter, -c, s) / tdmi_sel_odd(t.quarter, s, c));
  return tdmi_float(tdmi_bitsf(y) ^ sign);
}

TDM_FN float tdm_tanf(float x) {
  return tdmi_tanf_quarter(tdmi_trigf_reduce(tdmi_absf(x)), tdmi_bitsf(x) & 0x80000000u);
}

/// tan for |x| <= TDM_TRIG_NEAR (or NaN); the bits of tdm_tanf.
TDM_FN float tdm_tanf_near(float x) {
  return tdmi_tanf_quarter(tdmi_trigf_near((double)tdmi_absf(x)), tdmi_bitsf(x) & 0x80000000u);
}

// ---- f64: unevaluated sums of two doubles -----------------------------------------------------

typedef struct {
  double h, l;
} tdmi_dd;

// a + b exactly; tdmi_fast_two needs |a| >= |b| or a == 0.
TDM_FN tdmi_dd tdmi_two_sum(double a, double b) {
  tdmi_dd r;
  double back;
  r.h = a + b;
  back = r.h - a;
  r.l = (a - (r.h - back)) + (b - back);
  return r;
}

TDM_FN tdmi_dd tdmi_fast_two(double a, double b) {
  tdmi_dd r;
  r.h = a + b;
  r.l = b - (r.h - a);
  return r;
}

// The upper 26 bits of a's significand.
TDM_FN double tdmi_upper(double a) { return tdmi_double(tdmi_bits(a) & 0xfffffffff8000000u); }

// a * b to 2^-105 or better (exact but for the product of the two lower halves).
TDM_FN tdmi_dd tdmi_two_prod(double a, double b) {
  const double ah = tdmi_upper(a), bh = tdmi_upper(b);
  const double al = a - ah, bl = b - bh;
  tdmi_dd r;
  r.h = a * b;
  r.l = ((ah * bh - r.h) + ah * bl + al * bh) + al * bl;
  return r;
}

TDM_FN tdmi_dd tdmi_dd_mul(tdmi_dd a, tdmi_dd b) {
  const tdmi_dd p = tdmi_two_prod(a.h, b.h);
  return tdmi_fast_two(p.h, p.l + (a.h * b.l + a.l * b.h));
}

// Quotient and its remainder's quotient, not renormalised.
TDM_FN tdmi_dd tdmi_dd_div(tdmi_dd n, tdmi_dd d) {
  tdmi_dd r, p;
  r.h = n.h / d.h;
  p = tdmi_two_prod(r.h, d.h);
  r.l = (((n.h - p.h) - p.l) + (n.l - r.h * d.l)) / d.h;
  return r;
}

// Root of a >= 0; the rest is 0 where the root is.
TDM_FN tdmi_dd tdmi_dd_sqrt(tdmi_dd a) {
  tdmi_dd r, p;
  r.h = tdm_sqrt(a.h);
  p = tdmi_two_prod(r.h, r.h);
  r.l = (((a.h - p.h) - p.l) + a.l) / tdmi_sel(r.h == 0.0, 1.0, r.h + r.h);
  return r;
}

// ---- f64: exp family --------------------------------------------------------------------------

// e^(x + xl) = 2^n * (1 + t + l), |t| < 0.42, for |x| < 800 and |xl| far below.
typedef struct {
  double t, l;
  int n;
} tdmi_exp_t;

TDM_FN tdmi_exp_t tdmi_exp_parts(double x, double xl) {
  const double s = x * 0x1.71547652b82fep0 + TDMI_ROUND;
  const double n = s - TDMI_ROUND;
  const double hi = x - n * 0x1.62e42feep-1;
  const double lo = n * 0x1.a39ef35793c76p-33 - xl;
  const double r = hi - lo;
  const double err = (hi - r) - lo;
  tdmi_exp_t e;
  double p = 0x1.1f3395bc8c6b7p-29;
  p = TDMI_H3(p, r, 0x1.af5d12a75442fp-26, 0x1.27e4fc4f032bdp-22, 0x1.71ddf9346af69p-19);
  p = TDMI_H3(p, r, 0x1.a01a019ca2a2bp-16, 0x1.a01a01af9cd03p-13, 0x1.6c16c16c16d14p-10);
  p = TDMI_H3(p, r, 0x1.111111110f70cp-7, 0x1.5555555555558p-5, 0x1.5555555555559p-3);
  p = TDMI_H1(p, r, 0x1p-1);
  p = r * r * p;
  e.t = r + p;
  e.l = ((r - e.t) + p) + (err + err * r);
  e.n = tdmi_low(s);
  return e;
}

TDM_FN double tdm_exp(double x) {
  tdmi_exp_t e;
  double c = tdmi_sel(x > 710.0, 710.0, x);
  c = tdmi_sel(c < -746.0, -746.0, c);
  e = tdmi_exp_parts(c, 0.0);
  return tdmi_scale(1.0 + (e.t + e.l), e.n);
}

TDM_FN double tdm_exp2(double x) {
  double c = tdmi_sel(x > 1025.0, 1025.0, x);
  double s, r;
  c = tdmi_sel(c < -1076.0, -1076.0, c);
  s = c + TDMI_ROUND;
  r = c - (s - TDMI_ROUND);
  double p = 0x1.ea6afa8cf6d0bp-32;
  p = TDMI_H3(p, r, 0x1.e61779605a523p-28, 0x1.b52487d57f321p-24, 0x1.62bfca362b52fp-20);
  p = TDMI_H3(p, r, 0x1.ffcbfca9a4cf4p-17, 0x1.4309130d99125p-13, 0x1.5d87fe78930cap-10);
  p = TDMI_H3(p, r, 0x1.3b2ab6fba090cp-7, 0x1.c6b08d704a154p-5, 0x1.ebfbdff82c5ap-3);
  p = TDMI_H1(p, r, 0x1.62e42fefa39efp-1);
  return tdmi_scale(1.0 + r * p, tdmi_low(s));
}

// (2^n (1 + t + l) - 1) / 2 for -40 <= x <= 710.
TDM_FN tdmi_dd tdmi_half_expm1(double x) {
  const tdmi_exp_t e = tdmi_exp_parts(x, 0.0);
  const double h = tdmi_pow2(tdmi_less_one(e.n));
  tdmi_dd r = tdmi_fast_two(h - 0.5, h * e.t);
  r.l = r.l + h * e.l;
  return r;
}

TDM_FN double tdm_expm1(double x) {
  tdmi_dd r;
  double c = tdmi_sel(x > 710.0, 710.0, x);
  c = tdmi_sel(c < -40.0, -40.0, c);
  r = tdmi_half_expm1(c);
  r.h = r.h + r.l;
  return tdmi_sel(tdmi_abs(x) < 0x1p-54, x, r.h + r.h);
}

TDM_FN double tdm_sigmoid(double x) {
  const double a = tdmi_abs(x);
  const int neg = x < 0.0;
  const tdmi_exp_t e = tdmi_exp_parts(-tdmi_sel(a > 746.0, 746.0, a), 0.0);
  const double m = 1.0 + e.t;
  const double y = tdmi_scale(m, e.n);
  const double yl = tdmi_scale(((1.0 - m) + e.t) + e.l, e.n);
  const double d = 1.0 + y;
  const double lost = (y - (d - 1.0)) + yl;
  const double q = tdmi_sel(neg, y, 1.0) / d;
  const double inverse = tdmi_sel(neg, 1.0 - q, q);
  return q + (tdmi_sel(neg, yl, 0.0) - q * lost) * inverse;
}

// t / (t + 2) with t = expm1(2|x|); here both halved.
TDM_FN double tdm_tanh(double x) {
  const double a = tdmi_abs(x);
  const double c = tdmi_sel(a > 22.0, 22.0, a);
  const tdmi_dd t = tdmi_half_expm1(c + c);
  tdmi_dd d = tdmi_two_sum(t.h, 1.0);
  d.l = d.l + t.l;
  d = tdmi_dd_div(t, d);
  return tdmi_sel(a < 0x1p-28, x, tdmi_sign(d.h + d.l, x));
}

// (t + t / (t + 1)) / 2 with t = expm1(|x|); e^|x| / 2 beyond 20.
TDM_FN double tdm_sinh(double x) {
  const double a = tdmi_abs(x);
  const tdmi_dd t = tdmi_half_expm1(tdmi_sel(a > 20.0, 20.0, a));
  const tdmi_exp_t e = tdmi_exp_parts(tdmi_sel(a > 712.0, 712.0, a), 0.0);
  const double big = tdmi_scale(1.0 + (e.t + e.l), tdmi_less_one(e.n));
  tdmi_dd d = tdmi_two_sum(t.h + t.h, 1.0);
  double y;
  d.l = d.l + (t.l + t.l);
  d = tdmi_dd_div(t, d);
  y = tdmi_sel(a > 20.0, big, t.h + (d.h + (d.l + t.l)));
  return tdmi_sel(a < 0x1p-28, x, tdmi_sign(y, x));
}

// e^|x| / 2 + e^-|x| / 2.
TDM_FN double tdm_cosh(double x) {
  const double a = tdmi_abs(x);
  const tdmi_exp_t e = tdmi_exp_parts(tdmi_sel(a > 712.0, 712.0, a), 0.0);
  const double m = 1.0 + e.t;
  const double l = ((1.0 - m) + e.t) + e.l;
  const double inverse = tdmi_pow2((int)(0u - 2u * (tdm_u32)(e.n > 100 ? 100 : e.n))) / m;
  return tdmi_scale(m + (l + inverse), tdmi_less_one(e.n));
}

// ---- f64: log family --------------------------------------------------------------------------

// x = 2^k * (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), for 0 < x < inf.
typedef struct {
  double f;
  int k;
} tdmi_log_t;

TDM_FN tdmi_log_t tdmi_log_parts(double x) {
  const int tiny = x < 0x1p-1022;
  const tdm_u64 v = tdmi_bits(x * tdmi_sel(tiny, 0x1p54, 1.0)) - 0x3fe6a09e00000000u;
  tdmi_log_t r;
  r.k = ((int)(tdm_u32)(v >> 32) >> 20) - (tiny ? 54 : 0);
  r.f = tdmi_double((v & 0xfffffffffffffu) + 0x3fe6a09e00000000u) - 1.0;
  return r;
}

TDM_FN double tdmi_log_edges(double x, double y) {
  y = tdmi_sel(x < tdmi_inf(), y, x);
  y = tdmi_sel(x < 0.0, tdmi_nan(), y);
  return tdmi_sel(x == 0.0, -tdmi_inf(), y);
}

// s * (f^2/2 + R): log(1 + f) = f - f^2/2 + that, s = f / (2 + f).
TDM_FN double tdmi_log_rest(double f, double hfsq) {
  const double s = f / (2.0 + f);
  const double z = s * s;
  double p = 0x1.2f1156b04dfffp-3;
  p = TDMI_H3(p, z, 0x1.39a099a5a6abfp-3, 0x1.74664987ca825p-3, 0x1.c71c51d88299ap-3);
  p = TDMI_H3(p, z, 0x1.24924942298a9p-2, 0x1.999999997fa01p-2, 0x1.5555555555593p-1);
  return s * (hfsq + z * p);
}

// k ln 2 + log(1 + f) + c, |c| far below the rest.
TDM_FN double tdmi_log_sum(double f, double c, double k) {
  const double hfsq = 0.5 * f * f;
  const double rest = tdmi_log_rest(f, hfsq);
  return k * 0x1.62e42feep-1 - ((hfsq - (rest + (k * 0x1.a39ef35793c76p-33 + c))) - f);
}

TDM_FN double tdm_log(double x) {
  const tdmi_log_t r = tdmi_log_parts(x);
  return tdmi_log_edges(x, tdmi_log_sum(r.f, 0.0, (double)r.k));
}

// (k ln 2 + log(1 + f)) / ln(base), from 1/ln(base) and log(2)/log(base) in two parts each.
TDM_FN double tdmi_log_base(double x, double ih, double il, double kh, double kl) {
  const tdmi_log_t r = tdmi_log_parts(x);
  const double k = (double)r.k;
  const double hfsq = 0.5 * r.f * r.f;
  const double rest = tdmi_log_rest(r.f, hfsq);
  const double hi = tdmi_upper(r.f - hfsq);
  const double lo = (r.f - hi) - hfsq + rest;
  const tdmi_dd s = tdmi_two_sum(k * kh, hi * ih);
  return tdmi_log_edges(x, s.h + (s.l + (k * kl + (lo * il + (lo * ih + hi * il)))));
}

TDM_FN double tdm_log2(double x) {
  return tdmi_log_base(x, 0x1.7154760p0, 0x1.4ae0bf85ddf44p-26, 1.0, 0.0);
}

TDM_FN double tdm_log10(double x) {
  return tdmi_log_base(x, 0x1.bcb7b1p-2, 0x1.49b9438ca9aaep-28, 0x1.34413509f6p-2,
                       0x1.9fef311f12b36p-42);
}

// log(1 + x + l) for x >= -1, |l| below an ulp of x: the rounding error of 1 + x is put back,
// divided by 1 + x (roughly: 1/(1+f)).
TDM_FN double tdmi_log1p_dd(double x, double l) {
  const tdmi_dd u = tdmi_two_sum(1.0, x);
  const tdm_u64 v = tdmi_bits(u.h) - 0x3fe6a09e00000000u;
  const int k = (int)(tdm_u32)(v >> 32) >> 20;
  const double fu = tdmi_double((v & 0xfffffffffffffu) + 0x3fe6a09e00000000u) - 1.0;
  const double cu = (u.l + l) * tdmi_pow2(-(k > 1022 ? 1022 : k));
  const double f = tdmi_sel(k == 0, x, fu);
  const double c = tdmi_sel(k == 0, l, cu);
  return tdmi_log_edges(u.h, tdmi_log_sum(f, c * (1.0 - f * (1.0 - f)), (double)k));
}

TDM_FN double tdm_log1p(double x) {
  return tdmi_sel(tdmi_abs(x) < 0x1p-54, x, tdmi_log1p_dd(x, 0.0));
}

// ---- f64: pow ---------------------------------------------------------------------------------

// C's special cases of pow(x, y), r = |x|^y being right for finite positive |x| and finite y.
TDM_FN double tdmi_pow_edges(double x, double y, double r) {
  const double a = tdmi_abs(x), b = tdmi_abs(y);
  const double halved = 0.5 * b;
  const double whole_b = tdmi_sel(b < 0x1p52, (b + 0x1p52) - 0x1p52, b);
  const double whole_h = tdmi_sel(halved < 0x1p52, (halved + 0x1p52) - 0x1p52, halved);
  const int fraction = whole_b != b, odd_half = whole_h != halved;
  const int base_edge = a == 0.0, base_inf = a == tdmi_inf(), power_inf = b == tdmi_inf();
  const int base_one = a == 1.0, negative = x < 0.0, minus = (int)(tdmi_bits(x) >> 63);
  const int x_nan = x != x, y_nan = y != y, x_one = x == 1.0, y_zero = y == 0.0;
  const int up = (a > 1.0) == (y > 0.0);  // |x|^y is infinite, not 0, at the edges
  r = tdmi_sel(base_edge | base_inf | power_inf, tdmi_sel(up, tdmi_inf(), 0.0), r);
  r = tdmi_sel(base_one & power_inf, 1.0, r);
  r = tdmi_sel(minus & odd_half & (fraction ^ 1), -r, r);
  r = tdmi_sel(negative & fraction & (base_inf ^ 1), tdmi_nan(), r);
  r = tdmi_sel(x_nan | y_nan, x + y, r);
  return tdmi_sel(x_one | y_zero, 1.0, r);
}

// log|x| as a sum of two doubles, 2^-66 of its size: 2 atanh(s), s = f / (2 + f).
TDM_FN tdmi_dd tdmi_log_dd(double a) {
  const tdmi_log_t r = tdmi_log_parts(a);
  const double k = (double)r.k;
  tdmi_dd n, d, s, z, q, cubic, sum;
  n.h = r.f;
  n.l = 0.0;
  d = tdmi_fast_two(2.0, r.f);
  s = tdmi_dd_div(n, d);
  s = tdmi_fast_two(s.h, s.l);
  z = tdmi_dd_mul(s, s);
  double p = 0x1.0e45fc915b3c4p-3;
  p = TDMI_H3(p, z.h, 0x1.0f7f91eebcd58p-3, 0x1.3b1eefa154e4fp-3, 0x1.745ce9d08a723p-3);
  p = TDMI_H3(p, z.h, 0x1.c71c722d99a06p-3, 0x1.2492492457b45p-2, 0x1.9999999999b31p-2);
  q = tdmi_fast_two(0x1.5555555555555p-1, z.h * p);
  q.l = q.l + 0x1.5555555555555p-55;
  cubic = tdmi_dd_mul(tdmi_dd_mul(s, z), q);
  sum = tdmi_fast_two(s.h + s.h, cubic.h);
  sum.l = sum.l + (cubic.l + (s.l + s.l));
  d = tdmi_two_sum(k * 0x1.62e42fefa38p-1, sum.h);
  d.l = d.l + (sum.l + k * 0x1.ef35793c7673p-45);
  return tdmi_fast_two(d.h, d.l);
}

TDM_FN double tdm_pow(double x, double y) {
  const double big = 0x1p70;  // beyond it only |x| = 1 stays finite
  double b = tdmi_sel(y > big, big, y);
  tdmi_dd l, p;
  tdmi_exp_t e;
  double c, rest;
  b = tdmi_sel(b < -big, -big, b);
  l = tdmi_log_dd(tdmi_abs(x));
  p = tdmi_two_prod(b, l.h);
  rest = p.l + b * l.l;
  c = tdmi_sel(p.h > 720.0, 720.0, p.h);
  c = tdmi_sel(c < -760.0, -760.0, c);
  rest = tdmi_sel(c == p.h, rest, 0.0);
  e = tdmi_exp_parts(c, rest);
  return tdmi_pow_edges(x, y, tdmi_scale(1.0 + (e.t + e.l), e.n));
}

/// x^n for n = 1, 2, 3 and 4 by products in f64, rounded once; what tdm_powf gives for such powers.
TDM_FN float tdm_small_powerf(float x, int n) {
  const double a = (double)x, square = a * a;
  return (float)(n == 1 ? a : n == 2 ? square : n == 3 ? square * a : square * square);
}

// log(x) and exp(x) for f32 functions, in f64 with shorter polynomials: 2^-38 of log(x), and 2^-32.
// x > 0; |x| <= 200, larger ones count as 200.
TDM_FN double tdmi_short_log(double x) {
  const tdmi_log_t d = tdmi_log_parts(x);
  const double s = d.f / (2.0 + d.f), z = s * s;
  double p = 0x1.e2fa71dc72fc6p-3;
  p = TDMI_H3(p, z, 0x1.2438bd65e8dfep-2, 0x1.999a7aefd6392p-2, 0x1.555554fd66243p-1);
  return (double)d.k * 0x1.62e42fefa39efp-1 + (s + s + s * (z * p));
}
TDM_FN double tdmi_short_exp_near(double x) {
  const double s = x * 0x1.71547652b82fep0 + TDMI_ROUND;
  const double r = x - (s - TDMI_ROUND) * 0x1.62e42fefa39efp-1, z = r * r;
  double p = 0x1.9e88938e70b83p-16, p1 = 0x1.a1856f09695a3p-13;
  p = TDMI_H3(p, z, 0x1.6c18d3d456226p-10, 0x1.5555541df5b72p-5, 0x1.000000005e094p-1);
  p1 = TDMI_H2(p1, z, 0x1.1110a2569cfdp-7, 0x1.5555557dd7d86p-3);
  p = p + r * p1;
  // The low bits of s, which is 2^52 and more, are the power of two.
  return (1.0 + (r + z * p)) * tdmi_double((tdmi_bits(s) + 1023u) << 52);
}
TDM_FN double tdmi_short_exp(double x) {
  const double c = tdmi_sel(x > 200.0, 200.0, x);
  return tdmi_short_exp_near(tdmi_sel(c < -200.0, -200.0, c));
}

// As tdmi_pow_edges.
TDM_FN float tdmi_pow_edgesf(float x, float y, float r) {
  const float a = tdmi_absf(x), b = tdmi_absf(y), halved = 0.5f * b;
  const float whole_b = tdmi_self(b < 0x1p23f, (b + 0x1p23f) - 0x1p23f, b);
  const float whole_h = tdmi_self(halved < 0x1p23f, (halved + 0x1p23f) - 0x1p23f, halved);
  const int fraction = whole_b != b, odd_half = whole_h != halved;
  const int base_edge = a == 0.0f, base_inf = a == tdmi_inff(), power_inf = b == tdmi_inff();
  const int base_one = a == 1.0f, negative = x < 0.0f, minus = (int)(tdmi_bitsf(x) >> 31);
  const int x_nan = x != x, y_nan = y != y, x_one = x == 1.0f, y_zero = y == 0.0f;
  const int up = (a > 1.0f) == (y > 0.0f);  // |x|^y is infinite, not 0, at the edges
  r = tdmi_self(base_edge | base_inf | power_inf, tdmi_self(up, tdmi_inff(), 0.0f), r);
  r = tdmi_self(base_one & power_inf, 1.0f, r);
  r = tdmi_self(minus & odd_half & (fraction ^ 1), -r, r);
  r = tdmi_self(negative & fraction & (base_inf ^ 1), tdmi_nanf(), r);
  r = tdmi_self(x_nan | y_nan, x + y, r);
  return tdmi_self(x_one | y_zero, 1.0f, r);
}

// In f64, then rounded: within 0.51 ulp. Powers of 1 to 4 are products.
TDM_FN float tdm_powf(float x, float y) {
  const double a = tdmi_abs((double)x), square = a * a;
  double r = tdmi_short_exp((double)y * tdmi_short_log(a));
  r = tdmi_sel(y == 1.0f, a, r);
  r = tdmi_sel(y == 2.0f, square, r);
  r = tdmi_sel(y == 3.0f, square * a, r);
  r = tdmi_sel(y == 4.0f, square * square, r);
  return tdmi_pow_edgesf(x, y, (float)r);
}

// ---- f64: sin, cos, tan -----------------------------------------------------------------------

// a - quarter * pi/2 = h + l, |h| <= pi/4.
typedef struct {
  double h, l;
  tdm_u32 quarter;
} tdmi_trig_t;

// Bits of 2/pi after 64 zeros; 64 x 64 -> 128 bits from 32-bit products.
typedef struct {
  tdm_u64 h, l;
} tdmi_u128;

TDM_FN tdmi_u128 tdmi_wide_mul(tdm_u64 a, tdm_u64 b) {
  const tdm_u64 al = a & 0xffffffffu, ah = a >> 32, bl = b & 0xffffffffu, bh = b >> 32;
  const tdm_u64 low = al * bl;
  const tdm_u64 m1 = ah * bl + (low >> 32);
  const tdm_u64 m2 = al * bh + (m1 & 0xffffffffu);
  tdmi_u128 r;
  r.h = ah * bh + (m1 >> 32) + (m2 >> 32);
  r.l = (m2 << 32) | (low & 0xffffffffu);
  return r;
}

// Payne and Hanek: the significand times the 192 bits of 2/pi that matter modulo 4.
TDM_FAR tdmi_trig_t tdmi_trig_far(double a) {
  TDM_TABLE tdm_u64 two_over_pi[] = {0x0000000000000000u, 0xa2f9836e4e441529u, 0xfc2757d1f534ddc0u,
                                     0xdb6295993c439041u, 0xfe5163abdebbc561u, 0xb7246e3a424dd2e0u,
                                     0x06492eea09d1921cu, 0xfe1deb1cb129a73eu, 0xe88235f52ebb4484u,
                                     0xe99c7026b45f7e41u, 0x3991d639835339f4u, 0x9c845f8bbdf9283bu,
                                     0x1ff897ffde05980fu, 0xef2f118b5a0a6d1fu, 0x6d367ecf27cb09b7u,
                                     0x4f463f669e5fea2du, 0x7527bac7ebe5f17bu, 0x3d0739f78a5292eau,
                                     0x6bfb5fb11f8d5d08u, 0x56033046fc7b6babu, 0xf0cfbc209af4361du};
  const tdm_u64 u = tdmi_bits(a);
  const int exponent = (int)(u >> 52);
  const tdm_u64 m = (u & 0xfffffffffffffu) | 0x10000000000000u;
  const int start = exponent - 1075 + 62;  // first bit of the window, in the table
  const int word = start >> 6, shift = start & 63;
  tdm_u64 w[3], high, mid, sign;
  tdmi_u128 p0, p1;
  tdmi_trig_t t;
  tdmi_dd v, s, pio2;
  int i;
  t.h = t.l = tdmi_nan();
  t.quarter = 0;
  if (exponent >= 2047) return t;
  for (i = 0; i < 3; ++i) {
    w[i] = two_over_pi[word + i] << shift;
    if (shift != 0) w[i] |= two_over_pi[word + i + 1] >> (64 - shift);
  }
  p0 = tdmi_wide_mul(m, w[2]);
  p1 = tdmi_wide_mul(m, w[1]);
  mid = p0.h + p1.l;
  high = p1.h + m * w[0] + (mid < p0.h ? 1u : 0u);
  t.quarter = (tdm_u32)(high >> 62);
  high = high << 2 | mid >> 62;
  mid = mid << 2 | p0.l >> 62;
  sign = high >> 63;  // above one half: take the next quarter and go back
  t.quarter += (tdm_u32)sign;
  if (sign != 0) {
    mid = ~mid + 1u;
    high = ~high + (mid == 0 ? 1u : 0u);
  }
  v = tdmi_fast_two((double)(high >> 32) * 0x1p-32, (double)(high & 0xffffffffu) * 0x1p-64);
  s = tdmi_fast_two((double)(mid >> 32) * 0x1p-96, (double)(mid & 0xffffffffu) * 0x1p-128);
  s.h = s.h + v.l;
  v = tdmi_fast_two(v.h, s.h);
  v.l = v.l + s.l;
  pio2.h = 0x1.921fb54442d18p0;
  pio2.l = 0x1.1a62633145c07p-54;
  v = tdmi_dd_mul(v, pio2);
  t.h = sign != 0 ? -v.h : v.h;
  t.l = sign != 0 ? -v.l : v.l;
  return t;
}

// Three-part pi/2 up to 2^20; beyond, the far branch is taken (rare, hence not a select).
TDM_FN tdmi_trig_t tdmi_trig_reduce(double a) {
  const double s = a * 0x1.45f306dc9c883p-1 + TDMI_ROUND;
  const double n = s - TDMI_ROUND;
  const double y = a - n * 0x1.921fb544p0;
  const tdmi_dd d = tdmi_two_sum(y, -(n * 0x1.0b4611a6p-34));
  const double rest = d.l - n * 0x1.3198a2e037073p-69;
  const tdmi_dd r = tdmi_fast_two(d.h, rest);
  tdmi_trig_t t;
  t.h = r.h;
  t.l = r.l;
  t.quarter = (tdm_u32)tdmi_bits(s);
  if (!(a <= 0x1p20)) t = tdmi_trig_far(a);
  return t;
}

// sin and cos of h + l.
TDM_FN tdmi_dd tdmi_sin_kernel(double h, double l) {
  const double z = h * h;
  double p = 0x1.5d8b5b90b13fap-33;
  p = TDMI_H3(p, z, -0x1.ae5e4b941724ap-26, 0x1.71de35553987fp-19, -0x1.a01a019be9298p-13);
  p = TDMI_H2(p, z, 0x1.111111110f73p-7, -0x1.5555555555548p-3);
  return tdmi_fast_two(h, (h * z) * p + (l - 0.5 * z * l));
}

TDM_FN tdmi_dd tdmi_cos_kernel(double h, double l) {
  const double z = h * h;
  const double halved = 0.5 * z;
  const double w = 1.0 - halved;
  double p = -0x1.8fa65f17f989dp-37;
  p = TDMI_H3(p, z, 0x1.1ee9db8ebbf99p-29, -0x1.27e4f7f141606p-22, 0x1.a01a019c8ed08p-16);
  p = TDMI_H2(p, z, -0x1.6c16c16c15013p-10, 0x1.555555555554bp-5);
  return tdmi_fast_two(w, ((1.0 - w) - halved) + (z * z * p - h * l));
}

TDM_FN double tdmi_sin_quarter(tdmi_trig_t t, tdm_u64 sign) {
  const double s = tdmi_sin_kernel(t.h, t.l).h;
  const double c = tdmi_cos_kernel(t.h, t.l).h;
  const double y = tdmi_sel_odd(t.quarter, c, s);
  return tdmi_double(tdmi_bits(y) ^ ((tdm_u64)(t.quarter & 2u) << 62) ^ sign);
}

TDM_FN double tdm_sin(double x) {
  return tdmi_sin_quarter(tdmi_trig_reduce(tdmi_abs(x)), tdmi_bits(x) & 0x8000000000000000u);
}

TDM_FN double tdm_cos(double x) {
  tdmi_trig_t t = tdmi_trig_reduce(tdmi_abs(x));
  t.quarter += 1u;
  return tdmi_sin_quarter(t, 0u);
}

TDM_FN double tdm_tan(double x) {
  const tdmi_trig_t t = tdmi_trig_reduce(tdmi_abs(x));
  const tdmi_dd s = tdmi_sin_kernel(t.h, t.l);
  const tdmi_dd c = tdmi_cos_kernel(t.h, t.l);
  tdmi_dd n, d;
  n.h = tdmi_sel_odd(t.quarter, -c.h, s.h);
  n.l = tdmi_sel_odd(t.quarter, -c.l, s.l);
  d.h = tdmi_sel_odd(t.quarter, s.h, c.h);
  d.l = tdmi_sel_odd(t.quarter, s.l, c.l);
  n = tdmi_dd_div(n, d);
  n.h = tdmi_sel(tdmi_abs(x) < 0x1p-28, tdmi_abs(x), n.h + n.l);
  return tdmi_double(tdmi_bits(n.h) ^ (tdmi_bits(x) & 0x8000000000000000u));
}

// ---- f64: inverse trigonometric ---------------------------------------------------------------

// (asin(s) - s) / s as a function of z = s^2 <= 1/4.
TDM_FN double tdmi_asin_rest(double z) {
  double p = 0x1.0ccaefed5931p-5;
  p = TDMI_H3(p, z, -0x1.5cca79cd0f32p-6, 0x1.66f7d09244197p-6, 0x1.db0ad2eb66a95p-9);
  p = TDMI_H3(p, z, 0x1.61f362cb217dbp-7, 0x1.7565515278598p-7, 0x1.ca2370362319fp-7);
  p = TDMI_H3(p, z, 0x1.1c49c777df7bep-6, 0x1.6e8be11de753p-6, 0x1.f1c71a80efe2p-6);
  p = TDMI_H3(p, z, 0x1.6db6db7246d23p-5, 0x1.333333332dcep-4, 0x1.5555555555579p-3);
  return z * p;
}

// |x| > 1/2: asin(x) = pi/2 - 2 asin(sqrt((1 - |x|) / 2)).
TDM_FN double tdm_asin(double x) {
  const double a = tdmi_abs(x);
  const int mid = a < 0.5;
  const double z = tdmi_sel(mid, x * x, 0.5 * (1.0 - a));
  const double r = tdmi_asin_rest(z);
  const double s = tdm_sqrt(z);
  const double sh = tdmi_upper(s);
  const double c = (z - sh * sh) / tdmi_sel(z > 0.0, s + sh, 1.0);
  const double p = 2.0 * s * r - (0x1.1a62633145c07p-54 - 2.0 * c);
  const double q = 0x1.921fb54442d18p-1 - 2.0 * sh;
  const double y = tdmi_sel(a <= 1.0, 0x1.921fb54442d18p-1 - (p - q), tdmi_nan());
  return tdmi_sel(mid, x + x * r, tdmi_sign(y, x));
}

TDM_FN double tdm_acos(double x) {
  const double a = tdmi_abs(x);
  const int mid = a < 0.5;
  const double z = tdmi_sel(mid, x * x, 0.5 * (1.0 - a));
  const double r = tdmi_asin_rest(z);
  const double s = tdm_sqrt(z);
  const double sh = tdmi_upper(s);
  const double c = (z - sh * sh) / tdmi_sel(z > 0.0, s + sh, 1.0);
  const double near_zero = 0x1.921fb54442d18p0 - (x - (0x1.1a62633145c07p-54 - x * r));
  const double near_one = 2.0 * (sh + (s * r + c));
  const double near_minus = 2.0 * (0x1.921fb54442d18p0 - (s + (s * r - 0x1.1a62633145c07p-54)));
  const double y = tdmi_sel(x > 0.0, near_one, near_minus);
  return tdmi_sel(mid, near_zero, tdmi_sel(a <= 1.0, y, tdmi_nan()));
}

// atan(n / d) for 0 <= n, 0 < d: around 0, 1/2, 1, 3/2 or infinity, whichever is near.
TDM_FN double tdmi_atan_ratio(double q) {
  const int g1 = q >= 0.4375, g2 = q >= 0.6875, g3 = q >= 1.1875, g4 = q >= 2.4375;
  double n = q, d = 1.0, hi = 0.0, lo = 0.0, t, z;
  n = tdmi_sel(g1, (q + q) - 1.0, n);
  d = tdmi_sel(g1, q + 2.0, d);
  hi = tdmi_sel(g1, 0x1.dac670561bb4fp-2, hi);
  lo = tdmi_sel(g1, 0x1.a2b7f222f65e2p-56, lo);
  n = tdmi_sel(g2, q - 1.0, n);
  d = tdmi_sel(g2, q + 1.0, d);
  hi = tdmi_sel(g2, 0x1.921fb54442d18p-1, hi);
  lo = tdmi_sel(g2, 0x1.1a62633145c07p-55, lo);
  n = tdmi_sel(g3, q - 1.5, n);
  d = tdmi_sel(g3, 1.0 + 1.5 * q, d);
  hi = tdmi_sel(g3, 0x1.f730bd281f69bp-1, hi);
  lo = tdmi_sel(g3, 0x1.007887af0cbbdp-56, lo);
  n = tdmi_sel(g4, -1.0, n);
  d = tdmi_sel(g4, q, d);
  hi = tdmi_sel(g4, 0x1.921fb54442d18p0, hi);
  lo = tdmi_sel(g4, 0x1.1a62633145c07p-54, lo);
  t = n / d;
  z = t * t;
  double p = -0x1.0a9019d4058ap-6;
  p = TDMI_H3(p, z, 0x1.2b226d5718f3ap-5, -0x1.97a61abc2cbadp-5, 0x1.dddf495e0dfbep-5);
  p = TDMI_H3(p, z, -0x1.10d625c85debbp-4, 0x1.3b0f246546c76p-4, -0x1.745cdbed4782p-4);
  p = TDMI_H3(p, z, 0x1.c71c6fde3f94fp-4, -0x1.2492491ffd20bp-3, 0x1.999999998e9ccp-3);
  p = TDMI_H1(p, z, -0x1.555555555550cp-2);
  return hi - ((t * (z * -p) - lo) - t);
}

TDM_FN double tdm_atan(double x) { return tdmi_sign(tdmi_atan_ratio(tdmi_abs(x)), x); }

TDM_FN double tdm_atan2(double y, double x) {
  const double a = tdmi_abs(y), b = tdmi_abs(x);
  const double ratio = tdmi_sel(a == b, 1.0, a / b);
  double r = tdmi_atan_ratio(tdmi_sel(a == 0.0, 0.0, ratio));
  r = tdmi_sel((int)(tdmi_bits(x) >> 63), 0x1.921fb54442d18p1 - (r - 0x1.1a62633145c07p-53), r);
  return tdmi_sel((x != x) | (y != y), x + y, tdmi_sign(r, y));
}

// ---- f64: inverse hyperbolic, cube root -------------------------------------------------------

// log1p(a + a^2 / (1 + sqrt(a^2 + 1))); log(2a) beyond 2^30.
TDM_FN double tdm_asinh(double x) {
  const double a = tdmi_abs(x);
  const double b = tdmi_sel(a > 0x1p30, 0x1p30, a);
  const double big = tdmi_log_sum(tdmi_log_parts(a).f, 0.0, (double)(tdmi_log_parts(a).k + 1));
  const tdmi_dd sq = tdmi_two_prod(b, b);
  tdmi_dd root = tdmi_two_sum(1.0, sq.h);
  tdmi_dd d, s;
  double y;
  root.l = root.l + sq.l;
  root = tdmi_dd_sqrt(root);
  d = tdmi_two_sum(1.0, root.h);
  d.l = d.l + root.l;
  d = tdmi_dd_div(sq, d);
  s = tdmi_two_sum(b, d.h);
  y = tdmi_log1p_dd(s.h, s.l + d.l);
  y = tdmi_sel(a > 0x1p30, tdmi_sel(a < tdmi_inf(), big, a), y);
  return tdmi_sel(a < 0x1p-28, x, tdmi_sign(y, x));
}

// log1p(t + sqrt(t^2 + 2t)), t = x - 1; log(2x) beyond 2^30.
TDM_FN double tdm_acosh(double x) {
  const double b = tdmi_sel(x > 0x1p30, 0x1p30, x);
  const double big = tdmi_log_sum(tdmi_log_parts(x).f, 0.0, (double)(tdmi_log_parts(x).k + 1));
  const tdmi_dd t = tdmi_two_sum(b, -1.0);
  tdmi_dd u = tdmi_two_sum(b, 1.0);
  tdmi_dd s;
  double y;
  u = tdmi_dd_sqrt(tdmi_dd_mul(t, u));
  s = tdmi_two_sum(t.h, u.h);
  y = tdmi_log1p_dd(s.h, s.l + (t.l + u.l));
  y = tdmi_sel(x > 0x1p30, tdmi_sel(x < tdmi_inf(), big, x), y);
  return tdmi_sel(x < 1.0, tdmi_nan(), y);
}

// log1p(2a / (1 - a)) / 2.
TDM_FN double tdm_atanh(double x) {
  const double a = tdmi_abs(x);
  tdmi_dd n, d;
  double y;
  n.h = a + a;
  n.l = 0.0;
  d = tdmi_dd_div(n, tdmi_two_sum(tdmi_sel(a < 1.0, 1.0, 2.0), -a));
  y = 0.5 * tdmi_log1p_dd(d.h, d.l);
  y = tdmi_sel(a < 1.0, y, tdmi_sel(a == 1.0, tdmi_inf(), tdmi_nan()));
  return tdmi_sel(a < 0x1p-28, x, tdmi_sign(y, x));
}

// A start from the exponent divided by three (3 %), two steps of Halley (2^-45), and a last step of
// Newton's from a start cut to 26 bits, whose square is exact.
TDM_FN double tdm_cbrt(double x) {
  const double a = tdmi_abs(x);
  const int tiny = a<0x1p-1022, huge = a> 0x1p1000;
  const double v = a * tdmi_sel(tiny, 0x1p54, tdmi_sel(huge, 0x1p-54, 1.0));
  double t = tdmi_double((tdm_u64)((tdm_u32)(tdmi_bits(v) >> 32) / 3u + 715094163u) << 32);
  double c = t * t * t;
  double r;
  t = t * ((c + (v + v)) / ((c + c) + v));
  c = t * t * t;
  t = t * ((c + (v + v)) / ((c + c) + v));
  t = tdmi_double((tdmi_bits(t) + 0x4000000u) & 0xfffffffff8000000u);
  r = v / (t * t);
  t = t + t * ((r - t) / ((t + t) + r));
  t = t * tdmi_sel(tiny, 0x1p-18, tdmi_sel(huge, 0x1p18, 1.0));
  return tdmi_sel(a < tdmi_inf(), tdmi_sel(a > 0.0, tdmi_sign(t, x), x), x + x);
}

#include "tandem/base/math_prelude_special.h"

#endif
