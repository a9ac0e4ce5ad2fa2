// SPDX-License-Identifier: Apache-2.0
// The row linear_scan: shape rule, derivative, batch rule and loops. Lines are independent and run
// in parallel; along a line the order is fixed, so bits do not depend on threads.
#include "tandem/ops/reduce/scan.h"

#include <vector>

#include "tandem/ops/function_internal.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace detail {

Tensor shifted(const Tensor& x, int dim, double first, bool reverse, SourceLocation loc) {
  const int last = x.dim() - 1;
  const Tensor moved = dim == last ? x : transpose(x, dim, last, loc);
  const Tensor out = pad(moved, reverse ? IntList(-1, 1) : IntList(1, -1), "constant", first, loc);
  return dim == last ? out : transpose(out, dim, last, loc);
}

}  // namespace detail

namespace {

using detail::with_batch;

void scan_infer(InferCall& c) {
  const Spec &a = c.in[0], &b = c.in[1];
  TD_CHECK(is_floating(a.dtype) && a.dtype == b.dtype, DType,
           "expected a and b of one floating dtype, got {} and {}\nConvert one of them with .to().",
           to_string(a.dtype), to_string(b.dtype));
  TD_CHECK(a.rank() > 0 && detail::same_sizes(a.shape, b.shape), Shape,
           "expected a and b of one shape with at least one dimension, got {} and {}",
           a.shape.to_string(), b.shape.to_string());
  normalize_dim(c.get_attrs<LinearScanAttrs>().dim, a.rank());
  c.out[0] = Spec(a.dtype, a.shape, a.device);
}

// With h the gradient of every s[i] including all later steps: h[i] = g[i] + a[i + 1] h[i + 1], so
// db = h and da[i] = h[i] s[i - 1].
void scan_vjp(VjpCall& c) {
  const auto& attrs = c.get_attrs<LinearScanAttrs>();
  const int dim = normalize_dim(attrs.dim, c.in_shape(0).rank());
  LinearScanAttrs back{dim, !attrs.reverse};
  const Tensor next = detail::shifted(c.in(0), dim, 0, !attrs.reverse, c.loc());
  const Tensor h = call(op::linear_scan, &back, c.loc(), next, c.grad());
  if (c.needs(0))
    c.results[0] = mul(h, detail::shifted(c.out(0), dim, 0, attrs.reverse, c.loc()), c.loc());
  if (c.needs(1)) c.results[1] = h;
}

void scan_batch(BatchCall& c) {
  LinearScanAttrs a = c.get_attrs<LinearScanAttrs>();
  a.dim = normalize_dim(a.dim, c.rank(0)) + 1;
  c.out[0] = call(op::linear_scan, &a, c.node.loc, with_batch(c, 0), with_batch(c, 1));
}

double scan_flops(const InferCall& c) {
  return 2.0 * static_cast<double>(c.in[0].shape.numel().value());
}

// Adjacent lines are processed together, in blocks of up to this many.
constexpr int64_t kBlock = 64;

template <class T, class A>
void scan_block(const T* a, const T* b, T* s, int64_t n, int64_t step, int64_t width,
                bool reverse) {
  A state[kBlock] = {};
  for (int64_t k = 0; k < n; ++k) {
    const int64_t at = (reverse ? n - 1 - k : k) * step;
    for (int64_t j = 0; j < width; ++j) {
      state[j] = static_cast<A>(a[at + j]) * state[j] + static_cast<A>(b[at + j]);
      s[at + j] = T(state[j]);
    }
  }
}

template <class T, class A>
void scan_lines(const KernelCall& k) {
  const auto& attrs = k.get_attrs<LinearScanAttrs>();
  const Array& y = k.out[0];
  if (y.numel == 0) return;
  const detail::Packed<T> a(k.in[0]), b(k.in[1]);
  const int dim = normalize_dim(attrs.dim, y.rank);
  const int64_t n = y.shape[dim];
  int64_t inner = 1;
  for (int d = dim + 1; d < y.rank; ++d) inner *= y.shape[d];
  const int64_t blocks = (inner + kBlock - 1) / kBlock, outer = y.numel / (n * inner);
  detail::parallel_for_rows(
      outer * blocks, 2 * n * std::min(inner, kBlock), [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          const int64_t column = i % blocks * kBlock, at = i / blocks * n * inner + column;
          scan_block<T, A>(a.get() + at, b.get() + at, y.as<T>() + at, n, inner,
                           std::min(kBlock, inner - column), attrs.reverse);
        }
      });
}

void scan_loops(const KernelCall& k) {
  switch (k.out[0].dtype) {
    case DType::f64:
      return scan_lines<double, double>(k);
    case DType::f16:
      return scan_lines<Half, float>(k);
    case DType::bf16:
      return scan_lines<BFloat16, float>(k);
    default:
      return scan_lines<float, float>(k);
  }
}

}  // namespace

namespace op {
constinit const OpDef linear_scan =
    make_row("linear_scan", Family::index, Types::same, {"a", "b"}, fields<LinearScanAttrs>())
        .outputs({"s"})
        .infer(scan_infer)
        .vjp(scan_vjp, 1, 1)
        .batch(scan_batch)
        .reference(scan_loops)
        .flops(scan_flops)
        .doc("Linear recurrence along a dim: s[i] = a[i] * s[i - 1] + b[i], or from the end.");
}  // namespace op

std::span<const OpDef* const> scan_rows() {
  static constexpr const OpDef* kRows[] = {&op::linear_scan};
  return kRows;
}

Tensor linear_scan(Tensor a, Tensor b, int64_t dim, bool reverse, SourceLocation loc) {
  return detail::placed("linear_scan", loc, [&] {
    const Shape shape = broadcast_shapes(a.shape(), b.shape());
    LinearScanAttrs attrs{dim, reverse};
    return call(op::linear_scan, &attrs, loc, expand(std::move(a), shape, loc),
                expand(std::move(b), shape, loc));
  });
}

}  // namespace tandem
