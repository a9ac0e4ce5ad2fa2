// SPDX-License-Identifier: Apache-2.0
// The elementwise ops: includes pointwise.def three times, as expressions, as rows and as
// functions, and has the functions that select a row or its numbers.
#include "tandem/ops/pointwise/pointwise.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "tandem/graph/expression/scalar_eval.h"
#include "tandem/graph/expression/scalar_expr.h"
#include "tandem/graph/infer.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

constexpr double kLn2 = 0.69314718055994530942;
constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// ---- parts of expressions

// The larger side times sqrt(1 + ratio^2): no intermediate overflow.
E hypot_of(const E& a, const E& b) {
  const E high = maximum(abs(a), abs(b)), low = minimum(abs(a), abs(b));
  return where(high == 0, 0, high * sqrt(1 + square(low / high)));
}
// log(1 + exp(x)) for every x.
E softplus_of(const E& x) { return maximum(x, 0) + log1p(exp(-abs(x))); }

// ---- expressions
#define TD_UNPAREN(...) __VA_ARGS__
#define TD_ABCD [[maybe_unused]] const E &a = in[0], &b = in[1], &c = in[2], &d = in[3];
#define TD_GRAD_ARGS \
  [[maybe_unused]] const E *in, [[maybe_unused]] const E *out, [[maybe_unused]] const E &g, E *grads

#define PW1(name, types, e, ...)          \
  void expr_##name(const E* in, E* out) { \
    const E& x = in[0];                   \
    out[0] = e;                           \
  }
#define PW1G(name, types, e, dx, ...)                 \
  PW1(name, types, e)                                 \
  void grad_##name(TD_GRAD_ARGS) {                    \
    [[maybe_unused]] const E &x = in[0], &y = out[0]; \
    grads[0] = dx;                                    \
  }
#define PW1N(name, types, n, value, e, ...) \
  void expr_##name(const E* in, E* out) {   \
    const E &x = in[0], &n = in[1];         \
    out[0] = e;                             \
  }
// The numeric parameters of an activation have no gradient.
#define PW1NG(name, types, n, value, e, dx, ...)                  \
  PW1N(name, types, n, value, e)                                  \
  void grad_##name(TD_GRAD_ARGS) {                                \
    [[maybe_unused]] const E &x = in[0], &n = in[1], &y = out[0]; \
    grads[0] = dx;                                                \
  }
#define PW1NNG(name, types, n, n_value, m, m_value, e, dx, ...)               \
  void expr_##name(const E* in, E* out) {                                     \
    const E &x = in[0], &n = in[1], &m = in[2];                               \
    out[0] = e;                                                               \
  }                                                                           \
  void grad_##name(TD_GRAD_ARGS) {                                            \
    [[maybe_unused]] const E &x = in[0], &n = in[1], &m = in[2], &y = out[0]; \
    grads[0] = dx;                                                            \
  }
#define PW2(name, types, e, ...)          \
  void expr_##name(const E* in, E* out) { \
    const E &a = in[0], &b = in[1];       \
    out[0] = e;                           \
  }
#define PW2G(name, types, e, da, db, ...)                         \
  PW2(name, types, e)                                             \
  void grad_##name(TD_GRAD_ARGS) {                                \
    [[maybe_unused]] const E &a = in[0], &b = in[1], &y = out[0]; \
    grads[0] = da;                                                \
    grads[1] = db;                                                \
  }
#define ROW(name, types, ins, e, ...)     \
  void expr_##name(const E* in, E* out) { \
    TD_ABCD                               \
    out[0] = e;                           \
  }
#define ROWG(name, types, ins, e, ds, ...)   \
  ROW(name, types, ins, e)                   \
  void grad_##name(TD_GRAD_ARGS) {           \
    TD_ABCD                                  \
    const E all[] = {TD_UNPAREN ds};         \
    for (const E& one : all) *grads++ = one; \
  }
#include "tandem/ops/pointwise/pointwise.def"
#undef PW1
#undef PW1G
#undef PW1N
#undef PW1NG
#undef PW1NNG
#undef PW2
#undef PW2G
#undef ROW
#undef ROWG

void expr_cast(const E* in, E* out) { out[0] = in[0]; }

// ---- shape rules that reject more than the family's rule

void infer_no_bool(InferCall& c) {
  infer_pointwise(c);
  TD_CHECK(c.out[0].dtype != DType::b8, DType,
           "expected numbers, the result would be bool\n"
           "Convert with .to(int64), or use a logical op.");
}

void infer_sub(InferCall& c) {
  for (int i = 0; i < c.n_in(); ++i) {
    const bool is_bool = c.is_scalar(i) ? c.scalars[i].kind == 0 : c.in[i].dtype == DType::b8;
    TD_CHECK(!is_bool, DType,
             "expected numbers, input '{}' is bool\n"
             "Use logical_xor or ^ for a difference of truth values, ~ to invert one.",
             c.op.in_names[i]);
  }
  infer_pointwise(c);
}

void infer_square(InferCall& c) {
  infer_pointwise(c);
  if (c.out[0].dtype == DType::b8) c.out[0].dtype = DType::i64;
}

void infer_pow(InferCall& c) {
  if (c.is_scalar(1) && c.scalars[1].kind == 0)
    infer_pointwise(c);
  else
    infer_no_bool(c);
  TD_CHECK(!is_integral(c.out[0].dtype) || !c.is_scalar(1) || c.scalars[1].to_int() >= 0, Value,
           "integers to the negative power {} are not integers\n"
           "Convert the base with .to(float32), or give the exponent as a float.",
           c.scalars[1].to_int());
}

// ---- rows
constexpr OpDef pointwise_row(const char* name, Types types, Names ins, ExprFn expr,
                              const char* doc) {
  const bool truth = types == Types::compare || types == Types::logical || types == Types::bits;
  return make_row(name, Family::pointwise, types, ins, nullptr)
      .infer(infer_pointwise)
      .expr(expr)
      .reference(pointwise_reference)
      .flag(truth ? uint32_t{kNotDifferentiable} : 0)
      .doc(doc);
}

}  // namespace

namespace op {
#define TD_ROW(name, types, ins, doc) pointwise_row(#name, Types::types, ins, expr_##name, doc)
#define PW1(name, types, e, doc, ...) \
  constinit const OpDef name =        \
      pointwise_row(#name, Types::types, {"x"}, expr_##name, doc) __VA_ARGS__;
#define PW1G(name, types, e, dx, doc, ...)                                                 \
  constinit const OpDef name = pointwise_row(#name, Types::types, {"x"}, expr_##name, doc) \
                                   .expr_grad(grad_##name) __VA_ARGS__;
#define PW1N(name, types, n, value, e, doc, ...) \
  constinit const OpDef name =                   \
      pointwise_row(#name, Types::types, {"x", #n "$"}, expr_##name, doc) __VA_ARGS__;
#define PW1NG(name, types, n, value, e, dx, doc, ...)                                              \
  constinit const OpDef name = pointwise_row(#name, Types::types, {"x", #n "$"}, expr_##name, doc) \
                                   .expr_grad(grad_##name) __VA_ARGS__;
#define PW1NNG(name, types, n, n_value, m, m_value, e, dx, doc, ...)              \
  constinit const OpDef name =                                                    \
      pointwise_row(#name, Types::types, {"x", #n "$", #m "$"}, expr_##name, doc) \
          .expr_grad(grad_##name) __VA_ARGS__;
#define PW2(name, types, e, doc, ...) \
  constinit const OpDef name =        \
      pointwise_row(#name, Types::types, {"a", "b"}, expr_##name, doc) __VA_ARGS__;
#define PW2G(name, types, e, da, db, doc, ...)                                                  \
  constinit const OpDef name = pointwise_row(#name, Types::types, {"a", "b"}, expr_##name, doc) \
                                   .expr_grad(grad_##name) __VA_ARGS__;
#define ROW(name, types, ins, e, doc, ...) \
  constinit const OpDef name =             \
      pointwise_row(#name, Types::types, {TD_UNPAREN ins}, expr_##name, doc) __VA_ARGS__;
#define ROWG(name, types, ins, e, ds, doc, ...)                              \
  constinit const OpDef name =                                               \
      pointwise_row(#name, Types::types, {TD_UNPAREN ins}, expr_##name, doc) \
          .expr_grad(grad_##name) __VA_ARGS__;
#include "tandem/ops/pointwise/pointwise.def"
#undef TD_ROW
#undef PW1
#undef PW1G
#undef PW1N
#undef PW1NG
#undef PW1NNG
#undef PW2
#undef PW2G
#undef ROW
#undef ROWG

constinit const OpDef cast =
    make_row("cast", Family::pointwise, Types::cast, {"x"}, fields<CastAttrs>())
        .infer(infer_pointwise)
        .expr(expr_cast)
        .reference(pointwise_reference)
        .flag(kPassesSame)
        .doc("The same values in another dtype; floats to integers truncate and saturate.");
}  // namespace op

std::span<const OpDef* const> pointwise_rows() {
  static constexpr const OpDef* kRows[] = {
#define PW1(name, ...) &op::name,
#define PW1G PW1
#define PW1N PW1
#define PW1NG PW1
#define PW1NNG PW1
#define PW2 PW1
#define PW2G PW1
#define ROW PW1
#define ROWG PW1
#include "tandem/ops/pointwise/pointwise.def"
#undef PW1
#undef PW1G
#undef PW1N
#undef PW1NG
#undef PW1NNG
#undef PW2
#undef PW2G
#undef ROW
#undef ROWG
      &op::cast,
  };
  return kRows;
}

// ---- functions
namespace {

template <class... In>
Tensor run(const OpDef& row, SourceLocation loc, In&&... in) {
  Tensor out[kMaxOpOuts];
  Operand ins[] = {Operand(std::forward<In>(in))...};
  apply(row, nullptr, ins, out, loc);
  return std::move(out[0]);
}

}  // namespace

#define PW1(name, ...) \
  Tensor name(Tensor x, SourceLocation loc) { return run(op::name, loc, std::move(x)); }
#define PW1G PW1
#define PW1N(name, types, n, ...)                          \
  Tensor name(Tensor x, Operand n, SourceLocation loc) {   \
    return run(op::name, loc, std::move(x), std::move(n)); \
  }
#define PW1NG PW1N
#define PW1NNG(name, types, n, n_value, m, ...)                          \
  Tensor name(Tensor x, Operand n, Operand m, SourceLocation loc) {      \
    return run(op::name, loc, std::move(x), std::move(n), std::move(m)); \
  }
#define PW2(name, ...)                                     \
  Tensor name(Operand a, Operand b, SourceLocation loc) {  \
    return run(op::name, loc, std::move(a), std::move(b)); \
  }
#define PW2G PW2
#define ROW(...)
#define ROWG(...)
#include "tandem/ops/pointwise/pointwise.def"
#undef PW1
#undef PW1G
#undef PW1N
#undef PW1NG
#undef PW1NNG
#undef PW2
#undef PW2G
#undef ROW
#undef ROWG

Tensor add(Operand a, Operand b, Scalar alpha, SourceLocation loc) {
  return detail::named(
      "add", loc, [&] { return add(std::move(a), mul(std::move(b), Operand(alpha), loc), loc); });
}

Tensor sub(Operand a, Operand b, Scalar alpha, SourceLocation loc) {
  return detail::named(
      "sub", loc, [&] { return sub(std::move(a), mul(std::move(b), Operand(alpha), loc), loc); });
}

Tensor div(Operand a, Operand b, std::string_view mode, SourceLocation loc) {
  try {
    TD_CHECK(mode == "floor" || mode == "trunc", Value,
             "rounding_mode is \"{}\"\nUse \"floor\" or \"trunc\", or leave it out.", mode);
  } catch (const Error& e) {
    throw with_place(e, "div", loc);
  }
  const OpDef& row = mode == "floor" ? op::floor_divide : op::trunc_divide;
  return detail::named("div", loc, [&] { return run(row, loc, std::move(a), std::move(b)); });
}

namespace {

// x^n for exponents that have their own op; false if there is none. `x` is moved from if true.
bool small_power(Operand& base, const Scalar& n, SourceLocation loc, Tensor& y) {
  const Tensor& x = base.tensor();
  if (!x.defined() || !x.is_floating_point()) return false;
  const double e = n.to_double();
  const OpDef* row = e == 2      ? &op::square
                     : e == 0.5  ? &op::sqrt
                     : e == -1   ? &op::reciprocal
                     : e == -0.5 ? &op::rsqrt
                                 : nullptr;
  if (!row) return false;
  y = run(*row, loc, std::move(base));
  return true;
}

}  // namespace

Tensor pow(Operand base, Operand exponent, SourceLocation loc) {
  Tensor y;
  if (exponent.is_scalar() && !base.is_scalar() && small_power(base, exponent.scalar(), loc, y))
    return y;
  return run(op::pow, loc, std::move(base), std::move(exponent));
}

Tensor round(Tensor x, int64_t decimals, SourceLocation loc) {
  return detail::named("round", loc, [&] {
    return decimals == 0 || !x.is_floating_point()
               ? round(std::move(x), loc)
               : run(op::round_decimals, loc, std::move(x), Operand(decimals));
  });
}

Tensor where(Operand condition, Operand a, Operand b, SourceLocation loc) {
  return run(op::where, loc, std::move(condition), std::move(a), std::move(b));
}

Tensor clamp(Tensor x, Operand min, Operand max, SourceLocation loc) {
  if (min.is_scalar() && max.is_scalar())
    return run(op::clamp, loc, std::move(x), std::move(min), std::move(max));
  if (min.is_scalar() || max.is_scalar())
    return clamp_max(clamp_min(std::move(x), std::move(min), loc), std::move(max), loc);
  return detail::named("clamp", loc, [&] {
    return run(op::clamp_tensor, loc, std::move(x), std::move(min), std::move(max));
  });
}
// With a tensor as bound these are maximum and minimum, in their gradient too.
Tensor clamp_min(Tensor x, Operand min, SourceLocation loc) {
  const OpDef& row = min.is_scalar() ? op::clamp_min : op::maximum;
  return detail::named("clamp_min", loc,
                       [&] { return run(row, loc, std::move(x), std::move(min)); });
}
Tensor clamp_max(Tensor x, Operand max, SourceLocation loc) {
  const OpDef& row = max.is_scalar() ? op::clamp_max : op::minimum;
  return detail::named("clamp_max", loc,
                       [&] { return run(row, loc, std::move(x), std::move(max)); });
}

Tensor logit(Tensor x, double eps, SourceLocation loc) {
  return detail::named("logit", loc, [&] {
    // Not clamp(): at eps and 1 - eps the gradient passes, as in PyTorch.
    if (eps >= 0) {
      const Tensor low = lt(x, eps, loc), high = gt(x, 1 - eps, loc);
      x = where(low, eps, where(high, 1 - eps, std::move(x), loc), loc);
    }
    return run(op::logit, loc, std::move(x));
  });
}

Tensor polygamma(int64_t n, Tensor x, SourceLocation loc) {
  return detail::composed("polygamma", loc, [&] {
    TD_CHECK(n >= 0, Value, "the order is {}\nIt must be 0 (digamma) or larger.", n);
    return run(op::polygamma, loc, std::move(x), Operand(n));
  });
}

Tensor mvlgamma(Tensor x, int64_t p, SourceLocation loc) {
  return detail::composed("mvlgamma", loc, [&] {
    TD_CHECK(p >= 1 && p <= 10000, Value, "the dimension is {}\nIt must be 1 to 10000.", p);
    Tensor y = lgamma(x);
    for (int64_t j = 1; j < p; ++j) y = y + lgamma(x - 0.5 * static_cast<double>(j));
    return p == 1 ? y : y + 0.25 * static_cast<double>(p * (p - 1)) * std::log(std::numbers::pi);
  });
}

Tensor betaln(const Tensor& a, const Tensor& b, SourceLocation loc) {
  return detail::composed("betaln", loc, [&] { return lgamma(a) + lgamma(b) - lgamma(a + b); });
}

Tensor nan_to_num(Tensor x, double nan, double posinf, double neginf, SourceLocation loc) {
  return detail::named("nan_to_num", loc, [&]() -> Tensor {
    if (!x.is_floating_point()) return x;
    return run(op::nan_to_num, loc, std::move(x), Operand(nan), Operand(posinf), Operand(neginf));
  });
}

Tensor nan_to_num(Tensor x, double nan, SourceLocation loc) {
  return detail::named("nan_to_num", loc, [&] {
    double top = std::numeric_limits<float>::max();
    if (x.dtype() == DType::f64) top = std::numeric_limits<double>::max();
    if (x.dtype() == DType::f16) top = 65504;
    if (x.dtype() == DType::bf16) top = static_cast<float>(BFloat16::from_bits(0x7F7F));
    return nan_to_num(std::move(x), nan, top, -top, loc);
  });
}

Tensor gelu(Tensor x, std::string_view approximate, SourceLocation loc) {
  return detail::named("gelu", loc, [&] {
    TD_CHECK(approximate == "none" || approximate == "tanh", Value,
             "approximate is \"{}\"\nUse \"none\" or \"tanh\".", approximate);
    return run(approximate == "tanh" ? op::gelu_tanh : op::gelu, loc, std::move(x));
  });
}

Tensor threshold(Tensor x, Operand threshold, Operand value, SourceLocation loc) {
  return run(op::threshold, loc, std::move(x), std::move(threshold), std::move(value));
}

Tensor prelu(Tensor x, Tensor weight, SourceLocation loc) {
  return detail::named("prelu", loc, [&] {
    if (weight.numel() != 1) {
      TD_CHECK(weight.dim() == 1 && x.dim() >= 2 && dims_equal(weight.shape(0), x.shape(1)), Shape,
               "weight {} must be one number or one per channel of x {}",
               weight.shape().to_string(), x.shape().to_string());
      Shape wide;
      for (int d = 0; d < x.dim(); ++d) wide.push_back(d == 1 ? x.shape(1) : Dim(1));
      weight = weight.reshape(wide, loc);
    }
    return run(op::prelu, loc, std::move(x), std::move(weight));
  });
}

Tensor glu(Tensor x, int64_t dim, SourceLocation loc) {
  detail::placed("glu", loc, [&] {
    const Dim n = x.shape()[normalize_dim(dim, x.dim())];
    TD_CHECK(dims_equal(mod(n, 2), 0), Shape, "dimension {} of {} is odd", dim,
             x.shape().to_string());
  });
  const Dim half = floordiv(x.shape(dim), 2);
  return mul(narrow(x, dim, 0, half, loc), sigmoid(narrow(x, dim, half, half, loc), loc), loc);
}

Tensor lerp(Operand start, Operand end, Operand weight, SourceLocation loc) {
  return run(op::lerp, loc, std::move(start), std::move(end), std::move(weight));
}
Tensor addcmul(Tensor x, Operand a, Operand b, Operand value, SourceLocation loc) {
  return run(op::addcmul, loc, std::move(x), std::move(a), std::move(b), std::move(value));
}
Tensor addcdiv(Tensor x, Operand a, Operand b, Operand value, SourceLocation loc) {
  return run(op::addcdiv, loc, std::move(x), std::move(a), std::move(b), std::move(value));
}
Tensor isclose(Operand a, Operand b, double rtol, double atol, SourceLocation loc) {
  return run(op::isclose, loc, std::move(a), std::move(b), Operand(rtol), Operand(atol));
}

}  // namespace tandem
