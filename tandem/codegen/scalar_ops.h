// SPDX-License-Identifier: Apache-2.0
// What each scalar op does to registers: one text of C99 that is also C++. The tile kernels call
// these functions, and emitted C gets this text pasted after the math prelude, so both executors
// give equal bits. Registers are f (float), d (double), i (64-bit integer), b (0 or 1), and in
// emitted C n (32-bit integer, codegen/narrow_integers.h). Holds: integers wrap, integer division
// never traps (by zero it gives 0 and the caller reports it), float to integer truncates and
// saturates (NaN gives 0). Included by tile_kernels.inc only.
#ifndef TDM_SCALAR_OPS_H
#define TDM_SCALAR_OPS_H

#include "tandem/base/math_prelude.h"

typedef __INT64_TYPE__ tdm_i64;
typedef __INT32_TYPE__ tdm_i32;
typedef __UINT8_TYPE__ tdm_b8;
typedef __UINT16_TYPE__ tdm_u16;

#define TDM_WRAP(x) ((tdm_i64)(x))
#define TDM_UNSIGNED(x) ((__UINT64_TYPE__)(x))

// ---- one operand
TDM_FN float tdo_neg_f(float x) { return -x; }
TDM_FN double tdo_neg_d(double x) { return -x; }
TDM_FN tdm_i64 tdo_neg_i(tdm_i64 x) { return TDM_WRAP(0 - TDM_UNSIGNED(x)); }
TDM_FN float tdo_abs_f(float x) { return __builtin_fabsf(x); }
TDM_FN double tdo_abs_d(double x) { return __builtin_fabs(x); }
TDM_FN tdm_i64 tdo_abs_i(tdm_i64 x) { return x < 0 ? tdo_neg_i(x) : x; }
TDM_FN tdm_b8 tdo_abs_b(tdm_b8 x) { return x; }
TDM_FN float tdo_sign_f(float x) { return (float)(x > 0.0f) - (float)(x < 0.0f); }
TDM_FN double tdo_sign_d(double x) { return (double)(x > 0.0) - (double)(x < 0.0); }
TDM_FN tdm_i64 tdo_sign_i(tdm_i64 x) { return (tdm_i64)(x > 0) - (tdm_i64)(x < 0); }
TDM_FN tdm_b8 tdo_sign_b(tdm_b8 x) { return x; }
// Rounding by the adder where no instruction does it: 2^23 (2^52) plus a smaller number has no
// fraction. Vector code everywhere, which the compiler's floor is not while it must keep the
// inexact flag.
#ifdef __SSE4_1__
TDM_FN float tdo_round_f(float x) { return __builtin_rintf(x); }
TDM_FN double tdo_round_d(double x) { return __builtin_rint(x); }
#else
TDM_FN float tdo_round_f(float x) {
  const float a = tdmi_absf(x);
  return tdmi_self(a < 0x1p23f, tdmi_signf((a + 0x1p23f) - 0x1p23f, x), x);
}
TDM_FN double tdo_round_d(double x) {
  const double a = tdmi_abs(x);
  return tdmi_sel(a < 0x1p52, tdmi_sign((a + 0x1p52) - 0x1p52, x), x);
}
#endif
#define TDM_ROUNDING(f, T, abs, sel, sign)      \
  TDM_FN T tdo_floor_##f(T x) {                 \
    const T r = tdo_round_##f(x);               \
    return r - sel(r > x, (T)1, (T)0);          \
  }                                             \
  TDM_FN T tdo_ceil_##f(T x) {                  \
    const T r = tdo_round_##f(x);               \
    return sign(r + sel(r < x, (T)1, (T)0), x); \
  }                                             \
  TDM_FN T tdo_trunc_##f(T x) { return sign(tdo_floor_##f(abs(x)), x); }
TDM_ROUNDING(f, float, tdmi_absf, tdmi_self, tdmi_signf)
TDM_ROUNDING(d, double, tdmi_abs, tdmi_sel, tdmi_sign)
TDM_FN tdm_i64 tdo_floor_i(tdm_i64 x) { return x; }
TDM_FN tdm_i64 tdo_ceil_i(tdm_i64 x) { return x; }
TDM_FN tdm_i64 tdo_round_i(tdm_i64 x) { return x; }
TDM_FN tdm_i64 tdo_trunc_i(tdm_i64 x) { return x; }
TDM_FN tdm_b8 tdo_isnan_f(float x) { return x != x; }
TDM_FN tdm_b8 tdo_isnan_d(double x) { return x != x; }
TDM_FN tdm_b8 tdo_isnan_i(tdm_i64 x) { return (tdm_b8)(x & 0); }
TDM_FN tdm_b8 tdo_isinf_f(float x) { return __builtin_fabsf(x) == __builtin_inff(); }
TDM_FN tdm_b8 tdo_isinf_d(double x) { return __builtin_fabs(x) == __builtin_inf(); }
TDM_FN tdm_b8 tdo_isinf_i(tdm_i64 x) { return (tdm_b8)(x & 0); }
TDM_FN tdm_b8 tdo_isfinite_f(float x) { return __builtin_fabsf(x) < __builtin_inff(); }
TDM_FN tdm_b8 tdo_isfinite_d(double x) { return __builtin_fabs(x) < __builtin_inf(); }
TDM_FN tdm_b8 tdo_isfinite_i(tdm_i64 x) { return (tdm_b8)((x & 0) | 1); }
TDM_FN tdm_b8 tdo_logical_not_b(tdm_b8 x) { return x ^ 1; }
TDM_FN tdm_i64 tdo_bit_not_i(tdm_i64 x) { return ~x; }
TDM_FN tdm_b8 tdo_bit_not_b(tdm_b8 x) { return x ^ 1; }

// ---- two operands
#define TDM_ARITH(name, symbol, bool_symbol)                              \
  TDM_FN float tdo_##name##_f(float a, float b) { return a symbol b; }    \
  TDM_FN double tdo_##name##_d(double a, double b) { return a symbol b; } \
  TDM_FN tdm_i64 tdo_##name##_i(tdm_i64 a, tdm_i64 b) {                   \
    return TDM_WRAP(TDM_UNSIGNED(a) symbol TDM_UNSIGNED(b));              \
  }                                                                       \
  TDM_FN tdm_b8 tdo_##name##_b(tdm_b8 a, tdm_b8 b) { return a bool_symbol b; }
TDM_ARITH(add, +, |)
TDM_ARITH(sub, -, ^)
TDM_ARITH(mul, *, &)

TDM_FN tdm_i64 tdo_trunc_div_i(tdm_i64 a, tdm_i64 b) {
  return b == 0 ? 0 : b == -1 ? tdo_neg_i(a) : a / b;
}
TDM_FN tdm_i64 tdo_fmod_i(tdm_i64 a, tdm_i64 b) { return b == 0 || b == -1 ? 0 : a % b; }
TDM_FN tdm_i64 tdo_remainder_i(tdm_i64 a, tdm_i64 b) {
  const tdm_i64 m = tdo_fmod_i(a, b);
  return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}
TDM_FN tdm_i64 tdo_floor_div_i(tdm_i64 a, tdm_i64 b) {
  const tdm_i64 q = tdo_trunc_div_i(a, b);
  return tdo_fmod_i(a, b) != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
// The remainder of a quotient below 2^24 without a loop: the quotient of two floats is not an
// integer in f64 unless it is one, and its product with b is exact.
TDM_FN tdm_b8 tdo_near_quotient_f(float a, float b) {
  const float size = __builtin_fabsf(b);
  return (__builtin_fabsf(a) < size * 0x1p24f) & (size < __builtin_inff());
}
TDM_FN float tdo_near_fmod_f(float a, float b) {
  const double q = tdo_trunc_d((double)a / (double)b);
  return tdmi_signf((float)((double)a - q * (double)b), a);
}
TDM_FN float tdo_fmod_f(float a, float b) {
  return tdo_near_quotient_f(a, b) ? tdo_near_fmod_f(a, b) : __builtin_fmodf(a, b);
}
TDM_FN double tdo_fmod_d(double a, double b) { return __builtin_fmod(a, b); }
// From m = fmod(a, b). Floor division as Python's: exact quotient of what the remainder leaves,
// rounded, signed zero kept.
#define TDM_REAL_DIVISION(f, T, sel)                                                           \
  TDM_FN T tdo_div_##f(T a, T b) { return a / b; }                                             \
  TDM_FN T tdo_trunc_div_##f(T a, T b) { return tdo_trunc_##f(a / b); }                        \
  TDM_FN int tdo_unlike_##f(T m, T b) { return (m != (T)0) & ((m < (T)0) != (b < (T)0)); }     \
  TDM_FN T tdo_remainder_of_##f(T m, T b) { return sel(tdo_unlike_##f(m, b), m + b, m); }      \
  TDM_FN T tdo_floor_div_of_##f(T a, T b, T m) {                                               \
    const T ratio = a / b, whole = (a - m) / b;                                                \
    const T q = sel(tdo_unlike_##f(m, b), whole - (T)1, whole), low = tdo_floor_##f(q);        \
    const T r = sel(q - low > (T)0.5, low + (T)1, low);                                        \
    return sel(b == (T)0, ratio, sel(q == (T)0, (T)0 * ratio, r));                             \
  }                                                                                            \
  TDM_FN T tdo_remainder_##f(T a, T b) { return tdo_remainder_of_##f(tdo_fmod_##f(a, b), b); } \
  TDM_FN T tdo_floor_div_##f(T a, T b) { return tdo_floor_div_of_##f(a, b, tdo_fmod_##f(a, b)); }
TDM_REAL_DIVISION(f, float, tdmi_self)
TDM_REAL_DIVISION(d, double, tdmi_sel)

TDM_FN tdm_i64 tdo_pow_i(tdm_i64 a, tdm_i64 b) {
  __UINT64_TYPE__ base = TDM_UNSIGNED(a), r = 1;
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
  for (; b > 0; b >>= 1, base *= base) r = b & 1 ? r * base : r;
  return TDM_WRAP(r);
}

// NaN wins in max and min and loses in fmax and fmin; equal values give the first. Selects by mask:
// see tdmi_self.
#define TDM_EXTREME(name, f, T, sel, symbol, loser) \
  TDM_FN T tdo_##name##_##f(T a, T b) { return sel((b symbol a) | (loser != loser), b, a); }
#define TDM_EXTREMES(name, fname, symbol, bool_symbol)                                \
  TDM_EXTREME(name, f, float, tdmi_self, symbol, b)                                   \
  TDM_EXTREME(name, d, double, tdmi_sel, symbol, b)                                   \
  TDM_EXTREME(fname, f, float, tdmi_self, symbol, a)                                  \
  TDM_EXTREME(fname, d, double, tdmi_sel, symbol, a)                                  \
  TDM_FN tdm_i64 tdo_##name##_i(tdm_i64 a, tdm_i64 b) { return b symbol a ? b : a; }  \
  TDM_FN tdm_i64 tdo_##fname##_i(tdm_i64 a, tdm_i64 b) { return b symbol a ? b : a; } \
  TDM_FN tdm_b8 tdo_##name##_b(tdm_b8 a, tdm_b8 b) { return a bool_symbol b; }        \
  TDM_FN tdm_b8 tdo_##fname##_b(tdm_b8 a, tdm_b8 b) { return a bool_symbol b; }
TDM_EXTREMES(max, fmax, >, |)
TDM_EXTREMES(min, fmin, <, &)

// Where b is no NaN.
TDM_FN float tdo_max_number_f(float a, float b) { return tdmi_self(b > a, b, a); }
TDM_FN float tdo_min_number_f(float a, float b) { return tdmi_self(b < a, b, a); }

#define TDM_COMPARE(name, symbol)                                           \
  TDM_FN tdm_b8 tdo_##name##_f(float a, float b) { return a symbol b; }     \
  TDM_FN tdm_b8 tdo_##name##_d(double a, double b) { return a symbol b; }   \
  TDM_FN tdm_b8 tdo_##name##_i(tdm_i64 a, tdm_i64 b) { return a symbol b; } \
  TDM_FN tdm_b8 tdo_##name##_b(tdm_b8 a, tdm_b8 b) { return a symbol b; }
TDM_COMPARE(eq, ==)
TDM_COMPARE(ne, !=)
TDM_COMPARE(lt, <)
TDM_COMPARE(le, <=)
TDM_COMPARE(gt, >)
TDM_COMPARE(ge, >=)
#define TDM_BITS(name, symbol)                                                    \
  TDM_FN tdm_b8 tdo_logical_##name##_b(tdm_b8 a, tdm_b8 b) { return a symbol b; } \
  TDM_FN tdm_b8 tdo_bit_##name##_b(tdm_b8 a, tdm_b8 b) { return a symbol b; }     \
  TDM_FN tdm_i64 tdo_bit_##name##_i(tdm_i64 a, tdm_i64 b) { return a symbol b; }
TDM_BITS(and, &)
TDM_BITS(or, |)
TDM_BITS(xor, ^)
TDM_FN tdm_i64 tdo_shl_i(tdm_i64 a, tdm_i64 b) {
  const __UINT64_TYPE__ r = TDM_UNSIGNED(a) << (b & 63);
  return TDM_UNSIGNED(b) > 63 ? 0 : TDM_WRAP(r);
}
TDM_FN tdm_i64 tdo_shr_i(tdm_i64 a, tdm_i64 b) {
  const tdm_i64 r = a >> (b & 63);
  return TDM_UNSIGNED(b) > 63 ? 0 : r;
}

TDM_FN float tdo_select_f(tdm_b8 c, float a, float b) { return tdmi_self(c, a, b); }
TDM_FN double tdo_select_d(tdm_b8 c, double a, double b) { return tdmi_sel(c, a, b); }
TDM_FN tdm_i64 tdo_select_i(tdm_b8 c, tdm_i64 a, tdm_i64 b) { return c ? a : b; }
TDM_FN tdm_b8 tdo_select_b(tdm_b8 c, tdm_b8 a, tdm_b8 b) { return c ? a : b; }

// ---- conversions between registers: tdo_<from><to>
// By mask, so that no arm holds a conversion: beyond the range the converted value is 0.
#define TDM_SATURATE(f, T, sel)                                                                    \
  TDM_FN tdm_i64 tdo_##f##i(T x) {                                                                 \
    const T top = (T)9223372036854775808.0;                                                        \
    const tdm_u64 high = (tdm_u64)0 - (tdm_u64)(x >= top), low = (tdm_u64)0 - (tdm_u64)(x < -top); \
    const tdm_i64 r = (tdm_i64)sel((x < top) & (x >= -top), x, (T)0);                              \
    return TDM_WRAP(TDM_UNSIGNED(r) | (high & 0x7fffffffffffffffu) | (low & 0x8000000000000000u)); \
  }
TDM_SATURATE(f, float, tdmi_self)
TDM_SATURATE(d, double, tdmi_sel)
#define TDM_CONVERT(name, From, To) \
  TDM_FN To tdo_##name(From x) { return (To)x; }
TDM_CONVERT(ff, float, float)
TDM_CONVERT(fd, float, double)
TDM_CONVERT(df, double, float)
TDM_CONVERT(dd, double, double)
TDM_CONVERT(if, tdm_i64, float)
TDM_CONVERT(id, tdm_i64, double)
TDM_CONVERT(ii, tdm_i64, tdm_i64)
TDM_CONVERT(bf, tdm_b8, float)
TDM_CONVERT(bd, tdm_b8, double)
TDM_CONVERT(bi, tdm_b8, tdm_i64)
TDM_FN tdm_b8 tdo_fb(float x) { return x != 0.0f; }
TDM_FN tdm_b8 tdo_db(double x) { return x != 0.0; }
TDM_FN tdm_b8 tdo_ib(tdm_i64 x) { return x != 0; }
TDM_FN tdm_b8 tdo_bb(tdm_b8 x) { return x != 0; }

// ---- 32-bit integers: those that wrap keep the low bits of 64
#define TDM_NARROW(name, symbol)                        \
  TDM_FN tdm_i32 tdo_##name##_n(tdm_i32 a, tdm_i32 b) { \
    return (tdm_i32)((tdm_u32)a symbol(tdm_u32) b);     \
  }
TDM_NARROW(add, +)
TDM_NARROW(sub, -)
TDM_NARROW(mul, *)
TDM_NARROW(bit_and, &)
TDM_NARROW(bit_or, |)
TDM_NARROW(bit_xor, ^)
TDM_FN tdm_i32 tdo_neg_n(tdm_i32 x) { return (tdm_i32)(0u - (tdm_u32)x); }
TDM_FN tdm_i32 tdo_sign_n(tdm_i32 x) { return (tdm_i32)(x > 0) - (tdm_i32)(x < 0); }
TDM_FN tdm_i32 tdo_bit_not_n(tdm_i32 x) { return ~x; }
TDM_FN tdm_i32 tdo_select_n(tdm_b8 c, tdm_i32 a, tdm_i32 b) { return c ? a : b; }
TDM_FN tdm_i32 tdo_max_n(tdm_i32 a, tdm_i32 b) { return b > a ? b : a; }
TDM_FN tdm_i32 tdo_min_n(tdm_i32 a, tdm_i32 b) { return b < a ? b : a; }
TDM_FN tdm_i32 tdo_fmax_n(tdm_i32 a, tdm_i32 b) { return b > a ? b : a; }
TDM_FN tdm_i32 tdo_fmin_n(tdm_i32 a, tdm_i32 b) { return b < a ? b : a; }
#define TDM_COMPARE_NARROW(name, symbol) \
  TDM_FN tdm_b8 tdo_##name##_n(tdm_i32 a, tdm_i32 b) { return a symbol b; }
TDM_COMPARE_NARROW(eq, ==)
TDM_COMPARE_NARROW(ne, !=)
TDM_COMPARE_NARROW(lt, <)
TDM_COMPARE_NARROW(le, <=)
TDM_COMPARE_NARROW(gt, >)
TDM_COMPARE_NARROW(ge, >=)
TDM_FN tdm_i32 tdo_fn(float x) {
  const tdm_u32 high = 0u - (tdm_u32)(x >= 0x1p31f), low = 0u - (tdm_u32)(x < -0x1p31f);
  const tdm_i32 r = (tdm_i32)tdmi_self((x < 0x1p31f) & (x >= -0x1p31f), x, 0.0f);
  return (tdm_i32)((tdm_u32)r | (high & 0x7fffffffu) | (low & 0x80000000u));
}
// Where x is NaN or lies within 32 bits.
TDM_FN tdm_i32 tdo_inside_fn(float x) { return (tdm_i32)tdmi_self(x == x, x, 0.0f); }
TDM_FN tdm_i32 tdo_dn(double x) {
  const double below = tdmi_sel(x >= 0x1p31, 2147483647.0, x);
  return (tdm_i32)tdmi_sel(below >= -0x1p31, below, tdmi_sel(x < 0.0, -0x1p31, 0.0));
}
TDM_CONVERT(bn, tdm_b8, tdm_i32)
TDM_CONVERT(nn, tdm_i32, tdm_i32)
TDM_CONVERT(nf, tdm_i32, float)
TDM_CONVERT(nd, tdm_i32, double)
TDM_FN tdm_b8 tdo_nb(tdm_i32 x) { return x != 0; }

// ---- 16-bit floats: the bits of base/half.h
TDM_FN tdm_u32 tdoi_pick(int c, tdm_u32 a, tdm_u32 b) {
  const tdm_u32 m = 0u - (tdm_u32)(c != 0);
  return (a & m) | (b & ~m);
}
TDM_FN tdm_u16 tdo_to_f16(float x) {
  const tdm_u32 u = tdmi_bitsf(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  const tdm_u32 normal = (a - (112u << 23) + 0xfffu + ((a >> 13) & 1u)) >> 13;
  const tdm_u32 tiny = tdmi_bitsf(tdmi_float(a) + 0.5f) - 0x3f000000u;
  tdm_u32 r = tdoi_pick(a < 0x38800000u, tiny, normal);
  r = tdoi_pick(a >= 0x47800000u, 0x7c00u, r);
  r = tdoi_pick(a > 0x7f800000u, 0x7e00u | ((a >> 13) & 0x3ffu), r);
  return (tdm_u16)(r | sign);
}
TDM_FN float tdo_from_f16(tdm_u16 h) {
  const tdm_u32 sign = ((tdm_u32)h & 0x8000u) << 16, a = (tdm_u32)h & 0x7fffu;
  const tdm_u32 tiny = tdmi_bitsf(tdmi_float((a << 13) + (113u << 23)) - tdmi_float(113u << 23));
  const tdm_u32 special = (a << 13) | 0x7f800000u | ((tdm_u32)(a > 0x7c00u) << 22);
  tdm_u32 r = tdoi_pick(a < 0x400u, tiny, (a << 13) + (112u << 23));
  r = tdoi_pick(a >= 0x7c00u, special, r);
  return tdmi_float(r | sign);
}
TDM_FN tdm_u16 tdo_to_bf16(float x) {
  const tdm_u32 u = tdmi_bitsf(x), rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return (tdm_u16)tdoi_pick((u & 0x7fffffffu) > 0x7f800000u, (u >> 16) | 0x40u, rounded);
}
TDM_FN float tdo_from_bf16(tdm_u16 b) { return tdmi_float((tdm_u32)b << 16); }

#endif
