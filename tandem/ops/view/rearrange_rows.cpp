// SPDX-License-Identifier: Apache-2.0
// The rows that move elements by a rule: copy, cat, pad, flip, roll, tril, triu, and the list of
// the whole family.
#include <algorithm>
#include <cstring>

#include "tandem/base/parallel.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/view/bits.h"
#include "tandem/ops/view/strided_copy_internal.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using detail::strided_copy;

void same_infer(InferCall& c) { c.out[0] = Spec(c.in[0].dtype, c.in[0].shape, c.in[0].device); }

char* at_offset(const Array& a, int64_t elements) {
  return a.as<char>() + elements * static_cast<int64_t>(size_of(a.dtype));
}

// ---- copy
void copy_loops(const KernelCall& k) { detail::copy_array(k.out[0], k.in[0]); }
void copy_vjp(VjpCall& c) { c.results[0] = c.grad(); }
void copy_batch(BatchCall& c) { c.out[0] = call(op::copy, nullptr, c.node.loc, c.in[0]); }

// ---- to_device: the dispatcher moves the bytes; compiled programs have it inside only where it
// stays on their device
void move_infer(InferCall& c) {
  c.out[0] = Spec(c.in[0].dtype, c.in[0].shape, device_named(c.get_attrs<ToDeviceAttrs>().device));
}
void move_vjp(VjpCall& c) { c.results[0] = move_to(c.grad(), c.in_device(0), c.loc()); }
void move_batch(BatchCall& c) {
  c.out[0] = call(op::to_device, c.node.attrs.get(), c.node.loc, c.in[0]);
}

// ---- cat
void cat_infer(InferCall& c) {
  TD_CHECK(c.n_in() > 0, Value, "expected at least one tensor");
  const Spec& first = c.in[0];
  const int d = normalize_dim(c.get_attrs<DimAttrs>().dim, first.rank());
  Shape out = first.shape;
  for (int i = 1; i < c.n_in(); ++i) {
    const Spec& x = c.in[i];
    TD_CHECK(x.dtype == first.dtype, DType, "tensor 0 is {}, tensor {} is {}\nCast them first.",
             to_string(first.dtype), i, to_string(x.dtype));
    bool same = x.rank() == first.rank();
    for (int k = 0; same && k < first.rank(); ++k) same = k == d || dims_equal(x[k], first[k]);
    TD_CHECK(same, Shape,
             "tensor 0 is {}, tensor {} is {}: sizes must be equal in all dimensions but {}",
             first.shape.to_string(), i, x.shape.to_string(), d);
    out[d] = out[d] + x[d];
  }
  c.out[0] = Spec(first.dtype, out, first.device);
}
void cat_loops(const KernelCall& k) {
  const Array& y = k.out[0];
  const int d = normalize_dim(k.get_attrs<DimAttrs>().dim, y.rank);
  int64_t at = 0;
  for (int i = 0; i < k.n_in; ++i) {
    const Array& x = k.in[i];
    if (x.numel)
      strided_copy(at_offset(y, at * y.strides[d]), y.strides, x.data, x.strides, x.shape, x.rank,
                   size_of(y.dtype));
    at += x.shape[d];
  }
}
void cat_vjp(VjpCall& c) {
  const int d = normalize_dim(c.get_attrs<DimAttrs>().dim, c.out_shape(0).rank());
  Dim at = 0;
  for (int i = 0; i < c.n_in(); ++i) {
    const Dim n = c.in_shape(i)[d];
    if (c.needs(i)) c.results[i] = narrow(c.grad(), d, at, n, c.loc());
    at = at + n;
  }
}
void cat_batch(BatchCall& c) {
  DimAttrs a{normalize_dim(c.get_attrs<DimAttrs>().dim, c.rank(0)) + 1};
  std::vector<Tensor> xs;
  for (int i = 0; i < c.n_in(); ++i) xs.push_back(detail::with_batch(c, i));
  c.out[0] = call_list(op::cat, &a, c.node.loc, xs);
}

// ---- pad
void pad_infer(InferCall& c) {
  const Spec& x = c.in[0];
  const PadAttrs& a = c.get_attrs<PadAttrs>();
  TD_CHECK(a.before.rank() == x.rank() && a.after.rank() == x.rank(), Shape,
           "expected {} sizes before and after, got {} and {}", x.rank(), a.before.to_string(),
           a.after.to_string());
  Shape out = x.shape;
  for (int i = 0; i < x.rank(); ++i) {
    out[i] = x[i] + a.before[i] + a.after[i];
    TD_CHECK(out[i].is_symbolic() || out[i].raw() >= 0, Shape,
             "padding {} and {} leaves {} elements of dimension {} of x {}",
             a.before[i].to_string(), a.after[i].to_string(), out[i].to_string(), i,
             x.shape.to_string());
  }
  c.out[0] = Spec(x.dtype, out, x.device);
}
void pad_loops(const KernelCall& k) {
  const PadAttrs& a = k.get_attrs<PadAttrs>();
  const Array &x = k.in[0], &y = k.out[0];
  detail::fill_array(y, a.value);
  Shape part;
  int64_t from = 0, to = 0;
  for (int i = 0; i < x.rank; ++i) {
    const int64_t before = a.before[i].raw(), after = a.after[i].raw();
    const int64_t n = x.shape[i] + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0);
    if (n <= 0) return;
    part.push_back(n);
    from += std::max<int64_t>(-before, 0) * x.strides[i];
    to += std::max<int64_t>(before, 0) * y.strides[i];
  }
  strided_copy(at_offset(y, to), y.strides, at_offset(x, from), x.strides, part.data(), x.rank,
               size_of(x.dtype));
}
void pad_vjp(VjpCall& c) {
  PadAttrs a = c.get_attrs<PadAttrs>();
  a.value = 0;
  for (int i = 0; i < a.before.rank(); ++i) {
    a.before[i] = Dim(0) - a.before[i];
    a.after[i] = Dim(0) - a.after[i];
  }
  c.results[0] = call(op::pad, &a, c.loc(), c.grad());
}
void pad_batch(BatchCall& c) {
  PadAttrs a = c.get_attrs<PadAttrs>();
  a.before.insert(0, 0);
  a.after.insert(0, 0);
  c.out[0] = call(op::pad, &a, c.node.loc, c.in[0]);
}

// ---- flip
void flip_infer(InferCall& c) {
  const IntList& dims = c.get_attrs<PermuteAttrs>().dims;
  if (!dims.empty()) normalize_dims(dims, c.in[0].rank());
  same_infer(c);
}
void flip_loops(const KernelCall& k) {
  const Array &x = k.in[0], &y = k.out[0];
  if (x.numel == 0) return;
  const IntList& dims = k.get_attrs<PermuteAttrs>().dims;
  Strides s;
  std::copy_n(x.strides, x.rank, s.v.begin());
  int64_t from = 0;
  for (Dim dim : dims) {
    const int d = normalize_dim(dim.value(), x.rank);
    from += (x.shape[d] - 1) * x.strides[d];
    s[d] = -s[d];
  }
  strided_copy(y.data, y.strides, at_offset(x, from), s.data(), x.shape, x.rank, size_of(x.dtype));
}
void flip_vjp(VjpCall& c) {
  c.results[0] = flip(c.grad(), c.get_attrs<PermuteAttrs>().dims, c.loc());
}
IntList behind_batch(const IntList& dims, int rank) {
  IntList out;
  for (Dim d : dims) out.push_back(normalize_dim(d.value(), rank) + 1);
  return out;
}
void flip_batch(BatchCall& c) {
  c.out[0] = flip(c.in[0], behind_batch(c.get_attrs<PermuteAttrs>().dims, c.rank(0)), c.node.loc);
}

// ---- roll
void roll_infer(InferCall& c) {
  const RollAttrs& a = c.get_attrs<RollAttrs>();
  TD_CHECK(a.shifts.rank() == a.dims.rank(), Value,
           "expected one shift per dimension, got {} for {}", a.shifts.to_string(),
           a.dims.to_string());
  if (!a.dims.empty()) normalize_dims(a.dims, c.in[0].rank());
  same_infer(c);
}
void roll_loops(const KernelCall& k) {
  const Array &x = k.in[0], &y = k.out[0];
  if (x.numel == 0) return;
  const RollAttrs& a = k.get_attrs<RollAttrs>();
  int64_t shift[kMaxRank] = {};
  for (int i = 0; i < a.dims.rank(); ++i) {
    const int d = normalize_dim(a.dims[i].value(), x.rank);
    shift[d] = (a.shifts[i].value() % x.shape[d] + x.shape[d]) % x.shape[d];
  }
  // Each dim is two runs: bit d of `part` selects one.
  for (unsigned part = 0; part < 1u << x.rank; ++part) {
    int64_t n[kMaxRank], from = 0, to = 0;
    bool any = true;
    for (int d = 0; d < x.rank; ++d) {
      const bool wrapped = part >> d & 1;
      n[d] = wrapped ? shift[d] : x.shape[d] - shift[d];
      any &= n[d] > 0;
      (wrapped ? from : to) +=
          (wrapped ? x.shape[d] - shift[d] : shift[d]) * (wrapped ? x.strides[d] : y.strides[d]);
    }
    if (any)
      strided_copy(at_offset(y, to), y.strides, at_offset(x, from), x.strides, n, x.rank,
                   size_of(x.dtype));
  }
}
void roll_vjp(VjpCall& c) {
  RollAttrs a = c.get_attrs<RollAttrs>();
  for (Dim& s : a.shifts) s = Dim(0) - s;
  c.results[0] = call(op::roll, &a, c.loc(), c.grad());
}
void roll_batch(BatchCall& c) {
  RollAttrs a = c.get_attrs<RollAttrs>();
  a.dims = behind_batch(a.dims, c.rank(0));
  c.out[0] = call(op::roll, &a, c.node.loc, c.in[0]);
}

// ---- tril, triu
void tri_infer(InferCall& c) {
  TD_CHECK(c.in[0].rank() >= 2, Shape, "expected at least 2 dimensions, x is {}",
           c.in[0].shape.to_string());
  same_infer(c);
}
template <bool kUpper>
void tri_loops(const KernelCall& k) {
  const Array &x = k.in[0], &y = k.out[0];
  const int64_t diagonal = k.get_attrs<TriAttrs>().diagonal;
  const int64_t rows = x.shape[x.rank - 2], cols = x.shape[x.rank - 1];
  if (x.numel == 0) return;
  const size_t size = size_of(x.dtype);
  parallel_for(0, x.numel / cols, std::max<int64_t>(1, 16384 / cols), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      int64_t from = 0, to = 0, rest = r;
      for (int i = x.rank - 2; i >= 0; --i) {
        from += rest % x.shape[i] * x.strides[i];
        to += rest % x.shape[i] * y.strides[i];
        rest /= x.shape[i];
      }
      // Columns [lo, hi) are kept.
      const int64_t row = r % rows;
      const int64_t edge = std::clamp<int64_t>(diagonal > cols    ? cols
                                               : diagonal < -rows ? 0
                                               : kUpper           ? row + diagonal
                                                                  : row + diagonal + 1,
                                               0, cols);
      const int64_t lo = kUpper ? edge : 0, hi = kUpper ? cols : edge;
      const int64_t xs = x.strides[x.rank - 1], ys = y.strides[y.rank - 1];
      char* out = at_offset(y, to);
      const int64_t z0 = kUpper ? 0 : hi, z1 = kUpper ? lo : cols;
      if (ys == 1 && z1 > z0)
        std::memset(out + z0 * int64_t(size), 0, static_cast<size_t>(z1 - z0) * size);
      else
        for (int64_t i = z0; i < z1; ++i) std::memset(out + i * ys * int64_t(size), 0, size);
      const int64_t n = hi - lo;
      if (n > 0 && out != at_offset(x, from))
        strided_copy(out + lo * ys * int64_t(size), &ys, at_offset(x, from + lo * xs), &xs, &n, 1,
                     size);
    }
  });
}
template <bool kUpper>
void tri_vjp(VjpCall& c) {
  const int64_t d = c.get_attrs<TriAttrs>().diagonal;
  c.results[0] = kUpper ? triu(c.grad(), d, c.loc()) : tril(c.grad(), d, c.loc());
}
template <bool kUpper>
void tri_batch(BatchCall& c) {
  const int64_t d = c.get_attrs<TriAttrs>().diagonal;
  c.out[0] = kUpper ? triu(c.in[0], d, c.node.loc) : tril(c.in[0], d, c.node.loc);
}

constexpr OpDef moving(const char* name, Names in, const AttrsType* attrs) {
  return make_row(name, Family::index, Types::same, in, attrs)
      .flops(detail::no_flops)
      .bytes(detail::bytes_moved);
}

}  // namespace

namespace op {
constinit const OpDef copy = moving("copy", {"x"}, nullptr)
                                 .infer(same_infer)
                                 .vjp(copy_vjp)
                                 .batch(copy_batch)
                                 .reference(copy_loops)
                                 .flag(kMoved | kPassesSame)
                                 .onnx("Identity")
                                 .doc("The same values, dense in row-major order.");
constinit const OpDef to_device = moving("to_device", {"x"}, fields<ToDeviceAttrs>())
                                      .infer(move_infer)
                                      .vjp(move_vjp)
                                      .batch(move_batch)
                                      .reference(copy_loops)
                                      .flag(kSetsDevice | kPassesSame)
                                      .doc("The same values in the memory of another device.");
constinit const OpDef cat = moving("cat", {"xs*"}, fields<DimAttrs>())
                                .infer(cat_infer)
                                .vjp(cat_vjp)
                                .batch(cat_batch)
                                .reference(cat_loops)
                                .flag(kMoved)
                                .onnx("Concat")
                                .doc("Tensors concatenated along an existing dimension.");
constinit const OpDef pad =
    moving("pad", {"x"}, fields<PadAttrs>())
        .infer(pad_infer)
        .vjp(pad_vjp)
        .batch(pad_batch)
        .reference(pad_loops)
        .flag(kMoved)
        .doc("Elements of one value before and after each dimension; negative sizes crop.");
constinit const OpDef flip = moving("flip", {"x"}, fields<PermuteAttrs>())
                                 .infer(flip_infer)
                                 .vjp(flip_vjp)
                                 .batch(flip_batch)
                                 .reference(flip_loops)
                                 .flag(kMoved)
                                 .doc("Elements in reverse order along dims.");
constinit const OpDef roll =
    moving("roll", {"x"}, fields<RollAttrs>())
        .infer(roll_infer)
        .vjp(roll_vjp)
        .batch(roll_batch)
        .reference(roll_loops)
        .flag(kMoved)
        .doc("Elements shifted cyclically along dims: those pushed out reappear at the other end.");
constinit const OpDef tril =
    moving("tril", {"x"}, fields<TriAttrs>())
        .infer(tri_infer)
        .vjp(tri_vjp<false>)
        .batch(tri_batch<false>)
        .reference(tri_loops<false>)
        .doc("The lower triangle of matrices up to a diagonal, zero above it.");
constinit const OpDef triu =
    moving("triu", {"x"}, fields<TriAttrs>())
        .infer(tri_infer)
        .vjp(tri_vjp<true>)
        .batch(tri_batch<true>)
        .reference(tri_loops<true>)
        .doc("The upper triangle of matrices from a diagonal, zero below it.");
}  // namespace op

std::span<const OpDef* const> view_rows() {
  static constexpr const OpDef* kRows[] = {
      &op::view,
      &op::permute,
      &op::expand,
      &op::slice,
      &op::select,
      &op::diagonal,
      &op::unfold,
      &op::slice_backward,
      &op::diagonal_backward,
      &op::unfold_backward,
      &op::copy,
      &op::to_device,
      &op::cat,
      &op::pad,
      &op::flip,
      &op::roll,
      &op::tril,
      &op::triu,
      &op::bitcast,
  };
  return kRows;
}

}  // namespace tandem
