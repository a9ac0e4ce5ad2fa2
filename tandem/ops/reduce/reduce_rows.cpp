// SPDX-License-Identifier: Apache-2.0
// The rows of reductions and scans: for each the tuple of states with init, step, combine and
// finish, from which every executor is built. combine never sees a state without elements.
#include <cmath>

#include "tandem/graph/expression/scalar_expr.h"
#include "tandem/ops/reduce/reduce_internal.h"

namespace tandem {
namespace {

// ---- one state, one operation
#define TD_FOLD(name, start, element, a_and_b)                 \
  void name##_init(E* s) { s[0] = E(start); }                  \
  void name##_step(const E* s, const E& x, const E&, E* out) { \
    const E &a = s[0], b = element;                            \
    out[0] = a_and_b;                                          \
  }                                                            \
  void name##_combine(const E* sa, const E* sb, E* out) {      \
    const E &a = sa[0], &b = sb[0];                            \
    out[0] = a_and_b;                                          \
  }
void plain_finish(const E* s, const E&, const E*, E* out) { out[0] = s[0]; }

TD_FOLD(sum, 0, x, a + b)
TD_FOLD(prod, 1, x, a* b)
TD_FOLD(amax, -HUGE_VAL, x, maximum(a, b))
TD_FOLD(amin, HUGE_VAL, x, minimum(a, b))
TD_FOLD(any, false, x, a || b)
TD_FOLD(all, true, x, a&& b)
TD_FOLD(count, 0, where(x, 1, 0), a + b)
TD_FOLD(square, 0, square(x), a + b)
#undef TD_FOLD
void mean_finish(const E* s, const E& n, const E*, E* out) { out[0] = s[0] / n; }
void norm_finish(const E* s, const E&, const E*, E* out) { out[0] = sqrt(s[0]); }

constexpr ReduceExpr kSumExpr{"T", sum_init, sum_step, sum_combine, plain_finish};
// One sum after the other, thousands or millions in a row: in f64, or an f32 stops growing at 2^24.
constexpr ReduceExpr kCumSum{"W", sum_init, sum_step, sum_combine, plain_finish};
constexpr ReduceExpr kMeanExpr{"T", sum_init, sum_step, sum_combine, mean_finish};
constexpr ReduceExpr kProd{"T", prod_init, prod_step, prod_combine, plain_finish};
constexpr ReduceExpr kCumProd{"W", prod_init, prod_step, prod_combine, plain_finish};
constexpr ReduceExpr kMax{"T", amax_init, amax_step, amax_combine, plain_finish};
constexpr ReduceExpr kMin{"T", amin_init, amin_step, amin_combine, plain_finish};
constexpr ReduceExpr kAny{"T", any_init, any_step, any_combine, plain_finish};
constexpr ReduceExpr kAll{"T", all_init, all_step, all_combine, plain_finish};
constexpr ReduceExpr kCount{"I", count_init, count_step, count_combine, plain_finish};
constexpr ReduceExpr kNorm{"T", square_init, square_step, square_combine, norm_finish};

// ---- the winning element and its index

template <bool largest>
void pick_init(E* s) {
  s[0] = largest ? -HUGE_VAL : HUGE_VAL;
  s[1] = E(INT64_MAX);
}
// Within a state indices increase, so a later equal element never wins.
template <bool largest>
void pick_step(const E* s, const E& x, const E& index, E* out) {
  const E worse = largest ? x <= s[0] : x >= s[0];
  const E better = !worse && s[0] == s[0];
  out[0] = where(better, x, s[0]);
  out[1] = where(better, index, s[1]);
}
template <bool largest>
void pick_combine(const E* a, const E* b, E* out) {
  const E a_nan = a[0] != a[0], b_nan = b[0] != b[0];
  const E beats = largest ? b[0] > a[0] : b[0] < a[0];
  const E ties = (a[0] == b[0] || (a_nan && b_nan)) && b[1] < a[1];
  const E better = (b_nan && !a_nan) || (beats && !a_nan) || ties;
  out[0] = where(better, b[0], a[0]);
  out[1] = where(better, b[1], a[1]);
}
// A line that only has starting values never had a winner: take the first element.
E place(const E& index) { return where(index == E(INT64_MAX), E(0), index); }
void pick_finish(const E* s, const E&, const E*, E* out) {
  out[0] = s[0];
  out[1] = place(s[1]);
}
void place_finish(const E* s, const E&, const E*, E* out) { out[0] = place(s[1]); }

constexpr ReduceExpr kMaxDim{"TI", pick_init<true>, pick_step<true>, pick_combine<true>,
                             pick_finish};
constexpr ReduceExpr kMinDim{"TI", pick_init<false>, pick_step<false>, pick_combine<false>,
                             pick_finish};
constexpr ReduceExpr kArgmax{"TI", pick_init<true>, pick_step<true>, pick_combine<true>,
                             place_finish};
constexpr ReduceExpr kArgmin{"TI", pick_init<false>, pick_step<false>, pick_combine<false>,
                             place_finish};

// ---- Welford's running mean and sum of squares in f64, combined by Chan's formula
void var_init(E* s) { s[0] = s[1] = s[2] = E(0.0); }
void var_step(const E* s, const E& x, const E&, E* out) {
  const E n = s[0] + 1.0, d = x - s[1];
  out[0] = n;
  out[1] = s[1] + d / n;
  out[2] = s[2] + d * (x - out[1]);
}
void var_combine(const E* a, const E* b, E* out) {
  const E n = a[0] + b[0], d = b[1] - a[1], part = b[0] / n;
  out[0] = n;
  out[1] = a[1] + d * part;
  out[2] = a[2] + b[2] + d * d * (a[0] * part);
}
void var_finish(const E* s, const E& n, const E* scalars, E* out) {
  out[0] = s[2] / maximum(n - scalars[0], E(0.0));
}
constexpr ReduceExpr kVar{"DDD", var_init, var_step, var_combine, var_finish};

// ---- largest element m and sum of exp(x - m); equal infinities give no NaN
void log_init(E* s) {
  s[0] = -HUGE_VAL;
  s[1] = E(0.0);
}
void log_join(const E& m, const E& sum, const E& x, const E& other, E* out) {
  const E e = where(x == m, E(1.0), exp(-abs(x - m)));
  out[0] = maximum(m, x);
  out[1] = where(x > m, sum * e + other, sum + other * e);
}
void log_step(const E* s, const E& x, const E&, E* out) { log_join(s[0], s[1], x, E(1.0), out); }
void log_combine(const E* a, const E* b, E* out) { log_join(a[0], a[1], b[0], b[1], out); }
void log_finish(const E* s, const E&, const E*, E* out) { out[0] = s[0] + log(s[1]); }
constexpr ReduceExpr kLogSumExp{"TT", log_init, log_step, log_combine, log_finish};
constexpr ReduceExpr kLogCumSumExp{"TW", log_init, log_step, log_combine, log_finish};

// ---- the last winning element so far
template <bool largest>
void last_init(E* s) {
  s[0] = largest ? -HUGE_VAL : HUGE_VAL;
  s[1] = E(0);
}
template <bool largest>
void last_join(const E* s, const E& x, const E& index, E* out) {
  const E better = (largest ? x >= s[0] : x <= s[0]) || x != x;
  out[0] = where(better, x, s[0]);
  out[1] = where(better, index, s[1]);
}
template <bool largest>
void last_combine(const E* a, const E* b, E* out) {
  last_join<largest>(a, b[0], b[1], out);
}
void both_finish(const E* s, const E&, const E*, E* out) {
  out[0] = s[0];
  out[1] = s[1];
}
constexpr ReduceExpr kCumMax{"TI", last_init<true>, last_join<true>, last_combine<true>,
                             both_finish};
constexpr ReduceExpr kCumMin{"TI", last_init<false>, last_join<false>, last_combine<false>,
                             both_finish};

constexpr OpDef reduction(const char* name, Types types, const ReduceExpr* expr, ReferenceFn r) {
  return make_row(name, Family::reduce, types, {"x"}, fields<ReduceAttrs>())
      .infer(detail::infer_reduce)
      .batch(detail::batch_reduce)
      .reduce(expr)
      .reference(r);
}
constexpr OpDef scan(const char* name, Types types, const ReduceExpr* expr, ReferenceFn r) {
  return make_row(name, Family::scan, types, {"x"}, fields<ScanAttrs>())
      .infer(detail::infer_scan)
      .batch(detail::batch_scan)
      .reduce(expr)
      .reference(r);
}

}  // namespace

namespace op {

constinit const OpDef sum = reduction("sum", Types::arith, &kSumExpr, detail::sum_reference)
                                .vjp(detail::sum_vjp)
                                .doc("Sum over dims.");
constinit const OpDef mean = reduction("mean", Types::floating, &kMeanExpr, detail::mean_reference)
                                 .vjp(detail::mean_vjp)
                                 .doc("Arithmetic mean over dims.");
constinit const OpDef prod = reduction("prod", Types::arith, &kProd, detail::prod_reference)
                                 .vjp(detail::prod_vjp, 1)
                                 .doc("Product over dims.");
constinit const OpDef count_nonzero =
    reduction("count_nonzero", Types::logical, &kCount, detail::count_nonzero_reference)
        .outputs({"n"})
        .flag(kNotDifferentiable)
        .doc("Number of nonzero elements over dims.");
constinit const OpDef amax = reduction("amax", Types::same, &kMax, detail::max_reference)
                                 .vjp(detail::extreme_vjp, 1, 1)
                                 .doc("Largest element over dims; NaN wins.");
constinit const OpDef amin = reduction("amin", Types::same, &kMin, detail::min_reference)
                                 .vjp(detail::extreme_vjp, 1, 1)
                                 .doc("Smallest element over dims; NaN wins.");
constinit const OpDef max_dim = reduction("max_dim", Types::same, &kMaxDim, detail::max_reference)
                                    .outputs({"values", "indices"})
                                    .vjp(detail::pick_vjp, 0, 2)
                                    .doc("Largest element along a dim and its lowest index.");
constinit const OpDef min_dim = reduction("min_dim", Types::same, &kMinDim, detail::min_reference)
                                    .outputs({"values", "indices"})
                                    .vjp(detail::pick_vjp, 0, 2)
                                    .doc("Smallest element along a dim and its lowest index.");
constinit const OpDef argmax = reduction("argmax", Types::same, &kArgmax, detail::argmax_reference)
                                   .outputs({"index"})
                                   .flag(kNotDifferentiable)
                                   .doc("Lowest index of the largest element; NaN wins.");
constinit const OpDef argmin = reduction("argmin", Types::same, &kArgmin, detail::argmin_reference)
                                   .outputs({"index"})
                                   .flag(kNotDifferentiable)
                                   .doc("Lowest index of the smallest element; NaN wins.");
constinit const OpDef any = reduction("any", Types::logical, &kAny, detail::any_reference)
                                .flag(kNotDifferentiable)
                                .doc("Whether any element over dims is nonzero.");
constinit const OpDef all = reduction("all", Types::logical, &kAll, detail::all_reference)
                                .flag(kNotDifferentiable)
                                .doc("Whether all elements over dims are nonzero.");
constinit const OpDef var = reduction("var", Types::floating, &kVar, detail::var_reference)
                                .inputs({"x", "correction$"})
                                .vjp(detail::var_vjp, 1)
                                .doc("Variance over dims: squared distances over n - correction.");
constinit const OpDef logsumexp =
    reduction("logsumexp", Types::floating, &kLogSumExp, detail::logsumexp_reference)
        .vjp(detail::logsumexp_vjp, 1, 1)
        .doc("log(sum(exp(x))) over dims, safe for large x.");
constinit const OpDef norm = reduction("norm", Types::floating, &kNorm, detail::norm_reference)
                                 .vjp(detail::norm_vjp, 1, 1)
                                 .doc("Square root of the sum of squares over dims.");
constinit const OpDef sum_to =
    make_row("sum_to", Family::reduce, Types::arith, {"x"}, fields<ShapeAttrs>())
        .infer(detail::infer_sum_to)
        .batch(detail::batch_sum_to)
        .reduce(&kSumExpr)
        .reference(detail::sum_to_reference)
        .flag(kPassesSame)
        .vjp(detail::sum_to_vjp)
        .doc("x summed to a shape that broadcasts to its own.");

constinit const OpDef cumsum = scan("cumsum", Types::arith, &kCumSum, detail::cumsum_reference)
                                   .vjp(detail::cumsum_vjp)
                                   .doc("Running sum along a dim.");
constinit const OpDef cumprod = scan("cumprod", Types::arith, &kCumProd, detail::cumprod_reference)
                                    .vjp(detail::cumprod_vjp, 1, 1)
                                    .doc("Running product along a dim.");
constinit const OpDef logcumsumexp =
    scan("logcumsumexp", Types::floating, &kLogCumSumExp, detail::logcumsumexp_reference)
        .vjp(detail::logcumsumexp_vjp, 1, 1)
        .doc("Running log(sum(exp(x))) along a dim.");
constinit const OpDef cummax = scan("cummax", Types::same, &kCumMax, detail::cummax_reference)
                                   .outputs({"values", "indices"})
                                   .vjp(detail::cumpick_vjp, 0, 2)
                                   .doc("Largest element so far along a dim, and its index.");
constinit const OpDef cummin = scan("cummin", Types::same, &kCumMin, detail::cummin_reference)
                                   .outputs({"values", "indices"})
                                   .vjp(detail::cumpick_vjp, 0, 2)
                                   .doc("Smallest element so far along a dim, and its index.");

}  // namespace op

std::span<const OpDef* const> reduce_rows() {
  static constexpr const OpDef* kRows[] = {
      &op::sum,          &op::mean,      &op::prod,   &op::count_nonzero, &op::amax,   &op::amin,
      &op::max_dim,      &op::min_dim,   &op::argmax, &op::argmin,        &op::any,    &op::all,
      &op::var,          &op::logsumexp, &op::norm,   &op::sum_to,        &op::cumsum, &op::cumprod,
      &op::logcumsumexp, &op::cummax,    &op::cummin,
  };
  return kRows;
}

}  // namespace tandem
