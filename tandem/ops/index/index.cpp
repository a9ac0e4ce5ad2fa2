// SPDX-License-Identifier: Apache-2.0
// The indexing functions. An index of numbers, slices, None and tensors becomes views followed by
// one row; writing through it applies that row to the view, which is then written back over its
// region.
#include "tandem/ops/index/index.h"

#include "tandem/base/parallel.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"
#include "tandem/tensor/lazy.h"

namespace tandem {

using detail::named;
using detail::placed;

namespace {

Tensor as_index(const Tensor& t, SourceLocation loc) {
  TD_CHECK(is_integral(t.dtype()), DType,
           "an index must be an integer tensor, got {}\nConvert it with .to(int64).",
           to_string(t.dtype()));
  return detail::is_index_dtype(t.dtype()) ? t : t.to(DType::i64, loc);
}

// An index with its numbers, slices and None resolved.
struct Parsed {
  RegionAttrs region;     ///< the part of x selected by numbers and slices
  bool whole = true;      ///< the region is all of x
  Shape view;             ///< the region with numbers dropped and None inserted
  std::vector<int> dims;  ///< of the view: the dim that each index tensor indexes
  std::vector<Tensor> tensors;

  bool adjacent() const {
    for (size_t i = 1; i < dims.size(); ++i)
      if (dims[i] != dims[0] + static_cast<int>(i)) return false;
    return true;
  }
};

int consumed_dims(const TensorIndices& indices) {
  int n = 0, ellipses = 0;
  for (const TensorIndex& i : indices.entries()) {
    switch (i.kind()) {
      case TensorIndex::Kind::integer:
      case TensorIndex::Kind::slice:
        ++n;
        break;
      case TensorIndex::Kind::tensor:
        n += i.tensor().dtype() == DType::b8 ? i.tensor().dim() : 1;
        break;
      case TensorIndex::Kind::ellipsis:
        ++ellipses;
        break;
      case TensorIndex::Kind::none:
        break;
    }
  }
  TD_CHECK(ellipses <= 1, Value, "an index can have one Ellipsis, got {}", ellipses);
  return n;
}

class Parser {
 public:
  Parser(const Shape& x, SourceLocation loc) : x_(x), loc_(loc) {
    for (Dim n : x) {
      out_.region.start.push_back(0);
      out_.region.length.push_back(n);
      out_.region.step.push_back(1);
    }
  }

  Parsed run(const TensorIndices& indices) {
    const int used = consumed_dims(indices);
    TD_CHECK(used <= x_.rank(), Index, "{} indices are too many for x {}", used, x_.to_string());
    bool rest = false;
    for (const TensorIndex& i : indices.entries()) {
      if (i.kind() == TensorIndex::Kind::ellipsis) {
        rest = true;
        for (int k = used; k < x_.rank(); ++k) keep();
      } else {
        one(i);
      }
    }
    while (!rest && at_ < x_.rank()) keep();
    return std::move(out_);
  }

 private:
  void keep() { out_.view.push_back(x_[at_++]); }

  void one(const TensorIndex& i) {
    switch (i.kind()) {
      case TensorIndex::Kind::none:
        out_.view.push_back(1);
        return;
      case TensorIndex::Kind::integer:
        return number(i.integer());
      case TensorIndex::Kind::slice:
        return range(i.slice());
      default:
        break;
    }
    const Tensor& t = i.tensor();
    if (t.dtype() == DType::b8) return mask(t);
    out_.dims.push_back(out_.view.rank());
    out_.tensors.push_back(as_index(t, loc_));
    keep();
  }
  void number(int64_t i) {
    const Dim n = x_[at_];
    TD_CHECK(n.is_symbolic() || (i >= -n.raw() && i < n.raw()), Index,
             "index {} is out of range for dimension {} of size {}, x is {}", i, at_, n.to_string(),
             x_.to_string());
    cut(i < 0 ? n + Dim(i) : Dim(i), 1, 1);
    ++at_;
  }
  void range(const Slice& s) {
    const Dim n = x_[at_];
    TD_CHECK(s.step > 0, Value, "the step of a slice must be positive, got {}\nUse flip().",
             s.step);
    const Dim start = detail::slice_end(s.start, n), end = detail::slice_end(s.end, n);
    const Dim length =
        detail::slice_length(start == Dim(0) ? end : max(end - start, Dim(0)), s.step);
    const bool one = !length.is_symbolic() && length.raw() <= 1;  // no step is taken
    const int64_t step = one ? 1 : s.step;
    if (!(start == Dim(0)) || !(length == n) || step != 1) cut(start, length, step);
    out_.view.push_back(length);
    ++at_;
  }
  void mask(const Tensor& t) {
    TD_CHECK(t.dim() > 0, Unsupported, "a bool index of 0 dimensions\nUse where().");
    for (int k = 0; k < t.dim(); ++k)
      TD_CHECK(dims_equal(t.shape()[k], x_[at_ + k]), Index,
               "a mask of shape {} does not fit x {} at dimension {}", t.shape().to_string(),
               x_.to_string(), at_ + k);
    const Tensor at = nonzero(t, loc_);
    for (int k = 0; k < t.dim(); ++k) {
      out_.dims.push_back(out_.view.rank());
      out_.tensors.push_back(select(at, 1, k, loc_));
      keep();
    }
  }
  void cut(Dim start, Dim length, int64_t step) {
    out_.whole = false;
    out_.region.start[at_] = start;
    out_.region.length[at_] = length;
    out_.region.step[at_] = step;
  }

  const Shape& x_;
  SourceLocation loc_;
  Parsed out_;
  int at_ = 0;
};

Tensor region_of(Tensor x, const Parsed& p, SourceLocation loc) {
  for (int d = 0; !p.whole && d < x.dim(); ++d) {
    const Dim start = p.region.start[d], length = p.region.length[d], step = p.region.step[d];
    if (start == Dim(0) && step == Dim(1) && length == x.shape(d)) continue;
    SliceAttrs a{d, IntList(start, length, step)};
    x = call(op::slice, &a, loc, std::move(x));
  }
  return reshape(std::move(x), p.view, loc);
}

// Nonadjacent index tensors put their dims in front: the permutation that does so.
IntList in_front(const Parsed& p) {
  IntList order;
  bool used[kMaxRank] = {};
  for (int d : p.dims) {
    order.push_back(d);
    used[d] = true;
  }
  for (int d = 0; d < p.view.rank(); ++d)
    if (!used[d]) order.push_back(d);
  return order;
}
IntList inverse(const IntList& order) {
  IntList out;
  out.resize(order.rank());
  for (int i = 0; i < order.rank(); ++i) out[static_cast<int>(order[i].raw())] = i;
  return out;
}

Tensor value_like(const Operand& value, DType dtype, const Shape& shape, SourceLocation loc) {
  Tensor v =
      value.is_scalar() ? full(Shape(), value.scalar(), dtype, loc) : value.tensor().to(dtype, loc);
  // Leading ones of the value are ignored, as in NumPy.
  Shape s = v.shape();
  while (s.rank() > shape.rank() && s[0] == Dim(1)) s.erase(0);
  return expand(reshape(std::move(v), s, loc), shape, loc);
}

Tensor put_tensors(Tensor x, const Parsed& p, const Operand& value, bool accumulate,
                   SourceLocation loc) {
  IndexAttrs a;
  a.wrap = true;
  a.accumulate = accumulate;
  const bool front = !p.adjacent();
  IntList order;
  if (front) {
    order = in_front(p);
    x = permute(std::move(x), order, loc);
  } else {
    a.dim = p.dims[0];
  }
  Shape common, shape;
  for (const Tensor& t : p.tensors) common = broadcast_shapes(common, t.shape());
  const int d = static_cast<int>(a.dim), n = static_cast<int>(p.tensors.size());
  for (int i = 0; i < d; ++i) shape.push_back(x.shape()[i]);
  for (Dim s : common) shape.push_back(s);
  for (int i = d + n; i < x.dim(); ++i) shape.push_back(x.shape()[i]);
  const Tensor v = value_like(value, x.dtype(), shape, loc);
  std::vector<Operand> in;
  in.reserve(2 + p.tensors.size());
  in.emplace_back(std::move(x), loc);
  in.emplace_back(v, loc);
  for (const Tensor& t : p.tensors) in.emplace_back(t, loc);
  Tensor out[kMaxOpOuts];
  apply(op::index_put, &a, in, out, loc);
  return front ? permute(std::move(out[0]), inverse(order), loc) : std::move(out[0]);
}

// x[mask] = number needs no positions.
bool is_single_mask(const TensorIndices& indices, const Operand& value) {
  const auto& e = indices.entries();
  return e.size() == 1 && e[0].kind() == TensorIndex::Kind::tensor && e[0].tensor().defined() &&
         e[0].tensor().dtype() == DType::b8 && e[0].tensor().dim() > 0 &&
         (value.is_scalar() || value.tensor().dim() == 0);
}
Tensor wide_mask(const Tensor& x, const Tensor& mask, SourceLocation loc) {
  Shape s = mask.shape();
  TD_CHECK(s.rank() <= x.dim(), Index, "a mask of shape {} does not fit x {}", s.to_string(),
           x.shape().to_string());
  for (int i = 0; i < s.rank(); ++i)
    TD_CHECK(dims_equal(s[i], x.shape()[i]), Index,
             "a mask of shape {} does not fit x {} at dimension {}", s.to_string(),
             x.shape().to_string(), i);
  while (s.rank() < x.dim()) s.push_back(1);
  return reshape(mask, s, loc);
}

}  // namespace

Tensor index(Tensor x, const TensorIndices& indices, SourceLocation loc) {
  return placed("index", loc, [&] {
    const Parsed p = Parser(x.shape(), loc).run(indices);
    x = region_of(std::move(x), p, loc);
    if (p.tensors.empty()) return x;
    IndexAttrs a;
    a.wrap = true;
    if (p.adjacent())
      a.dim = p.dims[0];
    else
      x = permute(std::move(x), in_front(p), loc);
    return call_list(op::index, &a, loc, p.tensors, std::span<const Tensor>(&x, 1));
  });
}

Tensor index_put(Tensor x, const TensorIndices& indices, const Operand& value, bool accumulate,
                 SourceLocation loc) {
  return placed("index_put", loc, [&] {
    if (!accumulate && is_single_mask(indices, value)) {
      const Tensor mask = wide_mask(x, indices.entries()[0].tensor(), loc);
      return masked_fill(std::move(x), mask, value, loc);
    }
    Parsed p = Parser(x.shape(), loc).run(indices);
    if (!p.tensors.empty() && p.whole && p.view == x.shape())
      return put_tensors(std::move(x), p, value, accumulate, loc);
    // Write the region: the value itself, or the region updated at the index tensors.
    Tensor v = p.tensors.empty() ? value_like(value, x.dtype(), p.view, loc)
                                 : put_tensors(region_of(x, p, loc), p, value, accumulate, loc);
    p.region.accumulate = accumulate && p.tensors.empty();
    v = reshape(std::move(v), p.region.length, loc);
    return call(op::region_put, &p.region, loc, std::move(x), v);
  });
}

namespace {

// Applies index or index_put with one vector of indices along `dim`.
Tensor vector_index(const char* name, const Tensor& x, int64_t dim, const Tensor& index,
                    IndexAttrs& a, SourceLocation loc) {
  return placed(name, loc, [&] {
    a.dim = normalize_dim(dim, x.dim());
    TD_CHECK(index.dim() <= 1, Shape, "index must be a vector, got shape {}",
             index.shape().to_string());
    return reshape(as_index(index, loc), Shape(-1), loc);
  });
}

Tensor put_vector(const char* name, Tensor x, int64_t dim, const Tensor& index, Tensor source,
                  bool accumulate, SourceLocation loc) {
  IndexAttrs a;
  a.accumulate = accumulate;
  const Tensor at = vector_index(name, x, dim, index, a, loc);
  return named(name, loc,
               [&] { return call(op::index_put, &a, loc, std::move(x), std::move(source), at); });
}

}  // namespace

Tensor index_select(Tensor x, int64_t dim, const Tensor& index, SourceLocation loc) {
  IndexAttrs a;
  const Tensor at = vector_index("index_select", x, dim, index, a, loc);
  return named("index_select", loc, [&] { return call(op::index, &a, loc, std::move(x), at); });
}

Tensor index_add(Tensor x, int64_t dim, const Tensor& index, Tensor source, Scalar alpha,
                 SourceLocation loc) {
  return named("index_add", loc, [&] {
    if (alpha.to_double() != 1) source = mul(std::move(source), alpha, loc);
    return put_vector("index_add", std::move(x), dim, index, std::move(source), true, loc);
  });
}

Tensor index_copy(Tensor x, int64_t dim, const Tensor& index, Tensor source, SourceLocation loc) {
  return put_vector("index_copy", std::move(x), dim, index, std::move(source), false, loc);
}

Tensor index_fill(Tensor x, int64_t dim, const Tensor& index, Scalar value, SourceLocation loc) {
  IndexAttrs a;
  const Tensor at = vector_index("index_fill", x, dim, index, a, loc);
  Shape s = x.shape();
  s[static_cast<int>(a.dim)] = at.shape()[0];
  const Tensor v = expand(full(Shape(), value, x.dtype(), loc), s, loc);
  return named("index_fill", loc,
               [&] { return call(op::index_put, &a, loc, std::move(x), v, at); });
}

Tensor embedding(const Tensor& input, Tensor weight, std::optional<int64_t> padding_idx,
                 SourceLocation loc) {
  IndexAttrs a;
  const Tensor at = placed("embedding", loc, [&] {
    TD_CHECK(!is_floating(input.dtype()), DType,
             "expected integer rows as first argument, got {}\nThe order is (input, weight).",
             to_string(input.dtype()));
    TD_CHECK(weight.dim() == 2, Shape, "weight must be [rows, size], got {}",
             weight.shape().to_string());
    if (padding_idx) {
      const int64_t n = weight.size(0);
      TD_CHECK(*padding_idx >= -n && *padding_idx < n, Value,
               "padding_idx {} is out of range for a weight of {} rows", *padding_idx, n);
      a.skip = *padding_idx < 0 ? *padding_idx + n : *padding_idx;
    }
    return as_index(input, loc);
  });
  return named("embedding", loc, [&] { return call(op::index, &a, loc, std::move(weight), at); });
}

Tensor gather(Tensor x, int64_t dim, const Tensor& index, SourceLocation loc) {
  GatherAttrs a{dim};
  const Tensor at = placed("gather", loc, [&] { return as_index(index, loc); });
  return call(op::gather, &a, loc, std::move(x), at);
}

Tensor take_along_dim(Tensor x, const Tensor& index, int64_t dim, SourceLocation loc) {
  return placed("take_along_dim", loc, [&] {
    TD_CHECK(x.dim() == index.dim(), Shape, "x {} and index {} must have as many dimensions",
             x.shape().to_string(), index.shape().to_string());
    const int d = normalize_dim(dim, x.dim());
    Shape a = x.shape(), b = index.shape();
    a[d] = b[d] = 1;
    Shape xs = broadcast_shapes(a, b), is = xs;
    xs[d] = x.shape()[d];
    is[d] = index.shape()[d];
    return gather(expand(std::move(x), xs, loc), d, expand(index, is, loc), loc);
  });
}

Tensor scatter(Tensor x, int64_t dim, const Tensor& index, const Operand& src, SourceLocation loc) {
  GatherAttrs a{dim};
  Tensor at, v;
  placed("scatter", loc, [&] {
    at = as_index(index, loc);
    v = src.is_scalar() ? expand(full(Shape(), src.scalar(), x.dtype(), loc), index.shape(), loc)
                        : src.tensor();
  });
  return call(op::scatter, &a, loc, std::move(x), at, v);
}

Tensor scatter_add(Tensor x, int64_t dim, const Tensor& index, Tensor src, SourceLocation loc) {
  GatherAttrs a{dim};
  const Tensor at = placed("scatter_add", loc, [&] { return as_index(index, loc); });
  return call(op::scatter_add, &a, loc, std::move(x), at, std::move(src));
}

Tensor masked_fill(Tensor x, const Tensor& mask, const Operand& value, SourceLocation loc) {
  return named("masked_fill", loc, [&] {
    TD_CHECK(mask.dtype() == DType::b8, DType, "mask must be bool, got {}",
             to_string(mask.dtype()));
    TD_CHECK(value.is_scalar() || value.tensor().dim() == 0, Shape,
             "value must be a number or a 0-d tensor, got shape {}",
             value.tensor().shape().to_string());
    // The result has x's dtype, whatever the number's.
    const DType dtype = x.dtype();
    Tensor v = value.is_scalar() ? full(Shape(), value.scalar(), dtype, loc)
                                 : value.tensor().to(dtype, loc);
    return where(mask, std::move(v), std::move(x), loc);
  });
}

namespace {

int64_t count_nonzero_values(const char* name, const Tensor& x, SourceLocation loc) {
  return placed(name, loc, [&] {
    TD_CHECK(detail::readable(x), Unsupported,
             "the size of the result depends on values, which a trace does not have\n"
             "Use nonzero(x, size, fill), where(), or call it outside.");
    NoGradGuard no_grad;
    const Tensor dense = contiguous(x, loc);
    return visit_dtype(dense.dtype(), [&](auto tag) {
      using T = decltype(tag);
      const T* p = dense.data<T>(loc);
      int64_t n = 0;
      for (int64_t i = 0; i < dense.numel(); ++i) n += detail::is_nonzero(p[i]);
      return n;
    });
  });
}

}  // namespace

Tensor masked_select(Tensor x, const Tensor& mask, SourceLocation loc) {
  return placed("masked_select", loc, [&] {
    TD_CHECK(mask.dtype() == DType::b8, DType, "mask must be bool, got {}",
             to_string(mask.dtype()));
    const Shape s = broadcast_shapes(x.shape(), mask.shape());
    const Tensor wide = reshape(expand(mask, s, loc), Shape(-1), loc);
    const int64_t n = count_nonzero_values("masked_select", wide, loc);
    const Tensor at = reshape(nonzero(wide, n, 0, loc), Shape(-1), loc);
    return index_select(reshape(expand(std::move(x), s, loc), Shape(-1), loc), 0, at, loc);
  });
}

Tensor nonzero(const Tensor& x, SourceLocation loc) {
  return nonzero(x, count_nonzero_values("nonzero", x, loc), 0, loc);
}

Tensor nonzero(const Tensor& x, int64_t size, int64_t fill, SourceLocation loc) {
  NonzeroAttrs a{size, fill};
  return call(op::nonzero, &a, loc, x);
}

namespace {

// The largest of n whole numbers, at least -1.
template <class T>
int64_t largest_of(const T* p, int64_t n) {
  constexpr int64_t kPart = 1 << 16;
  std::vector<int64_t> largest(static_cast<size_t>((n + kPart - 1) / kPart), -1);
  parallel_for(0, static_cast<int64_t>(largest.size()), 1, [&](int64_t b, int64_t e) {
    for (int64_t part = b; part < e; ++part) {
      int64_t m = -1;
      for (int64_t i = part * kPart; i < std::min(n, (part + 1) * kPart); ++i)
        m = std::max(m, static_cast<int64_t>(p[i]));
      largest[static_cast<size_t>(part)] = m;
    }
  });
  return largest.empty() ? -1 : *std::max_element(largest.begin(), largest.end());
}

int64_t largest_value(const char* name, const Tensor& x, SourceLocation loc) {
  return placed(name, loc, [&] {
    TD_CHECK(detail::readable(x), Unsupported,
             "the size of the result depends on values, which a trace does not have\n"
             "Pass the number of classes.");
    int64_t m = -1;
    if (x.device().kind != DeviceKind::cpu || !x.is_contiguous()) {
      const std::vector<int64_t> v = x.to_vector<int64_t>(loc);
      m = largest_of(v.data(), static_cast<int64_t>(v.size()));
    } else {
      visit_dtype(x.dtype(), [&](auto tag) {
        using T = decltype(tag);
        if constexpr (std::is_integral_v<T>) m = largest_of(x.data<T>(loc), x.numel());
      });
    }
    TD_CHECK(m < int64_t{1} << 40, Memory,
             "the largest value is {}: that many entries are too many", m);
    return m;
  });
}

}  // namespace

Tensor one_hot(const Tensor& classes, int64_t num_classes, SourceLocation loc) {
  const Tensor at = placed("one_hot", loc, [&] {
    TD_CHECK(num_classes != -1 || classes.is_symbolic() || classes.numel() > 0, Value,
             "num_classes must be given for a tensor without elements");
    return as_index(classes, loc);
  });
  OneHotAttrs a{num_classes == -1 ? largest_value("one_hot", at, loc) + 1 : num_classes};
  return call(op::one_hot, &a, loc, at);
}

Tensor bincount(const Tensor& x, int64_t minlength, SourceLocation loc) {
  const Tensor at = placed("bincount", loc, [&] {
    TD_CHECK(minlength >= 0, Value, "minlength must not be negative, got {}", minlength);
    return as_index(x, loc);
  });
  BincountAttrs a{std::max(minlength, largest_value("bincount", at, loc) + 1)};
  return call(op::bincount, &a, loc, at);
}

namespace {

Operand start_operand(const Operand& start, SourceLocation loc) {
  if (start.is_scalar()) {
    TD_CHECK(start.scalar().kind == 1, DType, "start must be an integer");
    return Operand(start.scalar(), loc);
  }
  return Operand(as_index(start.tensor(), loc), loc);
}

}  // namespace

Tensor dynamic_update(Tensor x, int64_t dim, const Operand& start, Tensor value,
                      SourceLocation loc) {
  ShapeAttrs a{IntList(dim)};
  return placed("dynamic_update", loc, [&] {
    Operand in[] = {Operand(std::move(x), loc), start_operand(start, loc),
                    Operand(std::move(value), loc)};
    Tensor out[kMaxOpOuts];
    apply(op::dynamic_update, &a, in, out, loc);
    return std::move(out[0]);
  });
}

Tensor dynamic_slice(Tensor x, int64_t dim, const Operand& start, Dim length, SourceLocation loc) {
  DynamicSliceAttrs a{dim, IntList(length)};
  return placed("dynamic_slice", loc, [&] {
    Operand in[] = {Operand(std::move(x), loc), start_operand(start, loc)};
    Tensor out[kMaxOpOuts];
    apply(op::dynamic_slice, &a, in, out, loc);
    return std::move(out[0]);
  });
}

namespace {

ValuesAndIndices call_pair(const OpDef& row, const SortAttrs& a, const Tensor& x,
                           SourceLocation loc) {
  Operand in[] = {Operand(x, loc)};
  Tensor out[kMaxOpOuts];
  apply(row, &a, in, out, loc);
  return {std::move(out[0]), std::move(out[1])};
}

}  // namespace

ValuesAndIndices sort(const Tensor& x, int64_t dim, bool descending, SourceLocation loc) {
  return call_pair(op::sort, SortAttrs{dim, descending, -1}, x, loc);
}

Tensor argsort(const Tensor& x, int64_t dim, bool descending, SourceLocation loc) {
  return named("argsort", loc, [&] { return sort(x, dim, descending, loc).indices; });
}

ValuesAndIndices topk(const Tensor& x, int64_t k, int64_t dim, bool largest, SourceLocation loc) {
  return call_pair(op::topk, SortAttrs{dim, largest, k}, x, loc);
}

}  // namespace tandem
