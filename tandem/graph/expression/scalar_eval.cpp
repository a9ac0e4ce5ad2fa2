// SPDX-License-Identifier: Apache-2.0
// The scalar evaluator: the meaning of each instruction for each register type. Integers are
// computed unsigned (they wrap, nothing is undefined); floats only use the prelude.
#include "tandem/graph/expression/scalar_eval.h"

#include "tandem/base/error.h"
#include "tandem/base/half.h"
#include "tandem/base/math_prelude.h"
#include "tandem/base/small_vec.h"
#include "tandem/graph/op_def.h"

namespace tandem {
namespace {

// ---- floats

#define TD_MATH1(name)                                           \
  inline float math_##name(float x) { return tdm_##name##f(x); } \
  inline double math_##name(double x) { return tdm_##name(x); }
TD_MATH1(sqrt)
TD_MATH1(rsqrt)
TD_MATH1(exp)
TD_MATH1(exp2)
TD_MATH1(expm1)
TD_MATH1(log)
TD_MATH1(log2)
TD_MATH1(log10)
TD_MATH1(log1p)
TD_MATH1(sin)
TD_MATH1(cos)
TD_MATH1(tan)
TD_MATH1(asin)
TD_MATH1(acos)
TD_MATH1(atan)
TD_MATH1(sinh)
TD_MATH1(cosh)
TD_MATH1(tanh)
TD_MATH1(asinh)
TD_MATH1(acosh)
TD_MATH1(atanh)
TD_MATH1(erf)
TD_MATH1(erfc)
TD_MATH1(erfinv)
TD_MATH1(sigmoid)
TD_MATH1(erfcx)
TD_MATH1(ndtri)
TD_MATH1(i0e)
TD_MATH1(i1e)
TD_MATH1(lgamma)
TD_MATH1(digamma)
#undef TD_MATH1

inline float math_floor(float x) { return __builtin_floorf(x); }
inline double math_floor(double x) { return __builtin_floor(x); }
inline float math_ceil(float x) { return __builtin_ceilf(x); }
inline double math_ceil(double x) { return __builtin_ceil(x); }
inline float math_round(float x) { return __builtin_rintf(x); }
inline double math_round(double x) { return __builtin_rint(x); }
inline float math_trunc(float x) { return __builtin_truncf(x); }
inline double math_trunc(double x) { return __builtin_trunc(x); }
inline float math_abs(float x) { return __builtin_fabsf(x); }
inline double math_abs(double x) { return __builtin_fabs(x); }
inline float math_fmod(float a, float b) { return __builtin_fmodf(a, b); }
inline double math_fmod(double a, double b) { return __builtin_fmod(a, b); }
inline float math_pow(float a, float b) { return tdm_powf(a, b); }
inline double math_pow(double a, double b) { return tdm_pow(a, b); }
inline float math_atan2(float a, float b) { return tdm_atan2f(a, b); }
inline double math_atan2(double a, double b) { return tdm_atan2(a, b); }
inline float math_zeta(float a, float b) { return tdm_zetaf(a, b); }
inline double math_zeta(double a, double b) { return tdm_zeta(a, b); }
inline float math_gammainc(float a, float b) { return tdm_gammaincf(a, b); }
inline double math_gammainc(double a, double b) { return tdm_gammainc(a, b); }
inline float math_gammaincc(float a, float b) { return tdm_gammainccf(a, b); }
inline double math_gammaincc(double a, double b) { return tdm_gammaincc(a, b); }

template <class T>
T real_remainder(T a, T b) {
  const T m = math_fmod(a, b);
  return m != T(0) && (m < T(0)) != (b < T(0)) ? m + b : m;
}

// Like PyTorch's div_floor: the quotient of the exact remainder, so that a == q * b + remainder.
template <class T>
T real_floor_div(T a, T b) {
  if (b == T(0)) return a / b;
  const T m = math_fmod(a, b);
  T q = (a - m) / b;
  if (m != T(0) && (m < T(0)) != (b < T(0))) q -= T(1);
  if (q == T(0)) return T(0) * (a / b);
  const T r = math_floor(q);
  return q - r > T(0.5) ? r + T(1) : r;
}

template <class T>
T real_op(ScalarOp op, T a, T b) {
  switch (op) {
// clang-format off
#define TD_CASE1(name) \
  case ScalarOp::name: \
    return math_##name(a);
    TD_CASE1(abs) TD_CASE1(floor) TD_CASE1(ceil) TD_CASE1(round) TD_CASE1(trunc) TD_CASE1(sqrt)
    TD_CASE1(rsqrt) TD_CASE1(exp) TD_CASE1(exp2) TD_CASE1(expm1) TD_CASE1(log) TD_CASE1(log2)
    TD_CASE1(log10) TD_CASE1(log1p) TD_CASE1(sin) TD_CASE1(cos) TD_CASE1(tan) TD_CASE1(asin)
    TD_CASE1(acos) TD_CASE1(atan) TD_CASE1(sinh) TD_CASE1(cosh) TD_CASE1(tanh) TD_CASE1(asinh)
    TD_CASE1(acosh) TD_CASE1(atanh) TD_CASE1(erf) TD_CASE1(erfc) TD_CASE1(erfinv)
    TD_CASE1(sigmoid) TD_CASE1(erfcx) TD_CASE1(ndtri) TD_CASE1(i0e) TD_CASE1(i1e)
    TD_CASE1(lgamma) TD_CASE1(digamma)
#undef TD_CASE1
        // clang-format on
        case ScalarOp::neg : return -a;
    case ScalarOp::sign:
      return static_cast<T>(a > T(0)) - static_cast<T>(a < T(0));
    case ScalarOp::add:
      return a + b;
    case ScalarOp::sub:
      return a - b;
    case ScalarOp::mul:
      return a * b;
    case ScalarOp::div:
      return a / b;
    case ScalarOp::floor_div:
      return real_floor_div(a, b);
    case ScalarOp::trunc_div:
      return math_trunc(a / b);
    case ScalarOp::remainder:
      return real_remainder(a, b);
    case ScalarOp::fmod:
      return math_fmod(a, b);
    case ScalarOp::pow:
      return math_pow(a, b);
    case ScalarOp::atan2:
      return math_atan2(a, b);
    case ScalarOp::zeta:
      return math_zeta(a, b);
    case ScalarOp::gammainc:
      return math_gammainc(a, b);
    case ScalarOp::gammaincc:
      return math_gammaincc(a, b);
    // NaN wins in max and min and loses in fmax and fmin; equal values give the first.
    case ScalarOp::max:
      return b > a || b != b ? b : a;
    case ScalarOp::min:
      return b < a || b != b ? b : a;
    case ScalarOp::fmax:
      return b > a || a != a ? b : a;
    case ScalarOp::fmin:
      return b < a || a != a ? b : a;
    default:
      TD_FAIL(Internal, "scalar op {} has no floating form", static_cast<int>(op));
  }
}

template <class T>
bool real_test(ScalarOp op, T a, T b) {
  switch (op) {
    case ScalarOp::isnan:
      return a != a;
    case ScalarOp::isinf:
      return math_abs(a) == static_cast<T>(__builtin_inf());
    case ScalarOp::isfinite:
      return math_abs(a) < static_cast<T>(__builtin_inf());
    case ScalarOp::eq:
      return a == b;
    case ScalarOp::ne:
      return a != b;
    case ScalarOp::lt:
      return a < b;
    case ScalarOp::le:
      return a <= b;
    case ScalarOp::gt:
      return a > b;
    case ScalarOp::ge:
      return a >= b;
    default:
      TD_FAIL(Internal, "scalar op {} is not a test of floats", static_cast<int>(op));
  }
}

// ---- integers

int64_t wrapped(uint64_t x) { return static_cast<int64_t>(x); }
int64_t int_neg(int64_t x) { return wrapped(0 - static_cast<uint64_t>(x)); }

int64_t int_quotient(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? int_neg(a) : a / b; }
int64_t int_rest(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

int64_t int_pow(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
  uint64_t base = static_cast<uint64_t>(a), r = 1;
  for (; b > 0; b >>= 1, base *= base)
    if (b & 1) r *= base;
  return wrapped(r);
}

int64_t int_division(ScalarOp op, int64_t a, int64_t b, ErrorWord* error) {
  if (b == 0 && error) error->report(kDivisionByZero, 0);
  const int64_t q = int_quotient(a, b), r = int_rest(a, b);
  switch (op) {
    case ScalarOp::trunc_div:
      return q;
    case ScalarOp::fmod:
      return r;
    case ScalarOp::floor_div:
      return r != 0 && (a < 0) != (b < 0) ? q - 1 : q;
    default:
      return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
}

int64_t int_op(ScalarOp op, int64_t a, int64_t b, ErrorWord* error) {
  const uint64_t ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (op) {
    case ScalarOp::neg:
      return int_neg(a);
    case ScalarOp::abs:
      return a < 0 ? int_neg(a) : a;
    case ScalarOp::sign:
      return (a > 0) - (a < 0);
    case ScalarOp::floor:
    case ScalarOp::ceil:
    case ScalarOp::round:
    case ScalarOp::trunc:
      return a;
    case ScalarOp::bit_not:
      return ~a;
    case ScalarOp::add:
      return wrapped(ua + ub);
    case ScalarOp::sub:
      return wrapped(ua - ub);
    case ScalarOp::mul:
      return wrapped(ua * ub);
    case ScalarOp::floor_div:
    case ScalarOp::trunc_div:
    case ScalarOp::remainder:
    case ScalarOp::fmod:
      return int_division(op, a, b, error);
    case ScalarOp::pow:
      return int_pow(a, b);
    case ScalarOp::max:
    case ScalarOp::fmax:
      return b > a ? b : a;
    case ScalarOp::min:
    case ScalarOp::fmin:
      return b < a ? b : a;
    case ScalarOp::bit_and:
      return a & b;
    case ScalarOp::bit_or:
      return a | b;
    case ScalarOp::bit_xor:
      return a ^ b;
    case ScalarOp::shl:
      return ub > 63 ? 0 : wrapped(ua << (b & 63));
    case ScalarOp::shr:
      return ub > 63 ? 0 : a >> (b & 63);
    default:
      TD_FAIL(Internal, "scalar op {} has no integer form", static_cast<int>(op));
  }
}

bool int_test(ScalarOp op, int64_t a, int64_t b) {
  switch (op) {
    case ScalarOp::isnan:
    case ScalarOp::isinf:
      return false;
    case ScalarOp::isfinite:
      return true;
    case ScalarOp::eq:
      return a == b;
    case ScalarOp::ne:
      return a != b;
    case ScalarOp::lt:
      return a < b;
    case ScalarOp::le:
      return a <= b;
    case ScalarOp::gt:
      return a > b;
    case ScalarOp::ge:
      return a >= b;
    default:
      TD_FAIL(Internal, "scalar op {} is not a test of integers", static_cast<int>(op));
  }
}

bool bool_op(ScalarOp op, bool a, bool b) {
  switch (op) {
    case ScalarOp::abs:
    case ScalarOp::sign:
      return a;
    case ScalarOp::logical_not:
    case ScalarOp::bit_not:
      return !a;
    case ScalarOp::add:
    case ScalarOp::max:
    case ScalarOp::fmax:
    case ScalarOp::logical_or:
    case ScalarOp::bit_or:
      return a || b;
    case ScalarOp::mul:
    case ScalarOp::min:
    case ScalarOp::fmin:
    case ScalarOp::logical_and:
    case ScalarOp::bit_and:
      return a && b;
    case ScalarOp::sub:
    case ScalarOp::logical_xor:
    case ScalarOp::bit_xor:
      return a != b;
    default:
      return int_test(op, a, b);
  }
}

// ---- conversions

// Truncates, saturates, NaN gives 0.
template <class T>
int64_t to_int(T x) {
  constexpr T kTop = static_cast<T>(9223372036854775808.0);
  if (x != x) return 0;
  if (x >= kTop) return INT64_MAX;
  if (x < -kTop) return INT64_MIN;
  return static_cast<int64_t>(x);
}

template <class F>
Value convert_from(F x, Reg to) {
  Value r;
  switch (to) {
    case Reg::f32:
      r.f32 = static_cast<float>(x);
      break;
    case Reg::f64:
      r.f64 = static_cast<double>(x);
      break;
    case Reg::i64:
      if constexpr (std::is_floating_point_v<F>)
        r.i64 = to_int(x);
      else
        r.i64 = x;
      break;
    case Reg::b8:
      r.b8 = x != F(0);
      break;
  }
  return r;
}

Value convert(Value v, Reg from, Reg to) {
  switch (from) {
    case Reg::f32:
      return convert_from(v.f32, to);
    case Reg::f64:
      return convert_from(v.f64, to);
    case Reg::i64:
      return convert_from(v.i64, to);
    case Reg::b8:
      return convert_from(static_cast<int64_t>(v.b8), to);
  }
  __builtin_unreachable();
}

int64_t wrap_to(int64_t x, DType t) {
  switch (t) {
    case DType::i32:
      return static_cast<int32_t>(static_cast<uint64_t>(x));
    case DType::i16:
      return static_cast<int16_t>(static_cast<uint64_t>(x));
    case DType::i8:
      return static_cast<int8_t>(static_cast<uint64_t>(x));
    case DType::u8:
      return static_cast<uint8_t>(static_cast<uint64_t>(x));
    default:
      return x;
  }
}

float round_to(float x, DType t) {
  if (t == DType::f16) return static_cast<float>(Half(x));
  if (t == DType::bf16) return static_cast<float>(BFloat16(x));
  return x;
}

}  // namespace

bool has_integer_form(ScalarOp op) {
  switch (op) {
    case ScalarOp::div:
    case ScalarOp::atan2:
    case ScalarOp::zeta:
    case ScalarOp::gammainc:
    case ScalarOp::gammaincc:
      return false;
    default:
      return op < ScalarOp::sqrt || op > ScalarOp::digamma;
  }
}

Value evaluate_one(const ScalarInstr& i, Value a, Value b, Value c, ErrorWord* error) {
  Value r;
  switch (i.op) {
    case ScalarOp::convert:
      return convert(a, i.type, i.result);
    case ScalarOp::wrap:
      if (i.type == Reg::f32)
        r.f32 = round_to(a.f32, i.narrow);
      else
        r.i64 = wrap_to(a.i64, i.narrow);
      return r;
    case ScalarOp::select:
      return a.b8 ? b : c;
    default:
      break;
  }
  const bool test = i.result == Reg::b8;
  switch (i.type) {
    case Reg::f32:
      if (test)
        r.b8 = real_test(i.op, a.f32, b.f32);
      else
        r.f32 = real_op(i.op, a.f32, b.f32);
      break;
    case Reg::f64:
      if (test)
        r.b8 = real_test(i.op, a.f64, b.f64);
      else
        r.f64 = real_op(i.op, a.f64, b.f64);
      break;
    case Reg::i64:
      if (test)
        r.b8 = int_test(i.op, a.i64, b.i64);
      else
        r.i64 = int_op(i.op, a.i64, b.i64, error);
      break;
    case Reg::b8:
      r.b8 = bool_op(i.op, a.b8, b.b8);
      break;
  }
  return r;
}

void evaluate(const ScalarProgram& p, const Value* in, Value* regs, ErrorWord* error) {
  const Value none{};
  for (size_t k = 0; k < p.code.size(); ++k) {
    const ScalarInstr& i = p.code[k];
    if (i.op == ScalarOp::input)
      regs[k] = in[i.input];
    else if (i.op == ScalarOp::constant)
      regs[k] = to_value(i.imm, i.result);
    else
      regs[k] = evaluate_one(i, i.a >= 0 ? regs[i.a] : none, i.b >= 0 ? regs[i.b] : none,
                             i.c >= 0 ? regs[i.c] : none, error);
  }
}

Value to_value(const Scalar& s, Reg r) {
  return s.kind == 2 ? convert_from(s.f, r) : convert_from(s.i, r);
}

Value load_value(const void* data, DType t, int64_t index) {
  Value v;
  visit_dtype(t, [&](auto tag) {
    using T = decltype(tag);
    const T x = static_cast<const T*>(data)[index];
    if constexpr (std::is_same_v<T, double>)
      v.f64 = x;
    else if constexpr (std::is_same_v<T, bool>)
      v.b8 = x;
    else if constexpr (std::is_integral_v<T>)
      v.i64 = x;
    else
      v.f32 = static_cast<float>(x);
  });
  return v;
}

void store_value(void* data, DType t, int64_t index, Value v) {
  visit_dtype(t, [&](auto tag) {
    using T = decltype(tag);
    T& x = static_cast<T*>(data)[index];
    if constexpr (std::is_same_v<T, double>)
      x = v.f64;
    else if constexpr (std::is_same_v<T, bool>)
      x = v.b8;
    else if constexpr (std::is_integral_v<T>)
      x = static_cast<T>(static_cast<uint64_t>(v.i64));
    else
      x = T(v.f32);
  });
}

namespace {

// Element offset of `index` (row-major over `shape`) in `a`, broadcast to that shape.
int64_t offset_of(const Array& a, const Array& shape, const int64_t* index) {
  int64_t offset = 0;
  const int lead = shape.rank - a.rank;
  for (int d = 0; d < a.rank; ++d)
    if (a.shape[d] != 1) offset += index[lead + d] * a.strides[d];
  return offset;
}

}  // namespace

void pointwise_reference(const KernelCall& call) {
  const ScalarProgram& p = program_of(call);
  const Array& shape = call.out[0];
  SmallVec<Value, 16> in;
  SmallVec<Value, 64> regs;
  in.resize(p.in.size());
  regs.resize(p.code.size());
  for (int k = 0; k < call.n_in; ++k)
    if (call.in[k].is_scalar) in[k] = to_value(call.in[k].scalar, reg_of(p.in[k]));
  int64_t index[kMaxRank] = {};
  for (int64_t e = 0; e < shape.numel; ++e) {
    for (int k = 0; k < call.n_in; ++k)
      if (call.in[k].data) {
        in[k] = load_value(call.in[k].data, p.in[k], offset_of(call.in[k], shape, index));
      }
    evaluate(p, in.data(), regs.data(), call.error);
    for (size_t o = 0; o < p.out.size(); ++o)
      store_value(call.out[o].data, p.out[o].dtype, offset_of(call.out[o], shape, index),
                  regs[p.out[o].reg]);
    for (int d = shape.rank - 1; d >= 0 && ++index[d] == shape.shape[d]; --d) index[d] = 0;
  }
}

}  // namespace tandem
