// SPDX-License-Identifier: Apache-2.0
// The rows of views: shape rule, strides, derivative, batch rule. The dispatcher creates the view
// itself; the derivative of a view is the inverse view, or zeros with the gradient written into a
// part.
#include <algorithm>

#include "tandem/ops/function_internal.h"
#include "tandem/ops/view/strided_copy_internal.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using detail::strided_copy;

// The reference of every view: a copy by the view's own strides.
void copy_view(const KernelCall& k) {
  const Array& x = k.in[0];
  const Array& y = k.out[0];
  Shape in(std::span<const int64_t>(x.shape, x.rank));
  Shape out(std::span<const int64_t>(y.shape, y.rank));
  Strides in_strides, strides;
  std::copy_n(x.strides, x.rank, in_strides.v.begin());
  int64_t offset = 0;
  if (k.op.view_fn(k.attrs, in, in_strides, out, strides, offset)) {
    const char* src = x.as<const char>() + offset * static_cast<int64_t>(size_of(x.dtype));
    strided_copy(y.data, y.strides, src, strides.data(), y.shape, y.rank, size_of(y.dtype));
    return;
  }
  // A reshape across strides: the elements in row-major order (outputs of a kernel call are
  // contiguous).
  TD_ASSERT(y.contiguous);
  const Strides dense = contiguous_strides(in);
  strided_copy(y.data, dense.data(), x.data, x.strides, x.shape, x.rank, size_of(x.dtype));
}

double bytes_of_output(const InferCall& c) {
  const Shape& s = c.out[0].shape;
  return s.is_symbolic() ? 0
                         : 2.0 * static_cast<double>(s.numel().value()) *
                               static_cast<double>(size_of(c.out[0].dtype));
}
// ---- view
// The size that -1 stands for: the sizes of `x` divided by the other ones. Equal symbols are
// cancelled first, so [b, 64] -> {b, -1} gives 64 for a symbolic b.
Dim missing_size(const Shape& x, const Shape& want, int at) {
  Shape in = x;
  Dim known = 1;
  for (int i = 0; i < want.rank(); ++i) {
    if (i == at) continue;
    bool cancelled = false;
    for (int k = 0; k < in.rank() && want[i].is_symbolic() && !cancelled; ++k) {
      if (!(in[k] == want[i])) continue;
      in.erase(k);
      cancelled = true;
    }
    if (!cancelled) known = known * want[i];
  }
  TD_CHECK(!(known == Dim(0)), Shape,
           "the size -1 of shape {} can be anything: the other sizes have 0 elements\n"
           "Write the size out.",
           want.to_string());
  return floordiv(in.numel(), known);
}

// The product of the sizes beside -1.
Dim factor_of(const Shape& want, int missing) {
  Shape rest = want;
  rest.erase(missing);
  return rest.numel();
}

// For a shape that x does not fill; `missing`: where its -1 is, or -1 for none.
std::string size_hint(const Shape& x, const Shape& want, int missing) {
  if (missing < 0) return "Use -1 for the size that follows from the rest.";
  const Dim factor = factor_of(want, missing), all = x.numel();
  if (factor.is_symbolic() || all.is_symbolic() || factor.raw() <= 0)
    return "The sizes beside -1 must divide the number of elements.";
  const int64_t over = all.raw() % factor.raw();
  // Of [n, c, h, w] a user who flattens for a layer usually means all but the first size.
  const int64_t one = x.rank() > 1 && x[0].raw() > 0 ? all.raw() / x[0].raw() : 0;
  const bool flat = want.rank() == 2 && missing == 0 && one > 0 && one != factor.raw();
  return fmt::format("{} elements are {} more than a multiple of {}: change the sizes beside -1{}",
                     all.raw(), over, factor.raw(),
                     flat ? fmt::format(" (a row of x has {}, as x.flatten(1) gives).", one) : ".");
}

void view_infer(InferCall& c) {
  const Spec& x = c.in[0];
  Shape out = c.get_attrs<ShapeAttrs>().shape;
  int missing = -1;
  for (int i = 0; i < out.rank(); ++i) {
    if (out[i].is_symbolic() || out[i].raw() >= 0) continue;
    TD_CHECK(out[i] == Dim(-1), Shape, "size {} of shape {} is negative\nOnly -1 is allowed, once.",
             out[i].to_string(), out.to_string());
    TD_CHECK(missing < 0, Shape,
             "shape {} has two sizes -1, one is allowed\nWrite one of them out.", out.to_string());
    missing = i;
  }
  if (missing >= 0) out[missing] = missing_size(x.shape, out, missing);
  const Dim want = out.numel(), have = x.shape.numel();
  TD_CHECK(dims_equal(want, have), Shape, "shape {} expects {}{} elements, x is {} ({})\n{}",
           c.get_attrs<ShapeAttrs>().shape.to_string(), missing >= 0 ? "a multiple of " : "",
           (missing >= 0 ? factor_of(out, missing) : want).to_string(), x.shape.to_string(),
           have.to_string(), size_hint(x.shape, out, missing));
  c.out[0] = Spec(x.dtype, out, x.device);
}

// Strides of `out` over the same bytes: runs of input dims that are contiguous with each other are
// matched with runs of output dims of the same size. As in at::detail::computeStride.
bool view_strides(const void*, const Shape& in, const Strides& is, const Shape& out, Strides& os,
                  int64_t& offset) {
  offset = 0;
  bool empty = false;
  for (Dim d : in) empty |= d.raw() == 0;
  if (empty || in.rank() == 0) {
    os = contiguous_strides(out);
    return true;
  }
  int o = out.rank() - 1;
  int64_t base = is[in.rank() - 1], in_run = 1, out_run = 1;
  for (int i = in.rank() - 1; i >= 0; --i) {
    in_run *= in[i].raw();
    if (i > 0 && (in[i - 1].raw() == 1 || is[i - 1] == in_run * base)) continue;
    while (o >= 0 && (out_run < in_run || out[o].raw() == 1)) {
      os[o] = out_run * base;
      out_run *= out[o].raw();
      --o;
    }
    if (out_run != in_run) return false;
    if (i > 0) {
      base = is[i - 1];
      in_run = out_run = 1;
    }
  }
  return o < 0;
}

void view_vjp(VjpCall& c) { c.results[0] = detail::call_view(c.grad(), c.in_shape(0), c.loc()); }

void view_batch(BatchCall& c) {
  c.out[0] =
      detail::call_view(c.in[0], detail::prepend(c.batch_size, c.node.out[0].shape), c.node.loc);
}

// ---- permute
void permute_infer(InferCall& c) {
  const Spec& x = c.in[0];
  const IntList& dims = c.get_attrs<PermuteAttrs>().dims;
  TD_CHECK(dims.rank() == x.rank(), Shape, "expected {} dims for x {}, got {}", x.rank(),
           x.shape.to_string(), dims.to_string());
  IntList d;
  if (x.rank()) d = normalize_dims(dims, x.rank());
  Shape out;
  for (Dim i : d) out.push_back(x[static_cast<int>(i.raw())]);
  c.out[0] = Spec(x.dtype, out, x.device);
}
int dim_at(const IntList& dims, int i, int rank) {
  const int64_t d = dims[i].raw();
  return static_cast<int>(d < 0 ? d + rank : d);
}
bool permute_strides(const void* attrs, const Shape& in, const Strides& is, const Shape&,
                     Strides& os, int64_t&) {
  const IntList& dims = static_cast<const PermuteAttrs*>(attrs)->dims;
  for (int i = 0; i < dims.rank(); ++i) os[i] = is[dim_at(dims, i, in.rank())];
  return true;
}
void permute_vjp(VjpCall& c) {
  const IntList& dims = c.get_attrs<PermuteAttrs>().dims;
  PermuteAttrs inverse;
  inverse.dims.resize(dims.rank());
  for (int i = 0; i < dims.rank(); ++i) inverse.dims[dim_at(dims, i, dims.rank())] = i;
  c.results[0] = call(op::permute, &inverse, c.loc(), c.grad());
}
void permute_batch(BatchCall& c) {
  const IntList& dims = c.get_attrs<PermuteAttrs>().dims;
  PermuteAttrs a{IntList(0)};
  for (int i = 0; i < dims.rank(); ++i) a.dims.push_back(dim_at(dims, i, dims.rank()) + 1);
  c.out[0] = call(op::permute, &a, c.node.loc, c.in[0]);
}

// ---- expand
void expand_infer(InferCall& c) {
  const Spec& x = c.in[0];
  const Shape& want = c.get_attrs<ShapeAttrs>().shape;
  const int lead = want.rank() - x.rank();
  TD_CHECK(lead >= 0, Shape, "shape {} has fewer dimensions than x {}", want.to_string(),
           x.shape.to_string());
  Shape out = want;
  for (int i = 0; i < want.rank(); ++i) {
    const bool keep = want[i] == Dim(-1);
    TD_CHECK(want[i].is_symbolic() || keep || want[i].raw() >= 0, Shape,
             "size {} of shape {} is negative\nOnly -1 is allowed: it keeps a size.",
             want[i].to_string(), want.to_string());
    if (i < lead) {
      TD_CHECK(!keep, Shape, "shape {} has -1 for dimension {}, which x {} does not have",
               want.to_string(), i, x.shape.to_string());
      continue;
    }
    const Dim have = x[i - lead];
    if (keep) {
      out[i] = have;
      continue;
    }
    TD_CHECK(have == Dim(1) || dims_equal(have, want[i]), Shape,
             "shape {} expects {} in dimension {}, x is {} ({})\nOnly sizes of 1 can be expanded.",
             want.to_string(), want[i].to_string(), i, x.shape.to_string(), have.to_string());
  }
  c.out[0] = Spec(x.dtype, out, x.device);
}
bool expand_strides(const void*, const Shape& in, const Strides& is, const Shape& out, Strides& os,
                    int64_t&) {
  const int lead = out.rank() - in.rank();
  for (int i = 0; i < out.rank(); ++i)
    os[i] = i < lead || (in[i - lead].raw() == 1 && out[i].raw() != 1) ? 0 : is[i - lead];
  return true;
}
void expand_vjp(VjpCall& c) {
  ShapeAttrs a{c.in_shape(0)};
  c.results[0] = call(op::sum_to, &a, c.loc(), c.grad());
}
void expand_batch(BatchCall& c) {
  const Shape& out = c.node.out[0].shape;
  // Ones between the batch dimension and the sizes aligned from the right.
  Shape middle(c.batch_size);
  for (int i = c.rank(0); i < out.rank(); ++i) middle.push_back(1);
  for (Dim d : c.node.in[0].shape) middle.push_back(d);
  ShapeAttrs a{detail::prepend(c.batch_size, out)};
  c.out[0] = call(op::expand, &a, c.node.loc, detail::call_view(c.in[0], middle, c.node.loc));
}

// ---- slice
void slice_infer(InferCall& c) {
  const Spec& x = c.in[0];
  const SliceAttrs& a = c.get_attrs<SliceAttrs>();
  const int d = normalize_dim(a.dim, x.rank());
  TD_CHECK(a.range.rank() == 3, Value, "expected a range of start, length and step, got {}",
           a.range.to_string());
  const Dim start = a.range[0], length = a.range[1], step = a.range[2];
  TD_CHECK(step.value() > 0, Value, "step must be positive, got {}\nUse flip() to go backwards.",
           step.to_string());
  if (!start.is_symbolic() && !length.is_symbolic() && !x[d].is_symbolic()) {
    TD_CHECK(start.raw() >= 0 && length.raw() >= 0, Index,
             "start {} and length {} must not be negative", start.raw(), length.raw());
    const int64_t room = x[d].raw() - start.raw();
    TD_CHECK(
        length.raw() == 0 ? room >= 0 : (length.raw() - 1) <= (room - 1) / step.raw() && room > 0,
        Index, "{} elements from {} by {} go past dimension {} of x {}", length.raw(), start.raw(),
        step.raw(), d, x.shape.to_string());
  }
  Shape out = x.shape;
  out[d] = length;
  c.out[0] = Spec(x.dtype, out, x.device);
}
bool slice_strides(const void* attrs, const Shape& in, const Strides& is, const Shape&, Strides& os,
                   int64_t& offset) {
  const SliceAttrs& a = *static_cast<const SliceAttrs*>(attrs);
  const int d = normalize_dim(a.dim, in.rank());
  os = is;
  // A size of 0 or 1 keeps its stride: the result stays dense where the input was.
  if (a.range[1].raw() > 1) os[d] = is[d] * a.range[2].raw();
  offset = a.range[1].raw() == 0 ? 0 : a.range[0].raw() * is[d];
  return true;
}
void slice_vjp(VjpCall& c) {
  const SliceAttrs& a = c.get_attrs<SliceAttrs>();
  SliceBackwardAttrs b{c.in_shape(0), normalize_dim(a.dim, c.in_shape(0).rank()), a.range};
  c.results[0] = call(op::slice_backward, &b, c.loc(), c.grad());
}
void slice_batch(BatchCall& c) {
  SliceAttrs a = c.get_attrs<SliceAttrs>();
  a.dim = normalize_dim(a.dim, c.rank(0)) + 1;
  c.out[0] = call(op::slice, &a, c.node.loc, c.in[0]);
}

void slice_backward_infer(InferCall& c) {
  const SliceBackwardAttrs& a = c.get_attrs<SliceBackwardAttrs>();
  const int d = normalize_dim(a.dim, a.shape.rank());
  TD_CHECK(c.in[0].rank() == a.shape.rank() && dims_equal(c.in[0][d], a.range[1]), Shape,
           "a gradient of {} does not fit a slice of {}", c.in[0].shape.to_string(),
           a.shape.to_string());
  c.out[0] = Spec(c.in[0].dtype, a.shape, c.in[0].device);
}
void slice_backward_loops(const KernelCall& k) {
  const SliceBackwardAttrs& a = k.get_attrs<SliceBackwardAttrs>();
  const Array &g = k.in[0], &y = k.out[0];
  detail::zero_array(y);
  if (g.numel == 0) return;
  Strides s;
  std::copy_n(y.strides, y.rank, s.v.begin());
  const int d = normalize_dim(a.dim, y.rank);
  char* dst = y.as<char>() + a.range[0].raw() * s[d] * static_cast<int64_t>(size_of(y.dtype));
  if (a.range[1].raw() > 1) s[d] *= a.range[2].raw();
  strided_copy(dst, s.data(), g.data, g.strides, g.shape, g.rank, size_of(g.dtype));
}
void slice_backward_vjp(VjpCall& c) {
  const SliceBackwardAttrs& b = c.get_attrs<SliceBackwardAttrs>();
  SliceAttrs a{b.dim, b.range};
  c.results[0] = call(op::slice, &a, c.loc(), c.grad());
}
void slice_backward_batch(BatchCall& c) {
  SliceBackwardAttrs a = c.get_attrs<SliceBackwardAttrs>();
  a.dim = normalize_dim(a.dim, a.shape.rank()) + 1;
  a.shape = detail::prepend(c.batch_size, a.shape);
  c.out[0] = call(op::slice_backward, &a, c.node.loc, c.in[0]);
}

// ---- select
void select_infer(InferCall& c) {
  const Spec& x = c.in[0];
  const SelectAttrs& a = c.get_attrs<SelectAttrs>();
  const int d = normalize_dim(a.dim, x.rank());
  const Dim i = a.index[0];
  TD_CHECK(i.is_symbolic() || x[d].is_symbolic() || (i.raw() >= 0 && i.raw() < x[d].raw()), Index,
           "index {} is out of range for dimension {} of size {}, x is {}", i.to_string(), d,
           x[d].to_string(), x.shape.to_string());
  Shape out = x.shape;
  out.erase(d);
  c.out[0] = Spec(x.dtype, out, x.device);
}
bool select_strides(const void* attrs, const Shape& in, const Strides& is, const Shape&,
                    Strides& os, int64_t& offset) {
  const SelectAttrs& a = *static_cast<const SelectAttrs*>(attrs);
  const int d = normalize_dim(a.dim, in.rank());
  offset = a.index[0].raw() * is[d];
  for (int i = 0, o = 0; i < in.rank(); ++i)
    if (i != d) os[o++] = is[i];
  return true;
}
void select_vjp(VjpCall& c) {
  const SelectAttrs& a = c.get_attrs<SelectAttrs>();
  const int d = normalize_dim(a.dim, c.in_shape(0).rank());
  Shape s = c.out_shape(0);
  s.insert(d, 1);
  SliceBackwardAttrs b{c.in_shape(0), d, IntList(a.index[0], 1, 1)};
  c.results[0] = call(op::slice_backward, &b, c.loc(), detail::call_view(c.grad(), s, c.loc()));
}
void select_batch(BatchCall& c) {
  SelectAttrs a = c.get_attrs<SelectAttrs>();
  a.dim = normalize_dim(a.dim, c.rank(0)) + 1;
  c.out[0] = call(op::select, &a, c.node.loc, c.in[0]);
}

// ---- diagonal
struct DiagonalPlace {
  int d1, d2;
  int64_t row, col;  ///< of the first element
};
DiagonalPlace diagonal_place(const DiagonalAttrs& a, int rank) {
  const int d1 = normalize_dim(a.dim1, rank), d2 = normalize_dim(a.dim2, rank);
  TD_CHECK(d1 != d2, Value, "dim1 and dim2 must differ, both are {}", d1);
  // Beyond the largest size all diagonals are empty.
  constexpr int64_t kFar = int64_t{1} << 62;
  const int64_t offset = std::clamp(a.offset, -kFar, kFar);
  return {d1, d2, std::max<int64_t>(-offset, 0), std::max<int64_t>(offset, 0)};
}
Shape diagonal_shape(const DiagonalAttrs& a, const Shape& x) {
  const DiagonalPlace p = diagonal_place(a, x.rank());
  const Dim n = max(min(x[p.d1] - Dim(p.row), x[p.d2] - Dim(p.col)), Dim(0));
  Shape out;
  for (int i = 0; i < x.rank(); ++i)
    if (i != p.d1 && i != p.d2) out.push_back(x[i]);
  out.push_back(n);
  return out;
}
void diagonal_infer(InferCall& c) {
  const Spec& x = c.in[0];
  TD_CHECK(x.rank() >= 2, Shape, "expected at least 2 dimensions, x is {}", x.shape.to_string());
  c.out[0] = Spec(x.dtype, diagonal_shape(c.get_attrs<DiagonalAttrs>(), x.shape), x.device);
}
void diagonal_layout(const DiagonalAttrs& a, int rank, const int64_t* is, int64_t* os,
                     int64_t& offset) {
  const DiagonalPlace p = diagonal_place(a, rank);
  int o = 0;
  for (int i = 0; i < rank; ++i)
    if (i != p.d1 && i != p.d2) os[o++] = is[i];
  os[o] = is[p.d1] + is[p.d2];
  offset = p.row * is[p.d1] + p.col * is[p.d2];
}
bool diagonal_strides(const void* attrs, const Shape& in, const Strides& is, const Shape& out,
                      Strides& os, int64_t& offset) {
  DiagonalAttrs a = *static_cast<const DiagonalAttrs*>(attrs);
  if (out.back().raw() == 0) a.offset = 0;  // nothing is read: a place that exists
  diagonal_layout(a, in.rank(), is.data(), os.v.data(), offset);
  return true;
}
void diagonal_vjp(VjpCall& c) {
  DiagonalAttrs a = c.get_attrs<DiagonalAttrs>();
  a.shape = c.in_shape(0);
  c.results[0] = call(op::diagonal_backward, &a, c.loc(), c.grad());
}
DiagonalAttrs batched_diagonal(const BatchCall& c, int rank) {
  DiagonalAttrs a = c.get_attrs<DiagonalAttrs>();
  a.dim1 = normalize_dim(a.dim1, rank) + 1;
  a.dim2 = normalize_dim(a.dim2, rank) + 1;
  return a;
}
void diagonal_batch(BatchCall& c) {
  const DiagonalAttrs a = batched_diagonal(c, c.rank(0));
  c.out[0] = call(op::diagonal, &a, c.node.loc, c.in[0]);
}
void diagonal_backward_infer(InferCall& c) {
  const DiagonalAttrs& a = c.get_attrs<DiagonalAttrs>();
  const Shape want = diagonal_shape(a, a.shape);
  TD_CHECK(want == c.in[0].shape, Shape, "a gradient of {} does not fit the diagonal {} of {}",
           c.in[0].shape.to_string(), want.to_string(), a.shape.to_string());
  c.out[0] = Spec(c.in[0].dtype, a.shape, c.in[0].device);
}
void diagonal_backward_loops(const KernelCall& k) {
  const Array &g = k.in[0], &y = k.out[0];
  detail::zero_array(y);
  if (g.numel == 0) return;
  Strides s;
  int64_t offset;
  diagonal_layout(k.get_attrs<DiagonalAttrs>(), y.rank, y.strides, s.v.data(), offset);
  strided_copy(y.as<char>() + offset * static_cast<int64_t>(size_of(y.dtype)), s.data(), g.data,
               g.strides, g.shape, g.rank, size_of(g.dtype));
}
void diagonal_backward_vjp(VjpCall& c) {
  const DiagonalAttrs& a = c.get_attrs<DiagonalAttrs>();
  c.results[0] = call(op::diagonal, &a, c.loc(), c.grad());
}
void diagonal_backward_batch(BatchCall& c) {
  const IntList& shape = c.get_attrs<DiagonalAttrs>().shape;
  DiagonalAttrs a = batched_diagonal(c, shape.rank());
  a.shape = detail::prepend(c.batch_size, shape);
  c.out[0] = call(op::diagonal_backward, &a, c.node.loc, c.in[0]);
}

// ---- unfold
void unfold_infer(InferCall& c) {
  const Spec& x = c.in[0];
  const UnfoldAttrs& a = c.get_attrs<UnfoldAttrs>();
  const int d = normalize_dim(a.dim, x.rank());
  TD_CHECK(a.step > 0 && a.size >= 0, Value, "size {} must not be negative and step {} be positive",
           a.size, a.step);
  TD_CHECK(x[d].is_symbolic() || a.size <= x[d].raw(), Shape,
           "windows of {} do not fit dimension {} of x {}", a.size, d, x.shape.to_string());
  Shape out = x.shape;
  out[d] = floordiv(x[d] - Dim(a.size), Dim(a.step)) + Dim(1);
  out.push_back(a.size);
  c.out[0] = Spec(x.dtype, out, x.device);
}
bool unfold_strides(const void* attrs, const Shape& in, const Strides& is, const Shape& out,
                    Strides& os, int64_t&) {
  const UnfoldAttrs& a = *static_cast<const UnfoldAttrs*>(attrs);
  const int d = normalize_dim(a.dim, in.rank());
  os = is;
  if (out[d].raw() > 1) os[d] = is[d] * a.step;
  os[in.rank()] = is[d];
  return true;
}
void unfold_vjp(VjpCall& c) {
  UnfoldAttrs a = c.get_attrs<UnfoldAttrs>();
  a.shape = c.in_shape(0);
  c.results[0] = call(op::unfold_backward, &a, c.loc(), c.grad());
}
void unfold_batch(BatchCall& c) {
  UnfoldAttrs a = c.get_attrs<UnfoldAttrs>();
  a.dim = normalize_dim(a.dim, c.rank(0)) + 1;
  c.out[0] = call(op::unfold, &a, c.node.loc, c.in[0]);
}
void unfold_backward_infer(InferCall& c) {
  const UnfoldAttrs& a = c.get_attrs<UnfoldAttrs>();
  TD_CHECK(c.in[0].rank() == a.shape.rank() + 1, Shape, "a gradient of {} does not fit x {}",
           c.in[0].shape.to_string(), a.shape.to_string());
  c.out[0] = Spec(c.in[0].dtype, a.shape, c.in[0].device);
}
// Each line of x along the windows' dimension gets the sums of its own windows, in their order.
void unfold_backward_loops(const KernelCall& k) {
  const UnfoldAttrs& a = k.get_attrs<UnfoldAttrs>();
  const Array &g = k.in[0], &y = k.out[0];
  const int d = normalize_dim(a.dim, y.rank);
  detail::zero_array(y);
  if (g.numel == 0) return;
  const int64_t windows = g.shape[d], work = windows * a.size, step = y.strides[d];
  visit_dtype(g.dtype, [&](auto tag) {
    using T = decltype(tag);
    detail::parallel_for_rows(g.numel / work, work, [&](int64_t b, int64_t e) {
      for (int64_t line = b; line < e; ++line) {
        const T* from = g.as<T>();
        T* to = y.as<T>();
        for (int64_t i = y.rank - 1, rest = line; i >= 0; --i) {
          if (i == d) continue;
          from += rest % y.shape[i] * g.strides[i];
          to += rest % y.shape[i] * y.strides[i];
          rest /= y.shape[i];
        }
        for (int64_t w = 0; w < windows; ++w, from += g.strides[d], to += a.step * step)
          for (int64_t i = 0; i < a.size; ++i)
            to[i * step] = detail::add_as<T>(to[i * step], from[i * g.strides[y.rank]]);
      }
    });
  });
}
void unfold_backward_vjp(VjpCall& c) {
  const UnfoldAttrs& a = c.get_attrs<UnfoldAttrs>();
  c.results[0] = call(op::unfold, &a, c.loc(), c.grad());
}
void unfold_backward_batch(BatchCall& c) {
  UnfoldAttrs a = c.get_attrs<UnfoldAttrs>();
  a.dim = normalize_dim(a.dim, a.shape.rank()) + 1;
  a.shape = detail::prepend(c.batch_size, a.shape);
  c.out[0] = call(op::unfold_backward, &a, c.node.loc, c.in[0]);
}

constexpr OpDef free_view(const char* name, const AttrsType* attrs, ViewFn view) {
  return view_row(name, {"x"}, attrs, view).flops(detail::no_flops).bytes(detail::no_flops);
}
// Zeros of a shape with g somewhere in it.
constexpr OpDef scattered(const char* name, const AttrsType* attrs) {
  return make_row(name, Family::index, Types::same, {"g"}, attrs)
      .flops(detail::no_flops)
      .bytes(bytes_of_output);
}

}  // namespace

namespace op {
constinit const OpDef view =
    free_view("view", fields<ShapeAttrs>(), view_strides)
        .infer(view_infer)
        .vjp(view_vjp)
        .batch(view_batch)
        .reference(copy_view)
        .flag(kPassesSame)
        .onnx("Reshape")
        .doc("The elements of x in row-major order with another shape; one size may be -1.");
constinit const OpDef permute =
    free_view("permute", fields<PermuteAttrs>(), permute_strides)
        .infer(permute_infer)
        .vjp(permute_vjp)
        .batch(permute_batch)
        .reference(copy_view)
        .onnx("Transpose")
        .doc("Dimensions in another order: output dimension i is input dimension dims[i].");
constinit const OpDef expand =
    free_view("expand", fields<ShapeAttrs>(), expand_strides)
        .infer(expand_infer)
        .vjp(expand_vjp)
        .batch(expand_batch)
        .reference(copy_view)
        .onnx("Expand")
        .doc("Dimensions of size 1 repeated, without copying; -1 keeps a size.");
constinit const OpDef slice = view_row("slice", {"x"}, fields<SliceAttrs>(), slice_strides)
                                  .infer(slice_infer)
                                  .vjp(slice_vjp)
                                  .batch(slice_batch)
                                  .reference(copy_view)
                                  .flops(detail::no_flops)
                                  .bytes(detail::no_flops)
                                  .doc("Elements start, start + step, ... of one dimension.");
constinit const OpDef select = view_row("select", {"x"}, fields<SelectAttrs>(), select_strides)
                                   .infer(select_infer)
                                   .vjp(select_vjp)
                                   .batch(select_batch)
                                   .reference(copy_view)
                                   .flops(detail::no_flops)
                                   .bytes(detail::no_flops)
                                   .doc("One element of a dimension, which is removed.");
constinit const OpDef diagonal =
    free_view("diagonal", fields<DiagonalAttrs>(), diagonal_strides)
        .infer(diagonal_infer)
        .vjp(diagonal_vjp)
        .batch(diagonal_batch)
        .reference(copy_view)
        .doc("The diagonal of two dimensions as a new last dimension.");
constinit const OpDef unfold =
    free_view("unfold", fields<UnfoldAttrs>(), unfold_strides)
        .infer(unfold_infer)
        .vjp(unfold_vjp)
        .batch(unfold_batch)
        .reference(copy_view)
        .doc("Sliding windows of one dimension as a new last dimension.");
constinit const OpDef slice_backward =
    scattered("slice_backward", fields<SliceBackwardAttrs>())
        .infer(slice_backward_infer)
        .vjp(slice_backward_vjp)
        .batch(slice_backward_batch)
        .reference(slice_backward_loops)
        .flag(kMoved)
        .doc("Zeros of a shape with g written over a slice: the derivative of slice and select.");
constinit const OpDef diagonal_backward =
    scattered("diagonal_backward", fields<DiagonalAttrs>())
        .infer(diagonal_backward_infer)
        .vjp(diagonal_backward_vjp)
        .batch(diagonal_backward_batch)
        .reference(diagonal_backward_loops)
        .flag(kMoved)
        .doc("Zeros of a shape with g on a diagonal: the derivative of diagonal.");
constinit const OpDef unfold_backward =
    scattered("unfold_backward", fields<UnfoldAttrs>())
        .infer(unfold_backward_infer)
        .vjp(unfold_backward_vjp)
        .batch(unfold_backward_batch)
        .reference(unfold_backward_loops)
        .doc("Windows summed back into their places: the derivative of unfold.");
}  // namespace op

}  // namespace tandem
