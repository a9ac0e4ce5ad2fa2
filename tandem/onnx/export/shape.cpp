// SPDX-License-Identifier: Apache-2.0
// Views, concatenation, padding and triangles.
#include <limits>

#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

bool export_alias(OnnxExportCall& c) {
  c.set(0, c.x(0));
  return true;
}
bool export_with_vjp(OnnxExportCall& c) {
  const auto n = static_cast<size_t>(c.get_attrs<WithVjpAttrs>().n);
  for (size_t o = 0; o < c.result.size(); ++o)
    if (c.wanted(o)) c.set(o, c.x(n + o));
  return true;
}

bool export_view(OnnxExportCall& c) {
  c.set(0, c.shape(0) == c.out[0].shape ? c.x(0) : c.b.reshape(c.x(0), c.out[0].shape));
  return true;
}
bool export_permute(OnnxExportCall& c) {
  std::vector<int64_t> perm;
  for (const Dim d : c.get_attrs<PermuteAttrs>().dims) perm.push_back(c.axis(d.value()));
  c.set(0, c.b.permute(c.x(0), perm));
  return true;
}
bool export_expand(OnnxExportCall& c) {
  c.set(0, c.shape(0) == c.out[0].shape ? c.x(0) : c.b.expand(c.x(0), c.out[0].shape));
  return true;
}
bool export_slice(OnnxExportCall& c) {
  const auto& a = c.get_attrs<SliceAttrs>();
  const Dim start = a.range[0], length = a.range[1], step = a.range[2];
  if (step.is_symbolic()) return false;
  const int d = c.axis(a.dim);
  if (c.shape(0) == c.out[0].shape)
    c.set(0, c.x(0));
  else
    c.set(0, c.b.slice(c.x(0), d, start, length == Dim(0) ? start : start + (length - 1) * step + 1,
                       step.value()));
  return true;
}
bool export_select(OnnxExportCall& c) {
  const auto& a = c.get_attrs<SelectAttrs>();
  const int d = c.axis(a.dim);
  const std::string at = a.index[0].is_symbolic() ? c.b.reshape(c.b.dim(a.index[0]), Shape{})
                                                  : c.b.number(a.index[0].value(), DType::i64);
  c.set(0, c.b.node("Gather", {c.x(0), at}, {onnx_int("axis", d)}));
  return true;
}

namespace {
// Both dims at the end, merged into one.
struct Diagonal {
  IntList perm, back;
  Shape moved, merged;
  Dim rows, cols, start;
  Diagonal(const DiagonalAttrs& a, const Shape& in) {
    const int r = in.rank(), d1 = normalize_dim(a.dim1, r), d2 = normalize_dim(a.dim2, r);
    for (int d = 0; d < r; ++d)
      if (d != d1 && d != d2) perm.push_back(d);
    perm.push_back(d1);
    perm.push_back(d2);
    back = perm;
    for (int d = 0; d < r; ++d) back[static_cast<int>(perm[d].value())] = d;
    for (const Dim d : perm) moved.push_back(in[static_cast<int>(d.value())]);
    rows = in[d1];
    cols = in[d2];
    merged = moved;
    merged.resize(r - 2);
    merged.push_back(rows * cols);
    start = a.offset >= 0 ? Dim(a.offset) : Dim(-a.offset) * cols;
  }
};
}  // namespace

bool export_diagonal(OnnxExportCall& c) {
  const Diagonal d(c.get_attrs<DiagonalAttrs>(), c.shape(0));
  if (d.cols.is_symbolic()) return false;
  const Dim length = c.out[0].shape.back();
  return c.by_ops([&](std::span<const Tensor> x) -> std::vector<Tensor> {
    const SliceAttrs s{-1, {d.start, length, d.cols + 1}};
    return {call(op::slice, &s, SourceLocation::here(), permute(x[0], d.perm).reshape(d.merged))};
  });
}
bool export_diagonal_backward(OnnxExportCall& c) {
  const Diagonal d(c.get_attrs<DiagonalAttrs>(), c.out[0].shape);
  if (d.cols.is_symbolic()) return false;
  const Dim length = c.shape(0).back();
  return c.by_ops([&](std::span<const Tensor> x) -> std::vector<Tensor> {
    const SliceBackwardAttrs s{d.merged, -1, {d.start, length, d.cols + 1}};
    const Tensor y = call(op::slice_backward, &s, SourceLocation::here(), x[0]);
    return {permute(y.reshape(d.moved), d.back)};
  });
}

namespace {
// [windows, size] positions.
Tensor window_places(const UnfoldAttrs& a, Dim windows) {
  return arange_dim(windows).reshape({windows, 1}) * a.step + arange(0, a.size, 1, DType::i64);
}
// The same for the body of an exporter: a constant where the number of windows is one.
Tensor places_in_body(const UnfoldAttrs& a, Dim windows, const Tensor& known) {
  return windows.is_symbolic() ? window_places(a, windows) : constant(known);
}
Tensor known_places(const UnfoldAttrs& a, Dim windows) {
  return windows.is_symbolic() ? Tensor() : window_places(a, windows);
}
}  // namespace

bool export_unfold(OnnxExportCall& c) {
  const auto& a = c.get_attrs<UnfoldAttrs>();
  const int d = c.axis(a.dim);
  const Dim windows = c.out[0].shape[d];
  const Tensor places = known_places(a, windows);
  return c.by_ops([&](std::span<const Tensor> x) -> std::vector<Tensor> {
    const IndexAttrs at = index_at(d);
    const Tensor all[] = {places_in_body(a, windows, places)};
    return {movedim(call_list(op::index, &at, SourceLocation::here(), all, x.first(1)), d + 1, -1)};
  });
}
bool export_unfold_backward(OnnxExportCall& c) {
  const auto& a = c.get_attrs<UnfoldAttrs>();
  const int d = normalize_dim(a.dim, c.out[0].rank());
  const Dim windows = c.shape(0)[d];
  const Tensor places = known_places(a, windows);
  return c.by_ops([&](std::span<const Tensor> x) -> std::vector<Tensor> {
    IndexAttrs at = index_at(d);
    at.shape = c.out[0].shape;
    const Tensor all[] = {places_in_body(a, windows, places)}, g[] = {movedim(x[0], -1, d + 1)};
    return {call_list(op::index_backward, &at, SourceLocation::here(), all, g)};
  });
}

bool export_slice_backward(OnnxExportCall& c) {
  const auto& a = c.get_attrs<SliceBackwardAttrs>();
  const Shape& y = c.out[0].shape;
  const int d = normalize_dim(a.dim, y.rank());
  const Dim start = a.range[0], length = a.range[1], step = a.range[2];
  if (step != Dim(1)) {
    if (start.is_symbolic() || length.is_symbolic() || step.is_symbolic()) return false;
    const Tensor places = arange(0, length.value(), 1, DType::i64) * step.value() + start.value();
    return c.by_ops([&](std::span<const Tensor> x) -> std::vector<Tensor> {
      IndexAttrs at = index_at(d);
      at.shape = y;
      const Tensor all[] = {constant(places)};
      return {call_list(op::index_backward, &at, SourceLocation::here(), all, x.first(1))};
    });
  }
  Shape pads;
  for (int i = 0; i < y.rank(); ++i) pads.push_back(i == d ? start : Dim(0));
  std::vector<Dim> all(pads.begin(), pads.end());
  for (int i = 0; i < y.rank(); ++i) all.push_back(i == d ? y[d] - start - length : Dim(0));
  c.set(0, c.b.node("Pad", {c.x(0), dim_list(c.b, all)}));
  return true;
}

std::string dim_list(OnnxBuilder& b, const std::vector<Dim>& all) {
  Names parts;
  for (size_t i = 0; i < all.size(); i += kMaxRank) {
    Shape part;
    for (size_t k = i; k < std::min(all.size(), i + kMaxRank); ++k) part.push_back(all[k]);
    parts.push_back(b.dims(part));
  }
  bool numbers = true;
  std::vector<int64_t> list;
  for (const Dim d : all) {
    numbers &= !d.is_symbolic();
    if (numbers) list.push_back(d.value());
  }
  if (numbers) return b.ints(list);
  return parts.size() == 1 ? parts[0] : b.node("Concat", parts, {onnx_int("axis", 0)});
}

bool export_pad(OnnxExportCall& c) {
  const auto& a = c.get_attrs<PadAttrs>();
  std::vector<Dim> all(a.before.begin(), a.before.end());
  all.insert(all.end(), a.after.begin(), a.after.end());
  c.set(0, c.b.node("Pad", {c.x(0), dim_list(c.b, all), c.b.number(a.value, c.dtype(0))}));
  return true;
}
bool export_cat(OnnxExportCall& c) {
  const int d = normalize_dim(c.get_attrs<DimAttrs>().dim, c.out[0].rank());
  Names in;
  for (size_t i = 0; i < c.in.size(); ++i)
    if (c.rank(i) == c.out[0].rank()) in.push_back(c.x(i, c.out[0].dtype));
  c.set(0, in.size() == 1 ? in[0] : c.b.node("Concat", in, {onnx_int("axis", d)}));
  return true;
}
bool export_flip(OnnxExportCall& c) {
  std::vector<int64_t> axes;
  for (const Dim d : c.get_attrs<PermuteAttrs>().dims) axes.push_back(c.axis(d.value()));
  if (axes.empty() || c.rank(0) == 0) return export_alias(c);
  const std::vector<int64_t> minus(axes.size(), -1),
      ends(axes.size(), std::numeric_limits<int64_t>::min());
  c.set(0, c.b.node("Slice",
                    {c.x(0), c.b.ints(minus), c.b.ints(ends), c.b.ints(axes), c.b.ints(minus)}));
  return true;
}
bool export_roll(OnnxExportCall& c) {
  const auto& a = c.get_attrs<RollAttrs>();
  return c.by_ops([&](std::span<const Tensor> x) -> std::vector<Tensor> {
    Tensor y = a.dims.empty() ? x[0].reshape({x[0].shape().numel()}) : x[0];
    for (int i = 0; i < a.shifts.rank(); ++i) {
      const int d = a.dims.empty() ? 0 : normalize_dim(a.dims[i].value(), y.dim());
      const Dim size = y.shape(d), shift = mod(a.shifts[i], size);
      if (size == Dim(0) || shift == Dim(0)) continue;
      y = cat({narrow(y, d, size - shift, shift), narrow(y, d, 0, size - shift)}, d);
    }
    return {y.reshape(c.out[0].shape)};
  });
}
template <bool upper>
bool export_triangle(OnnxExportCall& c) {
  c.set(0, c.b.node("Trilu", {c.x(0), c.b.number(c.get_attrs<TriAttrs>().diagonal, DType::i64)},
                    {onnx_int("upper", upper)}));
  return true;
}
bool export_tril(OnnxExportCall& c) { return export_triangle<false>(c); }
bool export_triu(OnnxExportCall& c) { return export_triangle<true>(c); }

// ---- creation

bool export_fill(OnnxExportCall& c) {
  const auto& a = c.get_attrs<FillAttrs>();
  const Shape& s = c.out[0].shape;
  if (s.rank() == 0) {
    c.set(0, c.b.number(a.value, a.dtype));
    return true;
  }
  c.set(0, c.b.node("ConstantOfShape", {c.b.dims(s)},
                    {onnx_tensor("value", full({1}, a.value, a.dtype))}));
  return true;
}
// Small ones as constants.
bool export_made(OnnxExportCall& c) {
  AttrsHolder attrs(c.op.attrs, c.attrs);
  if (c.out[0].shape.is_symbolic() || c.out[0].shape.numel().value() > (1 << 16)) return false;
  c.set(0, c.b.constant(call(c.op, attrs.get(), SourceLocation::here())));
  return true;
}
bool export_arange(OnnxExportCall& c) {
  if (export_made(c)) return true;
  const auto& a = c.get_attrs<ArangeAttrs>();
  const DType t = a.dtype, w = is_floating(t) ? DType::f64 : DType::i64;
  const std::string count = c.b.reshape(c.b.dim(a.count[0]), Shape{});
  std::string y = c.b.node("Range", {c.b.number(0, DType::i64), count, c.b.number(1, DType::i64)});
  y = c.b.cast(y, DType::i64, w);
  if (a.step.to_double() != 1) y = c.b.node("Mul", {y, c.b.number(a.step, w)});
  if (a.start.to_double() != 0) y = c.b.node("Add", {y, c.b.number(a.start, w)});
  c.set(0, c.b.cast(y, w, t));
  return true;
}
bool export_linspace(OnnxExportCall& c) {
  if (export_made(c)) return true;
  const auto& a = c.get_attrs<LinspaceAttrs>();
  const double step = a.steps > 1 ? (a.end - a.start) / static_cast<double>(a.steps - 1) : 0;
  return c.by_ops([&](std::span<const Tensor>) -> std::vector<Tensor> {
    return {(arange(0, a.steps, 1, DType::i64).to(DType::f64) * step + a.start).to(a.dtype)};
  });
}
bool export_eye(OnnxExportCall& c) {
  const auto& a = c.get_attrs<EyeAttrs>();
  const std::string zeros = c.b.node("ConstantOfShape", {c.b.ints({a.n, a.m})},
                                     {onnx_tensor("value", full({1}, 0, a.dtype))});
  c.set(0, c.b.node("EyeLike", {zeros},
                    {onnx_int("dtype", static_cast<int64_t>(onnx_type_of(a.dtype)))}));
  return true;
}

}  // namespace tandem::onnx
