// SPDX-License-Identifier: Apache-2.0
// Creation: rows fill, arange, linspace, eye and the functions using them. Values from C++
// containers are copied; inside a trace they become constants of the graph.
#include "tandem/ops/view/create.h"

#include <cmath>
#include <cstring>
#include <optional>

#include "tandem/graph/dry_run.h"
#include "tandem/graph/trace.h"
#include "tandem/ops/control.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/view/dim_tensor.h"
#include "tandem/ops/view/strided_copy_internal.h"
#include "tandem/ops/view/view.h"
#include "tandem/tensor/device_memory.h"
#include "tandem/tensor/strided.h"

namespace tandem {

using detail::placed;

namespace {

double bytes_written(const InferCall& c) {
  const Shape& s = c.out[0].shape;
  return s.is_symbolic() ? 0
                         : static_cast<double>(s.numel().value()) *
                               static_cast<double>(size_of(c.out[0].dtype));
}

void fill_infer(InferCall& c) {
  const FillAttrs& a = c.get_attrs<FillAttrs>();
  detail::check_sizes(a.shape);
  c.out[0] = Spec(a.dtype, a.shape);
}
void fill_loops(const KernelCall& k) {
  detail::fill_array(k.out[0], k.get_attrs<FillAttrs>().value);
}

void arange_infer(InferCall& c) {
  const ArangeAttrs& a = c.get_attrs<ArangeAttrs>();
  TD_CHECK(a.count.rank() == 1, Shape, "expected one count, got {}", a.count.to_string());
  detail::check_sizes(a.count);
  c.out[0] = Spec(a.dtype, a.count);
}
// Element i is start + i * step, not a running sum: errors do not accumulate.
void arange_loops(const KernelCall& k) {
  const ArangeAttrs& a = k.get_attrs<ArangeAttrs>();
  const bool whole = a.start.kind != 2 && a.step.kind != 2;
  visit_dtype(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    T* out = k.out[0].as<T>();
    for (int64_t i = 0; i < k.out[0].numel; ++i) {
      const uint64_t n = static_cast<uint64_t>(a.start.i) +
                         static_cast<uint64_t>(i) * static_cast<uint64_t>(a.step.i);
      const double f = a.start.to_double() + static_cast<double>(i) * a.step.to_double();
      out[i] = detail::scalar_as<T>(whole ? Scalar(static_cast<int64_t>(n)) : Scalar(f));
    }
  });
}

void linspace_infer(InferCall& c) {
  const LinspaceAttrs& a = c.get_attrs<LinspaceAttrs>();
  TD_CHECK(a.steps >= 0, Value, "steps must not be negative, got {}", a.steps);
  c.out[0] = Spec(a.dtype, Shape(a.steps));
}
// From both ends towards the middle, so that the last element is exactly `end`.
void linspace_loops(const KernelCall& k) {
  const LinspaceAttrs& a = k.get_attrs<LinspaceAttrs>();
  const int64_t n = a.steps;
  const double step = n > 1 ? (a.end - a.start) / static_cast<double>(n - 1) : 0;
  visit_dtype(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    T* out = k.out[0].as<T>();
    for (int64_t i = 0; i < n; ++i)
      out[i] =
          detail::scalar_as<T>(i < (n + 1) / 2 ? a.start + step * static_cast<double>(i)
                                               : a.end - step * static_cast<double>(n - 1 - i));
  });
}

void eye_infer(InferCall& c) {
  const EyeAttrs& a = c.get_attrs<EyeAttrs>();
  TD_CHECK(a.n >= 0 && a.m >= 0, Shape, "sizes must not be negative, got [{}, {}]", a.n, a.m);
  c.out[0] = Spec(a.dtype, Shape(a.n, a.m));
}
void eye_loops(const KernelCall& k) {
  const EyeAttrs& a = k.get_attrs<EyeAttrs>();
  detail::zero_array(k.out[0]);
  visit_dtype(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T one = detail::scalar_as<T>(1);
    for (int64_t i = 0; i < std::min(a.n, a.m); ++i) k.out[0].as<T>()[i * a.m + i] = one;
  });
}

constexpr OpDef row(const char* name, const AttrsType* attrs) {
  return create_row(name, attrs)
      .flag(kNotDifferentiable)
      .flops(detail::no_flops)
      .bytes(bytes_written);
}

}  // namespace

namespace op {
constinit const OpDef fill = row("fill", fields<FillAttrs>())
                                 .infer(fill_infer)
                                 .reference(fill_loops)
                                 .flag(kMoved)
                                 .doc("A tensor of one value.");
constinit const OpDef arange = row("arange", fields<ArangeAttrs>())
                                   .infer(arange_infer)
                                   .reference(arange_loops)
                                   .doc("start, start + step, start + 2 step, ...");
constinit const OpDef linspace =
    row("linspace", fields<LinspaceAttrs>())
        .infer(linspace_infer)
        .reference(linspace_loops)
        .doc("Equally spaced numbers from start to end, both included.");
constinit const OpDef eye = row("eye", fields<EyeAttrs>())
                                .infer(eye_infer)
                                .reference(eye_loops)
                                .doc("Ones on the diagonal of a matrix of zeros.");
}  // namespace op

std::span<const OpDef* const> create_rows() {
  static constexpr const OpDef* kRows[] = {&op::fill, &op::arange, &op::linspace, &op::eye};
  return kRows;
}

// ---- functions
namespace {

// The row behind full, zeros and their kin; an error names the one that was called.
Tensor filled(const char* name, const Shape& shape, Scalar value, DType dtype, SourceLocation loc) {
  const FillAttrs a{shape, value, dtype};
  return detail::named(name, loc, [&] { return call(op::fill, &a, loc); });
}
Tensor filled_like(const char* name, const Tensor& x, Scalar value, std::optional<DType> dtype,
                   SourceLocation loc) {
  return detail::named(name, loc, [&] {
    const DeviceGuard there(x.device());
    return filled(name, x.shape(), value, dtype.value_or(x.dtype()), loc);
  });
}

}  // namespace

Tensor full(Shape shape, Scalar value, DType dtype, SourceLocation loc) {
  return filled("full", shape, value, dtype, loc);
}
Tensor full(Shape shape, Scalar value, SourceLocation loc) {
  return full(shape, value, value.dtype(), loc);
}
Tensor zeros(Shape shape, DType dtype, SourceLocation loc) {
  return filled("zeros", shape, 0, dtype, loc);
}
Tensor ones(Shape shape, DType dtype, SourceLocation loc) {
  return filled("ones", shape, 1, dtype, loc);
}

Tensor empty(Shape shape, DType dtype, SourceLocation loc) {
  if (is_tracing() || shape.is_symbolic()) return zeros(shape, dtype, loc);
  return placed("empty", loc, [&] {
    detail::check_sizes(shape);
    const auto make = is_dry_run() ? detail::new_dry_tensor : detail::new_tensor;
    return Tensor(Ref<detail::TensorImpl>::adopt(make(shape, dtype, context().device, nullptr)));
  });
}

Tensor full_like(const Tensor& x, Scalar value, DType dtype, SourceLocation loc) {
  return filled_like("full_like", x, value, dtype, loc);
}
Tensor full_like(const Tensor& x, Scalar value, SourceLocation loc) {
  return filled_like("full_like", x, value, {}, loc);
}
Tensor zeros_like(const Tensor& x, DType dtype, SourceLocation loc) {
  return filled_like("zeros_like", x, 0, dtype, loc);
}
Tensor zeros_like(const Tensor& x, SourceLocation loc) {
  return filled_like("zeros_like", x, 0, {}, loc);
}
Tensor ones_like(const Tensor& x, DType dtype, SourceLocation loc) {
  return filled_like("ones_like", x, 1, dtype, loc);
}
Tensor ones_like(const Tensor& x, SourceLocation loc) {
  return filled_like("ones_like", x, 1, {}, loc);
}
Tensor empty_like(const Tensor& x, SourceLocation loc) {
  return detail::named("empty_like", loc, [&] {
    const DeviceGuard there(x.device());
    return empty(x.shape(), x.dtype(), loc);
  });
}

namespace {

// Number of elements start, start + step, ... before end.
int64_t arange_count(Scalar start, Scalar end, Scalar step) {
  if (start.kind != 2 && end.kind != 2 && step.kind != 2) {
    TD_CHECK(step.i != 0, Value, "step must not be 0");
    const __int128 span = static_cast<__int128>(end.i) - start.i;
    TD_CHECK(span == 0 || (span > 0) == (step.i > 0), Value,
             "{} cannot be reached from {} by steps of {}", end.i, start.i, step.i);
    const __int128 s = step.i, n = (span + s - (s > 0 ? 1 : -1)) / s;
    TD_CHECK(n <= INT64_MAX, Memory, "{} to {} by {} are more elements than 63 bits can count",
             start.i, end.i, step.i);
    return static_cast<int64_t>(n);
  }
  const double a = start.to_double(), b = end.to_double(), s = step.to_double();
  TD_CHECK(std::isfinite(a) && std::isfinite(b) && std::isfinite(s) && s != 0, Value,
           "start {}, end {} and step {} must be finite, step not 0", a, b, s);
  TD_CHECK(a == b || (b > a) == (s > 0), Value, "{} cannot be reached from {} by steps of {}", b, a,
           s);
  const double n = std::ceil((b - a) / s);
  TD_CHECK(n < 0x1p53, Memory, "{} elements are more than this machine can address", n);
  return static_cast<int64_t>(n);
}

}  // namespace

Tensor arange(Scalar start, Scalar end, Scalar step, DType dtype, SourceLocation loc) {
  ArangeAttrs a{start, step, {}, dtype};
  a.count = IntList(placed("arange", loc, [&] { return arange_count(start, end, step); }));
  return call(op::arange, &a, loc);
}
Tensor arange(Scalar start, Scalar end, Scalar step, SourceLocation loc) {
  const bool whole = start.kind != 2 && end.kind != 2 && step.kind != 2;
  return arange(start, end, step, whole ? DType::i64 : DType::f32, loc);
}
Tensor arange(Scalar end, SourceLocation loc) { return arange(0, end, 1, loc); }
Tensor arange(Scalar end, DType dtype, SourceLocation loc) { return arange(0, end, 1, dtype, loc); }
Tensor arange_dim(Dim end, SourceLocation loc) {
  ArangeAttrs a{0, 1, IntList(end), DType::i64};
  return call(op::arange, &a, loc);
}
Tensor dim_tensor(Dim d, SourceLocation loc) {
  if (!d.is_symbolic()) return full({}, d.value(), DType::i64, loc);
  return select(arange_dim(d + 1, loc), 0, -1, loc);
}

Tensor linspace(double start, double end, int64_t steps, DType dtype, SourceLocation loc) {
  LinspaceAttrs a{start, end, steps, dtype};
  return call(op::linspace, &a, loc);
}

Tensor logspace(double start, double end, int64_t steps, double base, DType dtype,
                SourceLocation loc) {
  const Tensor e = linspace(start, end, steps, DType::f64, loc);
  return pow(Operand(base, loc), Operand(e, loc), loc).to(dtype, loc);
}

Tensor eye(int64_t n, int64_t m, DType dtype, SourceLocation loc) {
  EyeAttrs a{n, m < 0 ? n : m, dtype};
  return call(op::eye, &a, loc);
}

namespace {

Tensor triangle_indices(const char* name, int64_t row, int64_t col, int64_t offset, bool upper,
                        SourceLocation loc) {
  return placed(name, loc, [&] {
    TD_CHECK(row >= 0 && col >= 0, Shape, "sizes must not be negative, got [{}, {}]", row, col);
    const int64_t diagonal = std::clamp(offset, -row, col);  // all or nothing is beyond
    std::vector<int64_t> r, c;
    for (int64_t i = 0; i < row; ++i) {
      const int64_t lo = upper ? std::max<int64_t>(0, i + diagonal) : 0;
      const int64_t hi = upper ? col : std::min(col, i + diagonal + 1);
      for (int64_t k = lo; k < hi; ++k) {
        r.push_back(i);
        c.push_back(k);
      }
    }
    const int64_t n = static_cast<int64_t>(r.size());
    r.insert(r.end(), c.begin(), c.end());
    return tensor(r, Shape(2, n), loc);
  });
}

}  // namespace

Tensor tril_indices(int64_t row, int64_t col, int64_t offset, SourceLocation loc) {
  return triangle_indices("tril_indices", row, col, offset, false, loc);
}
Tensor triu_indices(int64_t row, int64_t col, int64_t offset, SourceLocation loc) {
  return triangle_indices("triu_indices", row, col, offset, true, loc);
}

Tensor constant(const Tensor& x, SourceLocation loc) {
  if (!is_tracing() || x.is_symbolic()) return x;
  ConstantAttrs a{make_ref<TensorBox>(detached_alias(x))};
  return call(op::constant, &a, loc);
}

namespace detail {

Tensor make_tensor(const void* data, DType from, int64_t n, const Shape& shape, DType dtype,
                   SourceLocation loc) {
  Tensor t = placed("tensor", loc, [&] {
    TD_CHECK(!shape.is_symbolic() && shape.numel() == Dim(n), Shape,
             "{} numbers do not make the shape {}", n, shape.to_string());
    return Tensor(Ref<TensorImpl>::adopt(new_tensor(shape, dtype, cpu)));
  });
  convert_elements(data, from, t.impl()->data, dtype, n);
  if (const Device device = context().device; TD_UNLIKELY(!is_host(device))) {
    Tensor there(Ref<TensorImpl>::adopt(new_tensor(shape, dtype, device)));
    copy_bytes(there.impl()->data, device, t.impl()->data, cpu,
               static_cast<size_t>(n) * size_of(dtype));
    t = std::move(there);
  }
  return constant(t, loc);
}

void check_row_length(size_t got, size_t want, int level, SourceLocation loc) {
  try {
    TD_CHECK(got == want, Shape,
             "rows at level {} have {} and {} entries\nAll must have equal lengths.", level, want,
             got);
  } catch (const Error& e) {
    throw with_place(e, "tensor", loc);
  }
}

}  // namespace detail

}  // namespace tandem
