// SPDX-License-Identifier: Apache-2.0
// The rows `matmul` and `linear` and the functions built on them. Derivatives transpose by
// attribute, so they never copy.
#include "tandem/ops/matmul/matmul.h"

#include "tandem/base/parallel.h"
#include "tandem/ops/rule_internal.h"

namespace tandem {
namespace {

using detail::Dense;
using detail::merged;
using detail::placed;
using detail::product;
using detail::reduce_to;

// ---- matmul: rules

Shape lead_of(const Shape& s) {
  Shape r;
  for (int i = 0; i + 2 < s.rank(); ++i) r.push_back(s[i]);
  return r;
}

void check_numbers(const InferCall& c, const char* a, const char* b) {
  const Spec &x = c.in[0], &y = c.in[1];
  TD_CHECK(x.dtype == y.dtype, DType, "{} is {}, {} is {}\nCast one of them with .to().", a,
           to_string(x.dtype), b, to_string(y.dtype));
  TD_CHECK(!is_bool(x.dtype), DType, "{} is bool, a matmul expects numbers\nCast it with .to().",
           a);
}

void matmul_infer(InferCall& c) {
  const auto& at = c.get_attrs<MatmulAttrs>();
  const Shape &a = c.in[0].shape, &b = c.in[1].shape;
  check_numbers(c, "a", "b");
  TD_CHECK(a.rank() >= 2 && b.rank() >= 2, Shape, "a is {}, b is {}: the row expects matrices",
           a.to_string(), b.to_string());
  Dim m = a[a.rank() - (at.trans_a ? 1 : 2)], ka = a[a.rank() - (at.trans_a ? 2 : 1)];
  Dim kb = b[b.rank() - (at.trans_b ? 1 : 2)], n = b[b.rank() - (at.trans_b ? 2 : 1)];
  TD_CHECK(dims_equal(ka, kb), Shape,
           "a {} has inner size {}, b {} has {}\nThe last dimension of a must be the last but one "
           "of b; did you mean b.transpose(-2, -1)?",
           a.to_string(), ka.to_string(), b.to_string(), kb.to_string());
  Shape y = broadcast_shapes(lead_of(a), lead_of(b));
  y.push_back(m);
  y.push_back(n);
  c.out[0] = Spec(c.in[0].dtype, y, c.in[0].device);
}

// [..., m, k] -> [rows, k], when the operand is not transposed.
Tensor as_matrix(const Tensor& t, SourceLocation loc) {
  int r = t.dim();
  return r == 2 ? t : t.reshape(merged(t.shape(), 0, r - 1), loc);
}

void matmul_vjp(VjpCall& c) {
  auto [ta, tb] = c.get_attrs<MatmulAttrs>();
  const Tensor &a = c.in(0), &b = c.in(1), &g = c.grad();
  SourceLocation loc = c.loc();
  if (c.needs(0)) {
    Tensor d = ta ? matmul(b, g, {tb, true}, loc) : matmul(g, b, {false, !tb}, loc);
    c.results[0] = reduce_to(std::move(d), c.in_shape(0), loc);
  }
  if (!c.needs(1)) return;
  // One matrix for all batches of a: a single matmul over all rows instead of a sum of matmuls.
  bool fold = !ta && c.in_shape(1).rank() == 2 && c.in_shape(0).rank() > 2;
  Tensor x = fold ? as_matrix(a, loc) : a, y = fold ? as_matrix(g, loc) : g;
  Tensor d = tb ? matmul(y, x, {true, ta}, loc) : matmul(x, y, {!ta, false}, loc);
  c.results[1] = reduce_to(std::move(d), c.in_shape(1), loc);
}

void matmul_batch(BatchCall& c) {
  int rank = std::max(c.rank(0), c.rank(1));
  c.out[0] = matmul(detail::with_rank(c, 0, rank), detail::with_rank(c, 1, rank),
                    c.get_attrs<MatmulAttrs>(), c.node.loc);
}

// ---- matmul: reference

// Element offset of matrix `batch` (row-major in the output's leading dims) of an operand.
int64_t batch_offset(const Array& a, const Array& y, int64_t batch) {
  int64_t offset = 0, step = a.shape[a.rank - 1] * a.shape[a.rank - 2];
  for (int d = y.rank - 3; d >= 0; --d) {
    int64_t i = batch % y.shape[d];
    batch /= y.shape[d];
    int k = d - (y.rank - a.rank);
    if (k < 0) continue;
    if (a.shape[k] != 1) offset += i * step;
    step *= a.shape[k];
  }
  return offset;
}

// y[n] = sum over k of a[k * sa] * b[k * sk + j * sn], k in order.
template <class T>
void row_times_matrix(const T* a, int64_t sa, const T* b, int64_t sk, int64_t sn, int64_t k,
                      int64_t n, T* y) {
  for (int64_t j = 0; j < n; ++j) y[j] = 0;
  if (sn == 1) {
    for (int64_t p = 0; p < k; ++p) {
      T v = a[p * sa];
      for (int64_t j = 0; j < n; ++j) y[j] += v * b[p * sk + j];
    }
    return;
  }
  for (int64_t j = 0; j < n; ++j) {
    T s = 0;
    for (int64_t p = 0; p < k; ++p) s += a[p * sa] * b[p * sk + j * sn];
    y[j] = s;
  }
}

template <class T>
void matmul_loops(const KernelCall& c) {
  const auto& at = c.get_attrs<MatmulAttrs>();
  const Array &a = c.in[0], &b = c.in[1], &y = c.out[0];
  if (y.numel == 0) return;
  int64_t m = y.shape[y.rank - 2], n = y.shape[y.rank - 1];
  int64_t k = a.shape[a.rank - (at.trans_a ? 2 : 1)];
  Dense<T> da(a), db(b), dy(y.numel);
  detail::parallel_for_rows(y.numel / n, n * (k + 1), [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const T* pa = da.get() + batch_offset(a, y, r / m) + (r % m) * (at.trans_a ? 1 : k);
      const T* pb = db.get() + batch_offset(b, y, r / m);
      row_times_matrix(pa, at.trans_a ? m : 1, pb, at.trans_b ? 1 : n, at.trans_b ? k : 1, k, n,
                       dy.get() + r * n);
    }
  });
  dy.store(y);
}

void matmul_reference(const KernelCall& c) {
  detail::with_accumulator(c.out[0].dtype, [&](auto zero) { matmul_loops<decltype(zero)>(c); });
}

double matmul_flops(const InferCall& c) {
  const Shape& a = c.in[0].shape;
  Dim k = a[a.rank() - (c.get_attrs<MatmulAttrs>().trans_a ? 2 : 1)];
  return 2.0 * static_cast<double>(c.out[0].shape.numel().value()) * static_cast<double>(k.value());
}

// ---- linear

void linear_infer(InferCall& c) {
  const Shape &x = c.in[0].shape, &w = c.in[1].shape;
  TD_CHECK(x.rank() >= 1, Shape, "x is a scalar, expected [..., in_features]");
  TD_CHECK(w.rank() == 2, Shape, "weight is {}, expected [out_features, in_features]",
           w.to_string());
  check_numbers(c, "x", "weight");
  TD_CHECK(dims_equal(x.back(), w[1]), Shape,
           "weight expects {} input features, x is {} ({})\nSet in_features to x's last dimension, "
           "or flatten x first.",
           w[1].to_string(), x.to_string(), x.back().to_string());
  if (c.has(2)) {
    const Spec& b = c.in[2];
    TD_CHECK(b.rank() == 1 && dims_equal(b[0], w[0]), Shape, "bias is {}, expected [{}]",
             b.shape.to_string(), w[0].to_string());
    TD_CHECK(b.dtype == c.in[0].dtype, DType, "x is {}, bias is {}\nCast one of them with .to().",
             to_string(c.in[0].dtype), to_string(b.dtype));
  }
  Shape y = x;
  y[y.rank() - 1] = w[0];
  c.out[0] = Spec(c.in[0].dtype, y, c.in[0].device);
}

void linear_vjp(VjpCall& c) {
  const Tensor& g = c.grad();
  SourceLocation loc = c.loc();
  if (c.needs(0)) c.results[0] = matmul(g, c.in(1), loc);
  if (c.needs(1)) {
    Tensor x = c.in(0).dim() == 1 ? c.in(0).unsqueeze(0, loc) : c.in(0);
    Tensor gy = g.dim() == 1 ? g.unsqueeze(0, loc) : g;
    c.results[1] = matmul(as_matrix(gy, loc), as_matrix(x, loc), {true, false}, loc);
  }
  if (c.has(2) && c.needs(2)) c.results[2] = reduce_to(g, c.in_shape(2), loc);
}

void linear_batch(BatchCall& c) {
  SourceLocation loc = c.node.loc;
  bool bias_alone = c.has(2) && c.batched[2];
  Tensor b = c.has(2) && !bias_alone ? c.in[2] : Tensor();
  Tensor y;
  int rank = c.rank(0);
  if (!c.batched[1]) {
    y = linear(c.in[0], c.in[1], b, loc);
  } else {
    const Tensor& x = c.in[0];
    int lead = c.batched[0] ? 1 : 0;
    Shape s = x.shape();
    Shape flat;
    if (lead) flat.push_back(s[0]);
    flat.push_back(product(s, lead, s.rank() - 1));
    flat.push_back(s.back());
    y = matmul(x.reshape(flat, loc), c.in[1], {false, true}, loc);
    Shape out{c.batch_size};
    for (int i = lead; i + 1 < s.rank(); ++i) out.push_back(s[i]);
    out.push_back(y.shape(-1));
    y = y.reshape(out, loc);
    if (b.defined()) y = std::move(y) + b;
  }
  if (bias_alone) {
    Shape s{c.batch_size};
    for (int i = 1; i < rank; ++i) s.push_back(1);
    s.push_back(c.in[2].shape(-1));
    y = std::move(y) + c.in[2].reshape(s, loc);
  }
  c.out[0] = std::move(y);
}

template <class T>
void linear_loops(const KernelCall& c) {
  const Array &x = c.in[0], &w = c.in[1], &y = c.out[0];
  if (y.numel == 0) return;
  int64_t k = w.shape[1], n = w.shape[0], rows = y.numel / n;
  Dense<T> dx(x), dw(w), dy(y.numel);
  Dense<T> db(c.n_in > 2 && c.in[2].present() ? c.in[2] : Array());
  detail::parallel_for_rows(rows, n * (k + 1), [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      T* out = dy.get() + r * n;
      row_times_matrix(dx.get() + r * k, 1, dw.get(), 1, k, k, n, out);
      for (int64_t j = 0; db.get() && j < n; ++j) out[j] += db[j];
    }
  });
  dy.store(y);
}

void linear_reference(const KernelCall& c) {
  detail::with_accumulator(c.out[0].dtype, [&](auto zero) { linear_loops<decltype(zero)>(c); });
}

double linear_flops(const InferCall& c) {
  return 2.0 * static_cast<double>(c.out[0].shape.numel().value()) *
         static_cast<double>(c.in[1].shape[1].value());
}

Tensor reshaped(Tensor t, Shape s, SourceLocation loc) { return t.reshape(s, loc); }

void check_rank(const Tensor& t, const char* name, int rank) {
  TD_CHECK(t.dim() == rank, Shape, "{} is {}, expected {} dimension{}", name, t.shape().to_string(),
           rank, rank == 1 ? "" : "s");
}

Tensor scaled_sum(Tensor input, Tensor y, Scalar beta, Scalar alpha, SourceLocation loc) {
  if (alpha.to_double() != 1) y = Operand(std::move(y), loc) * Operand(alpha, loc);
  if (beta.to_double() == 0) return y;
  if (beta.to_double() != 1) input = Operand(std::move(input), loc) * Operand(beta, loc);
  return Operand(std::move(input), loc) + Operand(std::move(y), loc);
}

}  // namespace

namespace op {
constinit const OpDef matmul =
    contraction("matmul", {"a", "b"}, fields<MatmulAttrs>())
        .infer(matmul_infer)
        .vjp(matmul_vjp, 3)
        .batch(matmul_batch)
        .reference(matmul_reference)
        .autocast(Autocast::low)
        .flops(matmul_flops)
        .onnx("MatMul")
        .doc("Matrix product of [..., m, k] and [..., k, n]; leading dimensions broadcast.");
constinit const OpDef linear =
    contraction("linear", {"x", "w", "b?"})
        .infer(linear_infer)
        .vjp(linear_vjp, 3)
        .batch(linear_batch)
        .reference(linear_reference)
        .autocast(Autocast::low)
        .flops(linear_flops)
        .doc("x [..., in] times the transpose of w [out, in], plus b [out].");
}  // namespace op

std::span<const OpDef* const> matmul_rows() {
  static constexpr const OpDef* kRows[] = {&op::matmul, &op::linear};
  return kRows;
}

Tensor matmul(Tensor a, Tensor b, MatmulAttrs attrs, SourceLocation loc) {
  return call(op::matmul, &attrs, loc, std::move(a), std::move(b));
}

Tensor matmul(Tensor a, Tensor b, SourceLocation loc) {
  if (!a.defined() || !b.defined() || (a.dim() >= 2 && b.dim() >= 2))
    return matmul(std::move(a), std::move(b), MatmulAttrs(), loc);
  bool row = a.dim() == 1, column = b.dim() == 1;
  placed("matmul", loc, [&] {
    TD_CHECK(a.dim() && b.dim(), Shape,
             "a is {}, b is {}: both expect at least one dimension\n"
             "A product with a scalar is a * b.",
             a.shape().to_string(), b.shape().to_string());
    Dim kb = b.shape(column ? 0 : -2);
    TD_CHECK(dims_equal(a.shape(-1), kb), Shape, "a {} has inner size {}, b {} has {}",
             a.shape().to_string(), a.shape(-1).to_string(), b.shape().to_string(), kb.to_string());
  });
  if (row) a = a.unsqueeze(0, loc);
  if (column) b = b.unsqueeze(-1, loc);
  Tensor y = matmul(std::move(a), std::move(b), MatmulAttrs(), loc);
  Shape s = y.shape();
  if (column) s.erase(s.rank() - 1);
  if (row) s.erase(s.rank() - (column ? 1 : 2));
  return y.reshape(s, loc);
}

Tensor linear(Tensor x, Tensor w, Tensor b, SourceLocation loc) {
  return call(op::linear, nullptr, loc, std::move(x), std::move(w), std::move(b));
}

Tensor mm(Tensor a, Tensor b, SourceLocation loc) {
  return detail::named("mm", loc, [&] {
    check_rank(a, "a", 2);
    check_rank(b, "b", 2);
    return matmul(std::move(a), std::move(b), MatmulAttrs(), loc);
  });
}

Tensor bmm(Tensor a, Tensor b, SourceLocation loc) {
  placed("bmm", loc, [&] {
    check_rank(a, "a", 3);
    check_rank(b, "b", 3);
    TD_CHECK(dims_equal(a.shape(0), b.shape(0)), Shape, "a {} has {} matrices, b {} has {}",
             a.shape().to_string(), a.shape(0).to_string(), b.shape().to_string(),
             b.shape(0).to_string());
  });
  return matmul(std::move(a), std::move(b), MatmulAttrs(), loc);
}

Tensor mv(Tensor a, Tensor v, SourceLocation loc) {
  placed("mv", loc, [&] {
    check_rank(a, "a", 2);
    check_rank(v, "v", 1);
  });
  return matmul(std::move(a), std::move(v), loc);
}

Tensor dot(Tensor a, Tensor b, SourceLocation loc) {
  placed("dot", loc, [&] {
    check_rank(a, "a", 1);
    check_rank(b, "b", 1);
  });
  return matmul(std::move(a), std::move(b), loc);
}

Tensor outer(Tensor a, Tensor b, SourceLocation loc) {
  placed("outer", loc, [&] {
    check_rank(a, "a", 1);
    check_rank(b, "b", 1);
  });
  Shape column{a.shape(0), Dim(1)}, row{Dim(1), b.shape(0)};
  return Operand(reshaped(std::move(a), column, loc), loc) *
         Operand(reshaped(std::move(b), row, loc), loc);
}

Tensor addmm(Tensor input, Tensor a, Tensor b, Scalar beta, Scalar alpha, SourceLocation loc) {
  return detail::named("addmm", loc, [&] {
    Tensor y = mm(std::move(a), std::move(b), loc);
    return scaled_sum(std::move(input), std::move(y), beta, alpha, loc);
  });
}

Tensor baddbmm(Tensor input, Tensor a, Tensor b, Scalar beta, Scalar alpha, SourceLocation loc) {
  return detail::named("baddbmm", loc, [&] {
    Tensor y = bmm(std::move(a), std::move(b), loc);
    return scaled_sum(std::move(input), std::move(y), beta, alpha, loc);
  });
}

Tensor bilinear(Tensor x1, Tensor x2, Tensor w, Tensor b, SourceLocation loc) {
  placed("bilinear", loc, [&] {
    check_rank(w, "weight", 3);
    TD_CHECK(x1.dim() >= 1 && x2.dim() == x1.dim(), Shape,
             "x1 is {}, x2 is {}: they expect equal leading dimensions", x1.shape().to_string(),
             x2.shape().to_string());
    TD_CHECK(dims_equal(x1.shape(-1), w.shape(1)) && dims_equal(x2.shape(-1), w.shape(2)), Shape,
             "weight {} expects {} and {} features, x1 is {}, x2 is {}", w.shape().to_string(),
             w.shape(1).to_string(), w.shape(2).to_string(), x1.shape().to_string(),
             x2.shape().to_string());
  });
  // y_o = sum_ij x1_i w_oij x2_j: first over i for all (o, j), then over j.
  Dim o = w.shape(0), i = w.shape(1), j = w.shape(2);
  Shape out = x1.shape();
  out[out.rank() - 1] = o;
  Tensor rows = x1.reshape({product(x1.shape(), 0, x1.dim() - 1), i}, loc);
  Tensor wt = w.permute({1, 0, 2}, loc).reshape({i, o * j}, loc);
  Tensor t = matmul(rows, wt, MatmulAttrs(), loc);
  t = t.reshape({rows.shape(0), o, j}, loc);
  Tensor y = matmul(t, x2.reshape({rows.shape(0), j, Dim(1)}, loc), MatmulAttrs(), loc);
  y = y.reshape(out, loc);
  return b.defined() ? Operand(std::move(y), loc) + Operand(std::move(b), loc) : y;
}

}  // namespace tandem
