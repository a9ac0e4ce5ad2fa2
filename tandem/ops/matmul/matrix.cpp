// SPDX-License-Identifier: Apache-2.0
// The row cdist, and small matrix functions composed of other ops.
#include "tandem/ops/matmul/matrix.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/linalg/linalg.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using detail::composed;
using detail::Packed;

// ---- cdist

void cdist_infer(InferCall& c) {
  const Spec &a = c.in[0], &b = c.in[1];
  TD_CHECK(is_floating(a.dtype) && a.dtype == b.dtype, DType,
           "expected x1 and x2 of one floating dtype, got {} and {}", to_string(a.dtype),
           to_string(b.dtype));
  bool fits = a.rank() >= 2 && a.rank() == b.rank() && dims_equal(a.shape.back(), b.shape.back());
  for (int i = 0; fits && i + 2 < a.rank(); ++i) fits = dims_equal(a[i], b[i]);
  TD_CHECK(fits, Shape, "x1 is {}, x2 is {}\nWants [..., p, m] and [..., r, m].",
           a.shape.to_string(), b.shape.to_string());
  Shape out = a.shape;
  out[out.rank() - 1] = b[b.rank() - 2];
  c.out[0] = Spec(a.dtype, out, a.device);
}

// For x1[i]: the sum over j of g[i][j] (x1[i] - x2[j]) / distance.
void cdist_vjp(VjpCall& c) {
  const SourceLocation loc = c.loc();
  const Tensor y = c.out(0);
  const Tensor zero = eq(y, 0, loc);
  const Tensor w = where(zero, 0, div(c.grad(), where(zero, 1, y, loc), loc), loc);
  const auto gradient = [&](const Tensor& a, const Tensor& b, bool turned) {
    const Tensor total = sum(w, {turned ? -2 : -1}, false, loc);
    return sub(mul(a, unsqueeze(total, -1, loc), loc),
               matmul(w, b, MatmulAttrs{turned, false}, loc), loc);
  };
  if (c.needs(0)) c.results[0] = gradient(c.in(0), c.in(1), false);
  if (c.needs(1)) c.results[1] = gradient(c.in(1), c.in(0), true);
}

void cdist_batch(BatchCall& c) {
  c.out[0] =
      call(op::cdist, nullptr, c.node.loc, detail::with_batch(c, 0), detail::with_batch(c, 1));
}

// Sum of (a[e] - b[e])^2 in four lanes.
template <class A, class T>
A squared_distance(const T* a, const T* b, int64_t m) {
  typedef A Four __attribute__((vector_size(4 * sizeof(A))));
  Four sum = {};
  int64_t e = 0;
  for (; e + 4 <= m; e += 4) {
    Four x, y;
    if constexpr (std::is_same_v<T, A>) {
      std::memcpy(&x, a + e, sizeof x);
      std::memcpy(&y, b + e, sizeof y);
    } else {
      for (int l = 0; l < 4; ++l) x[l] = static_cast<A>(a[e + l]), y[l] = static_cast<A>(b[e + l]);
    }
    const Four d = x - y;
    sum += d * d;
  }
  for (; e < m; ++e) {
    const A d = static_cast<A>(a[e]) - static_cast<A>(b[e]);
    sum[0] += d * d;
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

template <class T, class A>
void cdist_rows(const KernelCall& k) {
  const Array &a = k.in[0], &b = k.in[1], &y = k.out[0];
  if (y.numel == 0) return;
  const int64_t m = a.shape[a.rank - 1], p = a.shape[a.rank - 2], r = b.shape[b.rank - 2];
  const Packed<T> x1(a), x2(b);
  detail::parallel_for_rows(y.numel / r, 3 * r * m, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const T* row = x1.get() + i * m;
      const T* others = x2.get() + i / p * r * m;
      for (int64_t j = 0; j < r; ++j) {
        const A sum = squared_distance<A>(row, others + j * m, m);
        y.as<T>()[i * r + j] = T(std::sqrt(sum));
      }
    }
  });
}

void cdist_loops(const KernelCall& k) {
  switch (k.out[0].dtype) {
    case DType::f64:
      return cdist_rows<double, double>(k);
    case DType::f16:
      return cdist_rows<Half, float>(k);
    case DType::bf16:
      return cdist_rows<BFloat16, float>(k);
    default:
      return cdist_rows<float, float>(k);
  }
}

double cdist_flops(const InferCall& c) {
  const Shape& b = c.in[1].shape;
  if (b.is_symbolic() || c.in[0].shape.is_symbolic()) return 0;
  return 3.0 * static_cast<double>(c.in[0].shape.numel().value()) *
         static_cast<double>(b[b.rank() - 2].value());
}

}  // namespace

namespace op {
constinit const OpDef cdist = make_row("cdist", Family::index, Types::same, {"x1", "x2"}, nullptr)
                                  .infer(cdist_infer)
                                  .vjp(cdist_vjp, 3, 1)
                                  .batch(cdist_batch)
                                  .reference(cdist_loops)
                                  .flops(cdist_flops)
                                  .doc("Euclidean distances of all pairs of rows of x1 and x2.");
}  // namespace op

std::span<const OpDef* const> matrix_rows() {
  static constexpr const OpDef* kRows[] = {&op::cdist};
  return kRows;
}

Tensor cdist(const Tensor& x1, const Tensor& x2, double p, SourceLocation loc) {
  return composed("cdist", loc, x1, [&] {
    TD_CHECK(x1.dim() >= 2 && x2.dim() >= 2 && dims_equal(x1.shape(-1), x2.shape(-1)), Shape,
             "x1 is {}, x2 is {}\nWants [..., p, m] and [..., r, m].", x1.shape().to_string(),
             x2.shape().to_string());
    TD_CHECK(p >= 0, Value, "p must not be negative, got {}", p);
    if (p != 2) return norm(unsqueeze(x1, -2) - unsqueeze(x2, -3), p, {-1});
    Shape a, b;
    for (int i = 0; i + 2 < x1.dim(); ++i) a.push_back(x1.shape(i));
    for (int i = 0; i + 2 < x2.dim(); ++i) b.push_back(x2.shape(i));
    Shape s1 = broadcast_shapes(a, b), s2 = s1;
    for (int i : {-2, -1}) {
      s1.push_back(x1.shape(i));
      s2.push_back(x2.shape(i));
    }
    return call(op::cdist, nullptr, SourceLocation::here(), expand(x1, s1), expand(x2, s2));
  });
}

Tensor pdist(const Tensor& x, double p, SourceLocation loc) {
  return composed("pdist", loc, x, [&] {
    TD_CHECK(x.dim() == 2, Shape, "expected [n, m], got shape {}", x.shape().to_string());
    TD_CHECK(p >= 0, Value, "p must not be negative, got {}", p);
    const Tensor pairs = triu_indices(x.size(0), x.size(0), 1);
    return norm(index_select(x, 0, select(pairs, 0, 0)) - index_select(x, 0, select(pairs, 0, 1)),
                p, {-1});
  });
}

Tensor renorm(const Tensor& x, double p, int64_t dim, double maxnorm, SourceLocation loc) {
  return composed("renorm", loc, x, [&] {
    TD_CHECK(x.dim() >= 2, Shape, "expected at least two dimensions, got shape {}",
             x.shape().to_string());
    TD_CHECK(p > 0 && maxnorm >= 0, Value,
             "p must be positive and maxnorm not negative, got {}, {}", p, maxnorm);
    const int d = normalize_dim(dim, x.dim());
    IntList others;
    for (int i = 0; i < x.dim(); ++i)
      if (i != d) others.push_back(i);
    const Tensor n = norm(x, p, others, true);
    return x * where(n > maxnorm, maxnorm / (n + 1e-7), 1.0);
  });
}

// ---- products

Tensor cross(const Tensor& x, const Tensor& y, std::optional<int64_t> dim, SourceLocation loc) {
  return composed("cross", loc, x, [&] {
    const Shape s = broadcast_shapes(x.shape(), y.shape());
    int d = -1;
    if (dim) d = normalize_dim(*dim, s.rank());
    for (int i = 0; !dim && d < 0 && i < s.rank(); ++i)
      if (s[i] == Dim(3)) d = i;
    TD_CHECK(d >= 0 && s[d] == Dim(3), Shape, "x {} and y {} have no dimension of size 3{}",
             x.shape().to_string(), y.shape().to_string(), dim ? " there" : "");
    const Tensor a = expand(x, s), b = expand(y, s);
    return roll(a, {-1}, {d}) * roll(b, {-2}, {d}) - roll(a, {-2}, {d}) * roll(b, {-1}, {d});
  });
}

Tensor kron(const Tensor& x, const Tensor& y, SourceLocation loc) {
  return composed("kron", loc, x, [&] {
    const int rank = std::max(x.dim(), y.dim());
    TD_CHECK(2 * rank <= kMaxRank, Shape, "{} dimensions are too many", rank);
    Shape xs, ys, out;
    for (int i = 0; i < rank; ++i) {
      const Dim a = i < rank - x.dim() ? Dim(1) : x.shape(i - rank + x.dim());
      const Dim b = i < rank - y.dim() ? Dim(1) : y.shape(i - rank + y.dim());
      xs.push_back(a);
      xs.push_back(1);
      ys.push_back(1);
      ys.push_back(b);
      out.push_back(a * b);
    }
    return reshape(reshape(x, xs) * reshape(y, ys), out);
  });
}

Tensor inner(const Tensor& x, const Tensor& y, SourceLocation loc) {
  return composed("inner", loc, x, [&] {
    if (x.dim() == 0 || y.dim() == 0) return x * y;
    TD_CHECK(dims_equal(x.shape(-1), y.shape(-1)), Shape,
             "the last dimensions of x {} and y {} differ", x.shape().to_string(),
             y.shape().to_string());
    return tensordot(x, y, {-1}, {-1});
  });
}
Tensor vdot(const Tensor& x, const Tensor& y, SourceLocation loc) {
  return composed("vdot", loc, x, [&] { return dot(x, y); });
}

namespace {
Tensor scaled(const Tensor& input, const Tensor& y, Scalar beta, Scalar alpha) {
  const Tensor part = alpha.to_double() == 1 ? y : y * alpha;
  if (beta.to_double() == 0) return part;
  return (beta.to_double() == 1 ? input : input * beta) + part;
}
}  // namespace

Tensor addmv(const Tensor& input, const Tensor& a, const Tensor& v, Scalar beta, Scalar alpha,
             SourceLocation loc) {
  return composed("addmv", loc, input, [&] { return scaled(input, mv(a, v), beta, alpha); });
}
Tensor addr(const Tensor& input, const Tensor& v, const Tensor& w, Scalar beta, Scalar alpha,
            SourceLocation loc) {
  return composed("addr", loc, input, [&] { return scaled(input, outer(v, w), beta, alpha); });
}
Tensor addbmm(const Tensor& input, const Tensor& a, const Tensor& c, Scalar beta, Scalar alpha,
              SourceLocation loc) {
  return composed("addbmm", loc, input,
                  [&] { return scaled(input, sum(bmm(a, c), {0}), beta, alpha); });
}

Tensor trace(const Tensor& x, SourceLocation loc) {
  return composed("trace", loc, x, [&] {
    TD_CHECK(x.dim() == 2, Shape, "expected a matrix, got shape {}", x.shape().to_string());
    return sum(diagonal(x));
  });
}

// ---- constructions

Tensor diag_embed(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2, SourceLocation loc) {
  return composed("diag_embed", loc, x, [&] {
    TD_CHECK(x.dim() >= 1, Shape, "expected at least one dimension");
    const int rank = x.dim() + 1, a = normalize_dim(dim1, rank), b = normalize_dim(dim2, rank);
    TD_CHECK(a != b, Value, "dim1 and dim2 are both {}", a);
    // The new dimensions are square, with room for the shift.
    const Dim side = x.shape(-1) + Dim(offset < 0 ? -offset : offset);
    Shape s;
    for (int i = 0, k = 0; i < rank; ++i) s.push_back(i == a || i == b ? side : x.shape(k++));
    DiagonalAttrs attrs{offset, a, b, s};
    return call(op::diagonal_backward, &attrs, SourceLocation::here(), x);
  });
}

Tensor diagflat(const Tensor& x, int64_t offset, SourceLocation loc) {
  return composed("diagflat", loc, x, [&] { return diag_embed(reshape(x, Shape(-1)), offset); });
}

Tensor block_diag(const std::vector<Tensor>& tensors, SourceLocation loc) {
  return composed("block_diag", loc, [&] {
    TD_CHECK(!tensors.empty(), Value, "expected at least one tensor");
    DType dtype = tensors[0].dtype();
    int64_t columns = 0;
    std::vector<Tensor> parts;
    for (const Tensor& t : tensors) {
      TD_CHECK(t.dim() <= 2, Shape, "expected matrices, got shape {}", t.shape().to_string());
      parts.push_back(t.dim() == 2 ? t : reshape(t, Shape(1, -1)));
      columns += parts.back().size(1);
      dtype = promote(dtype, t.dtype());
    }
    int64_t at = 0;
    for (Tensor& t : parts) {
      const int64_t n = t.size(1);
      t = pad(t.to(dtype), {at, columns - at - n});
      at += n;
    }
    return cat(parts, 0);
  });
}

Tensor vander(const Tensor& x, std::optional<int64_t> N, bool increasing, SourceLocation loc) {
  return composed("vander", loc, x, [&] {
    TD_CHECK(x.dim() == 1, Shape, "expected a vector, got shape {}", x.shape().to_string());
    const int64_t n = N ? *N : x.size(0);
    TD_CHECK(n >= 0 && n < int64_t{1} << 31, Value, "N must not be negative, got {}", n);
    std::vector<Tensor> columns;
    for (int64_t i = 0; i < n; ++i) columns.push_back(i == 0 ? ones_like(x) : columns.back() * x);
    if (n == 0) return zeros(Shape(x.shape(0), Dim(0)), x.dtype());
    const Tensor y = stack(columns, 1);
    return increasing ? y : flip(y, {1});
  });
}

Tensor cartesian_prod(const std::vector<Tensor>& tensors, SourceLocation loc) {
  return composed("cartesian_prod", loc, [&] {
    TD_CHECK(!tensors.empty(), Value, "expected at least one vector");
    for (const Tensor& t : tensors)
      TD_CHECK(t.dim() == 1, Shape, "expected vectors, got shape {}", t.shape().to_string());
    if (tensors.size() == 1) return tensors[0];
    std::vector<Tensor> columns = meshgrid(tensors);
    for (Tensor& c : columns) c = reshape(c, Shape(-1));
    return stack(columns, 1);
  });
}

Tensor combinations(const Tensor& x, int64_t r, bool with_replacement, SourceLocation loc) {
  return composed("combinations", loc, x, [&] {
    TD_CHECK(x.dim() == 1, Shape, "expected a vector, got shape {}", x.shape().to_string());
    TD_CHECK(r >= 0, Value, "r must not be negative, got {}", r);
    const int64_t n = x.size(0);
    if (r == 0) return zeros(Shape(0), x.dtype());
    double count = 1;
    for (int64_t i = 0; i < r && count < 0x1p40; ++i)
      count *= static_cast<double>(with_replacement ? n + i : std::max<int64_t>(n - i, 0)) /
               static_cast<double>(i + 1);
    TD_CHECK(count * static_cast<double>(r) < 0x1p40, Memory,
             "{} elements of {}: that many combinations are too many", r, n);
    std::vector<int64_t> at, flat;
    // Depth first, without recursion: `at` is the current path.
    int64_t next = 0;
    while (true) {
      if (static_cast<int64_t>(at.size()) == r || next >= n) {
        if (static_cast<int64_t>(at.size()) == r) flat.insert(flat.end(), at.begin(), at.end());
        if (at.empty()) break;
        next = at.back() + 1;
        at.pop_back();
      } else {
        at.push_back(next);
        next += with_replacement ? 0 : 1;
      }
    }
    return reshape(index_select(x, 0, tensor(flat)), Shape(-1, r));
  });
}

}  // namespace tandem
