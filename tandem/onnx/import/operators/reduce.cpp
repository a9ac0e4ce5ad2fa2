// SPDX-License-Identifier: Apache-2.0
// ONNX reductions: axes as attribute or input, empty axes, empty tensors, integers.
#include <cmath>
#include <limits>

#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

struct Reduction {
  Tensor x;
  IntList dims;
  bool keep;
  bool nothing;  ///< no elements to reduce
};

/// The shape after the reduction.
Shape reduced_shape(const Reduction& r) {
  std::vector<bool> gone(static_cast<size_t>(r.x.dim()), false);
  for (const Dim d : r.dims) gone[static_cast<size_t>(d.value())] = true;
  Shape s;
  for (int d = 0; d < r.x.dim(); ++d) {
    if (!gone[static_cast<size_t>(d)]) s.push_back(r.x.shape(d));
    if (gone[static_cast<size_t>(d)] && r.keep) s.push_back(1);
  }
  return s;
}

/// `f` on the dims; `neutral` if there are no elements to reduce; `alone` if reducing over no dims
/// was requested.
template <class F, class G>
void reduce_by(OnnxCall& c, double neutral, F f, G alone) {
  Reduction r{c.x(0), {}, c.attr("keepdims", 1) != 0, false};
  const auto axes = c.dims_from(1, "axes");
  if ((!axes || axes->empty()) && c.attr("noop_with_empty_axes", 0)) {
    c.set_like(0, alone(r.x));
    return;
  }
  if (r.x.dim() == 0) {
    c.set_like(0, f(r.x.reshape({1}), IntList{0}, false).reshape(Shape()));
    return;
  }
  if (axes && !axes->empty())
    for (const int64_t a : *axes) r.dims.push_back(normalize_dim(a, r.x.dim()));
  else
    for (int d = 0; d < r.x.dim(); ++d) r.dims.push_back(d);
  for (const Dim d : r.dims)
    r.nothing |= !r.x.shape(d.value()).is_symbolic() && r.x.size(d.value()) == 0;
  if (r.nothing) {
    const Shape s = reduced_shape(r);
    const DType t = r.x.dtype();
    if (is_floating(t))
      c.set_like(0, full(s, neutral, t));
    else if (std::isinf(neutral))
      c.set_like(0, visit_dtype(t, [&](auto z) -> Tensor {
                   using T = decltype(z);
                   using L = std::numeric_limits<T>;
                   if constexpr (std::is_integral_v<T>)
                     return full(s, static_cast<int64_t>(neutral < 0 ? L::lowest() : L::max()), t);
                   return full(s, 0, t);
                 }));
    else
      c.set_like(0, full(s, static_cast<int64_t>(neutral), t));
    return;
  }
  c.set_like(0, f(r.x, r.dims, r.keep));
}

Tensor as_float(const Tensor& x) {
  return x.dtype() == DType::f64 || !is_floating(x.dtype()) ? x.to(DType::f64) : x.to(DType::f32);
}
constexpr double kInf = std::numeric_limits<double>::infinity();
const auto kSame = [](const Tensor& x) { return x; };

void reduce_sum(OnnxCall& c) {
  reduce_by(
      c, 0, [](const Tensor& x, const IntList& d, bool k) { return sum(x, d, k); }, kSame);
}
void reduce_mean(OnnxCall& c) {
  reduce_by(
      c, std::numeric_limits<double>::quiet_NaN(),
      [](const Tensor& x, const IntList& d, bool k) {
        return is_floating(x.dtype()) ? mean(x, d, k) : mean(x.to(DType::f64), d, k);
      },
      kSame);
}
void reduce_prod(OnnxCall& c) {
  reduce_by(
      c, 1, [](const Tensor& x, const IntList& d, bool k) { return prod(x, d, k); }, kSame);
}
template <bool largest>
void reduce_extreme(OnnxCall& c) {
  reduce_by(
      c, largest ? -kInf : kInf,
      [](const Tensor& x, const IntList& d, bool k) {
        if (is_bool(x.dtype())) return largest ? any(x, d, k) : all(x, d, k);
        return largest ? amax(x, d, k) : amin(x, d, k);
      },
      kSame);
}
void reduce_l1(OnnxCall& c) {
  reduce_by(
      c, 0, [](const Tensor& x, const IntList& d, bool k) { return sum(abs(x), d, k); },
      [](const Tensor& x) { return abs(x); });
}
void reduce_l2(OnnxCall& c) {
  reduce_by(
      c, 0,
      [](const Tensor& x, const IntList& d, bool k) {
        return sqrt(sum(square(as_float(x)), d, k));
      },
      [](const Tensor& x) { return abs(x); });
}
void reduce_sum_square(OnnxCall& c) {
  reduce_by(
      c, 0, [](const Tensor& x, const IntList& d, bool k) { return sum(square(x), d, k); },
      [](const Tensor& x) { return square(x); });
}
void reduce_log_sum(OnnxCall& c) {
  reduce_by(
      c, -kInf,
      [](const Tensor& x, const IntList& d, bool k) { return log(sum(as_float(x), d, k)); },
      [](const Tensor& x) { return log(as_float(x)); });
}
void reduce_log_sum_exp(OnnxCall& c) {
  reduce_by(
      c, -kInf,
      [](const Tensor& x, const IntList& d, bool k) { return logsumexp(as_float(x), d, k); },
      kSame);
}

}  // namespace

std::span<const OnnxRow> onnx_reduce_rows() {
  constexpr OnnxSignature kTakes{2, 1, "axes keepdims noop_with_empty_axes"};
  static constexpr OnnxRow kRows[] = {
      {"", "ReduceSum", 1, 0, reduce_sum, kTakes, &op::sum, export_sum},
      {"", "ReduceMean", 1, 0, reduce_mean, kTakes, &op::mean, export_mean},
      {"", "ReduceProd", 1, 0, reduce_prod, kTakes, &op::prod, export_prod},
      {"", "ReduceMax", 1, 0, reduce_extreme<true>, kTakes, &op::amax, export_amax},
      {"", "ReduceMin", 1, 0, reduce_extreme<false>, kTakes, &op::amin, export_amin},
      {"", "ReduceL1", 1, 0, reduce_l1, kTakes},
      {"", "ReduceL2", 1, 0, reduce_l2, kTakes, &op::norm, export_norm},
      {"", "ReduceSumSquare", 1, 0, reduce_sum_square, kTakes},
      {"", "ReduceLogSum", 1, 0, reduce_log_sum, kTakes},
      {"", "ReduceLogSumExp", 1, 0, reduce_log_sum_exp, kTakes, &op::logsumexp, export_logsumexp},
      exported(op::count_nonzero, export_count_nonzero),
      exported(op::any, export_any),
      exported(op::all, export_all),
      exported(op::max_dim, export_max_dim),
      exported(op::min_dim, export_min_dim),
      exported(op::var, export_var),
      exported(op::sum_to, export_sum_to),
      exported(op::cumprod, export_cumprod),
      exported(op::logcumsumexp, export_logcumsumexp),
      exported(op::cummax, export_cummax),
      exported(op::cummin, export_cummin),
      exported(op::linear_scan, export_linear_scan),
  };
  return kRows;
}

}  // namespace tandem::onnx
