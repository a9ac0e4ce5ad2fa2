// SPDX-License-Identifier: Apache-2.0
// Shape, dtype and batch rules of reductions and scans.
#include <algorithm>

#include "tandem/ops/reduce/reduce_internal.h"
#include "tandem/ops/view/view.h"

namespace tandem::detail {

IntList reduced_dims(const IntList& dims, int rank) {
  if (rank == 0) {
    for (Dim d : dims) {
      TD_CHECK(d.value() == 0 || d.value() == -1, Index,
               "dimension {} is out of range: a 0-d tensor takes 0 and -1", d.value());
    }
    return {};
  }
  IntList out = normalize_dims(dims, rank);
  std::sort(out.begin(), out.end(), [](Dim a, Dim b) { return a.raw() < b.raw(); });
  return out;
}

Shape reduced_shape(const Shape& x, const IntList& dims, bool keepdim) {
  Shape out;
  int next = 0;
  for (int d = 0; d < x.rank(); ++d) {
    const bool reduced = next < dims.rank() && dims[next].raw() == d;
    if (reduced) ++next;
    if (!reduced || keepdim) out.push_back(reduced ? Dim(1) : x[d]);
  }
  return out;
}

namespace {

bool is_extreme(const OpDef& op) { return op.types == Types::same; }

void check_floating(const InferCall& c) {
  TD_CHECK(is_floating(c.in[0].dtype), DType,
           "expected a floating dtype, x is {}\nCast it first, for example x.to(float32).",
           to_string(c.in[0].dtype));
}

DType result_dtype(const InferCall& c) {
  const DType x = c.in[0].dtype;
  switch (c.op.types) {
    case Types::arith:
      return is_floating(x) ? x : DType::i64;
    case Types::floating:
      check_floating(c);
      return x;
    case Types::logical:
      return DType::b8;
    default:
      return x;
  }
}

void check_tensor(const InferCall& c) {
  TD_CHECK(c.has(0), Value, "expected a tensor for x, got a number\nUse full({{}}, value).");
}

}  // namespace

void infer_reduce(InferCall& c) {
  check_tensor(c);
  const auto& a = c.get_attrs<ReduceAttrs>();
  const Shape& x = c.in[0].shape;
  const IntList dims = reduced_dims(a.dims, x.rank());
  if (is_extreme(c.op)) {
    for (Dim d : dims) {
      TD_CHECK(!(x[static_cast<int>(d.raw())] == Dim(0)), Shape,
               "dimension {} of x {} is empty and has no largest or smallest element", d.raw(),
               x.to_string());
    }
  }
  for (int i = 1; i < c.n_in(); ++i) {
    TD_CHECK(c.is_scalar(i), Value, "expected a number for {}", c.op.in_names[i]);
  }
  const Shape y = reduced_shape(x, dims, a.keepdim);
  for (int k = 0; k < c.op.n_out; ++k) {
    // Indices and counts are marked by the name of the output.
    const bool count = c.op.out_names[k][0] == 'i' || c.op.out_names[k][0] == 'n';
    c.out[k] = Spec(count ? DType::i64 : result_dtype(c), y, c.in[0].device);
  }
}

void infer_scan(InferCall& c) {
  check_tensor(c);
  const Shape& x = c.in[0].shape;
  const IntList dim = {c.get_attrs<ScanAttrs>().dim};
  reduced_dims(dim, x.rank());
  for (int k = 0; k < c.op.n_out; ++k) {
    c.out[k] = Spec(k == 1 ? DType::i64 : result_dtype(c), x, c.in[0].device);
  }
}

void infer_sum_to(InferCall& c) {
  check_tensor(c);
  const Shape &x = c.in[0].shape, &y = c.get_attrs<ShapeAttrs>().shape;
  const int lead = x.rank() - y.rank();
  bool fits = lead >= 0;
  for (int d = 0; fits && d < y.rank(); ++d) {
    fits = y[d] == Dim(1) || dims_equal(x[lead + d], y[d]);
  }
  TD_CHECK(fits, Shape, "x {} does not sum to {}\nIts sizes must be 1 or those of x.",
           x.to_string(), y.to_string());
  c.out[0] = Spec(c.in[0].dtype, y, c.in[0].device);
}

// ---- vmap: the batch dimension is first, the reduced ones shift by one

void batch_reduce(BatchCall& c) {
  ReduceAttrs a = c.get_attrs<ReduceAttrs>();
  const int rank = c.rank(0);
  const SourceLocation loc = c.node.loc;
  Tensor x = c.in[0];
  IntList dims = reduced_dims(a.dims, rank);
  if (rank == 0) {
    x = reshape(x, {c.batch_size, Dim(1)}, loc);
    dims = {0};
    a.keepdim = false;
  }
  for (Dim& d : dims) d = d + 1;
  a.dims = dims;
  Tensor out[kMaxOpOuts];
  const int n_in = c.n_in();
  if (n_in == 2) {
    Operand in[] = {Operand(x, loc), Operand(c.node.in[1].scalar, loc)};
    apply(*c.node.op, &a, in, out, loc);
  } else {
    Operand in[] = {Operand(x, loc)};
    apply(*c.node.op, &a, in, out, loc);
  }
  for (int k = 0; k < c.node.op->n_out; ++k) c.out[k] = out[k];
}

void batch_scan(BatchCall& c) {
  const int rank = c.rank(0);
  const SourceLocation loc = c.node.loc;
  Tensor x = rank == 0 ? reshape(c.in[0], {c.batch_size, Dim(1)}, loc) : c.in[0];
  ScanAttrs a = c.get_attrs<ScanAttrs>();
  a.dim = rank == 0 ? 1 : normalize_dim(a.dim, rank) + 1;
  Tensor out[kMaxOpOuts];
  Operand in[] = {Operand(x, loc)};
  apply(*c.node.op, &a, in, out, loc);
  for (int k = 0; k < c.node.op->n_out; ++k) {
    c.out[k] = rank == 0 ? reshape(out[k], {c.batch_size}, loc) : out[k];
  }
}

void batch_sum_to(BatchCall& c) {
  const Shape& y = c.get_attrs<ShapeAttrs>().shape;
  const SourceLocation loc = c.node.loc;
  Shape wide{c.batch_size}, result{c.batch_size};
  for (int d = y.rank(); d < c.rank(0); ++d) wide.push_back(1);
  for (Dim d : y) {
    wide.push_back(d);
    result.push_back(d);
  }
  c.out[0] = reshape(sum_to(c.in[0], wide, loc), result, loc);
}

}  // namespace tandem::detail
