// SPDX-License-Identifier: Apache-2.0
// The row searchsorted, and functions that compare whole sets of values.
#include "tandem/ops/index/search.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"
#include "tandem/tensor/lazy.h"

namespace tandem {
namespace {

using detail::composed;
using detail::Packed;

// ---- searchsorted

void search_infer(InferCall& c) {
  const Spec &s = c.in[0], &v = c.in[1];
  TD_CHECK(s.dtype == v.dtype, DType, "the sequence is {}, values are {}\nConvert one of them.",
           to_string(s.dtype), to_string(v.dtype));
  TD_CHECK(s.rank() >= 1, Shape, "the sorted sequence must have a dimension");
  bool fits = s.rank() == 1 || s.rank() == v.rank();
  for (int i = 0; fits && i + 1 < s.rank(); ++i) fits = dims_equal(s[i], v[i]);
  TD_CHECK(fits, Shape,
           "the sequence {} must be a vector or have the leading dimensions of the values {}",
           s.shape.to_string(), v.shape.to_string());
  c.out[0] =
      Spec(c.get_attrs<SearchAttrs>().out_int32 ? DType::i32 : DType::i64, v.shape, v.device);
}

void search_batch(BatchCall& c) {
  const SourceLocation loc = c.node.loc;
  const auto& a = c.get_attrs<SearchAttrs>();
  if (!c.batched[0] && c.rank(0) == 1) {
    c.out[0] = call(op::searchsorted, &a, loc, c.in[0], c.in[1]);
    return;
  }
  Tensor sequence = detail::with_batch(c, 0), values = detail::with_batch(c, 1);
  const Shape want = values.shape();
  // One vector per example: each example's values become one row.
  if (c.rank(0) == 1)
    values = reshape(values, {c.batch_size, detail::product(want, 1, want.rank())});
  c.out[0] = reshape(call(op::searchsorted, &a, loc, sequence, values), want, loc);
}

template <class T>
using Compared =
    std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

// NaN is larger than every number.
template <class T>
bool before(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a < b || (b != b && a == a);
  return a < b;
}
// How many of s[0..n) lie before each of `count` values. The searches take their steps side by
// side, so that none waits for the one before it, and without a branch, which could not be
// predicted. A NaN on either side searches to the right.
template <bool right, int count, class T, class To>
void positions(const T* s, int64_t n, const T* values, To* to) {
  Compared<T> v[count];
  int64_t low[count] = {}, left[count];
  for (int j = 0; j < count; ++j) {
    v[j] = static_cast<Compared<T>>(values[j]);
    left[j] = n;
  }
  for (int64_t most = n; most > 0; most /= 2)
    for (int j = 0; j < count; ++j) {
      const int64_t half = left[j] >> 1;
      const auto x = static_cast<Compared<T>>(s[std::min(low[j] + half, n - 1)]);
      const int64_t after = -(int64_t{left[j] > 0} & int64_t{!(right ? x > v[j] : x >= v[j])});
      low[j] += after & (half + 1);
      left[j] = half - (after & (1 - (left[j] & 1)));  // without the middle, what is after it
    }
  for (int j = 0; j < count; ++j) to[j] = static_cast<To>(low[j]);
}

void search_loops(const KernelCall& k) {
  const auto& a = k.get_attrs<SearchAttrs>();
  const Array &s = k.in[0], &v = k.in[1], &y = k.out[0];
  if (v.numel == 0) return;
  const int64_t n = s.shape[s.rank - 1];
  const int64_t row = s.rank > 1 ? v.shape[v.rank - 1] : v.numel;
  visit_dtype(s.dtype, [&](auto tag) {
    using T = decltype(tag);
    const Packed<T> sequence(s), values(v);
    const auto search = [&](auto right, auto* to) {
      detail::parallel_for_rows(v.numel, 64, [&](int64_t b, int64_t e) {
        constexpr int kTogether = 8;
        for (int64_t i = b; i < e;) {
          const T* own = sequence.get() + i / row * n;
          if (std::min(e, (i / row + 1) * row) - i >= kTogether) {
            positions<right.value, kTogether>(own, n, &values[i], to + i);
            i += kTogether;
          } else {
            positions<right.value, 1>(own, n, &values[i], to + i);
            ++i;
          }
        }
      });
    };
    const auto search_to = [&](auto* to) {
      a.right ? search(std::true_type(), to) : search(std::false_type(), to);
    };
    a.out_int32 ? search_to(y.as<int32_t>()) : search_to(y.as<int64_t>());
  });
}

}  // namespace

namespace op {
constinit const OpDef searchsorted =
    make_row("searchsorted", Family::index, Types::custom, {"sorted_sequence", "values"},
             fields<SearchAttrs>())
        .outputs({"positions"})
        .flag(kNotDifferentiable)
        .infer(search_infer)
        .batch(search_batch)
        .reference(search_loops)
        .doc("Positions in a sorted sequence at which inserting values keeps it sorted.");
}  // namespace op

std::span<const OpDef* const> search_rows() {
  static constexpr const OpDef* kRows[] = {&op::searchsorted};
  return kRows;
}

Tensor searchsorted(const Tensor& sorted_sequence, const Tensor& values, bool out_int32, bool right,
                    SourceLocation loc) {
  SearchAttrs a{right, out_int32};
  return call(op::searchsorted, &a, loc, sorted_sequence, values);
}

Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool out_int32, bool right,
                 SourceLocation loc) {
  return composed("bucketize", loc, x, [&] {
    TD_CHECK(boundaries.dim() == 1, Shape, "boundaries must be a vector, got shape {}",
             boundaries.shape().to_string());
    return searchsorted(boundaries, x, out_int32, right);
  });
}

// ---- unique

namespace {

void check_values(const Tensor& x, const char* hint) {
  TD_CHECK(detail::readable(x), Unsupported,
           "the result depends on values, which a trace does not have\n{}", hint);
}

// Rows of a dense matrix, compared as a whole.
template <class T>
struct RowOrder {
  const T* p;
  int64_t width;
  Compared<T> at(int64_t row, int64_t j) const {
    return static_cast<Compared<T>>(p[row * width + j]);
  }
  bool less(int64_t a, int64_t b) const {
    for (int64_t j = 0; j < width; ++j) {
      if (before<Compared<T>>(at(a, j), at(b, j))) return true;
      if (before<Compared<T>>(at(b, j), at(a, j))) return false;
    }
    return a < b;
  }
  bool same(int64_t a, int64_t b) const {
    for (int64_t j = 0; j < width; ++j)
      if (!(at(a, j) == at(b, j))) return false;
    return true;
  }
};

// Rows sorted so that equal ones are adjacent, and the first of each group.
struct Groups {
  std::vector<int64_t> first, inverse, counts;
};
Groups groups_of(const Tensor& rows, bool consecutive) {
  const int64_t n = rows.size(0), width = rows.size(1);
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  Groups g;
  g.inverse.resize(order.size());
  visit_dtype(rows.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const RowOrder<T> o{rows.data<T>(), width};
    if (!consecutive)
      std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return o.less(a, b); });
    for (size_t i = 0; i < order.size(); ++i) {
      if (i == 0 || !o.same(order[i - 1], order[i])) {
        g.first.push_back(order[i]);
        g.counts.push_back(0);
      }
      ++g.counts.back();
      g.inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(g.first.size()) - 1;
    }
  });
  return g;
}

UniqueResult unique_of(const char* name, const Tensor& x, std::optional<int64_t> dim,
                       bool consecutive, SourceLocation loc) {
  return composed(name, loc, x, [&] {
    check_values(x, "Call it outside.");
    const int d = dim ? normalize_dim(*dim, x.dim()) : 0;
    const Tensor lines = dim ? movedim(x, d, 0) : reshape(x, Shape(-1));
    const int64_t n = lines.size(0);
    const int64_t width = n == 0 ? 1 : lines.numel() / n;
    Groups g;
    {
      NoGradGuard no_grad;
      g = groups_of(contiguous(reshape(lines, Shape(n, width))), consecutive);
    }
    UniqueResult r;
    const Tensor first = tensor(g.first);
    r.output = index_select(dim ? x : lines, d, first);
    r.inverse_indices = dim ? tensor(g.inverse) : reshape(tensor(g.inverse), x.shape());
    r.counts = tensor(g.counts);
    return r;
  });
}

}  // namespace

UniqueResult unique(const Tensor& x, std::optional<int64_t> dim, SourceLocation loc) {
  return unique_of("unique", x, dim, false, loc);
}
UniqueResult unique_consecutive(const Tensor& x, std::optional<int64_t> dim, SourceLocation loc) {
  return unique_of("unique_consecutive", x, dim, true, loc);
}

Tensor isin(const Tensor& elements, const Tensor& test_elements, bool invert, SourceLocation loc) {
  return composed("isin", loc, elements, [&] {
    const DType common = promote(elements.dtype(), test_elements.dtype());
    const Tensor x = elements.detach().to(common);
    const Tensor set = sort(reshape(test_elements.detach().to(common), Shape(-1))).values;
    if (set.shape(0) == Dim(0)) return full(x.shape(), invert);
    const Tensor at = clamp_max(searchsorted(set, x), set.size(0) - 1);
    const Tensor found = reshape(index_select(set, 0, reshape(at, Shape(-1))), x.shape());
    return invert ? found != x : found == x;
  });
}

bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan,
              SourceLocation loc) {
  return composed("allclose", loc, a, [&] {
    check_values(a, "Use isclose and all.");
    check_values(b, "Use isclose and all.");
    NoGradGuard no_grad;
    Tensor close = isclose(a, b, rtol, atol);
    if (equal_nan) close = logical_or(close, logical_and(a != a, b != b));
    return all(close).item<bool>();
  });
}

bool equal(const Tensor& a, const Tensor& b, SourceLocation loc) {
  return composed("equal", loc, a, [&] {
    check_values(a, "Use (a == b).all().");
    check_values(b, "Use (a == b).all().");
    NoGradGuard no_grad;
    return a.shape() == b.shape() && all(a == b).item<bool>();
  });
}

}  // namespace tandem
