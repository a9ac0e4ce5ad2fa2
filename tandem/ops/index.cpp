// SPDX-License-Identifier: Apache-2.0
// The functions of indexing. An index of numbers, slices, None and tensors becomes views followed
// by one row; writing through it becomes that row on the view, written back over its region.
#include "tandem/ops/index.h"

#include "tandem/ops/create.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/view.h"
#include "tandem/tensor/lazy.h"

namespace tandem {

using detail::named;
using detail::placed;

namespace {

Tensor as_index(const Tensor& t, Where where) {
  TD_CHECK(is_integral(t.dtype()), DType,
           "an index must be an integer tensor, got {}\nConvert it with .to(int64).",
           to_string(t.dtype()));
  return detail::is_index_dtype(t.dtype()) ? t : t.to(DType::i64, where);
}

// An index with its numbers, slices and None done.
struct Parsed {
  RegionAttrs region;     ///< what numbers and slices leave of x
  bool whole = true;      ///< the region is all of x
  Shape view;             ///< the region with numbers dropped and None inserted
  std::vector<int> dims;  ///< of the view: which one each index tensor stands for
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
  Parser(const Shape& x, Where where) : x_(x), where_(where) {
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
    out_.tensors.push_back(as_index(t, where_));
    keep();
  }
  void number(int64_t i) {
    const Dim n = x_[at_];
    TD_CHECK(n.is_symbolic() || (i >= -n.raw() && i < n.raw()), Index,
             "index {} is out of range for dimension {} of x {}", i, at_, x_.to_string());
    cut(i < 0 ? n + Dim(i) : Dim(i), 1, 1);
    ++at_;
  }
  void range(const Slice& s) {
    const Dim n = x_[at_];
    TD_CHECK(s.step > 0, Value, "the step of a slice must be positive, got {}\nUse flip().",
             s.step);
    const auto end = [&](int64_t v) {
      if (v == Slice::kEnd) return n;
      if (v < 0) return max(n + Dim(v), Dim(0));
      return v == 0 ? Dim(0) : min(Dim(v), n);
    };
    const Dim start = end(s.start);
    const Dim span = start == Dim(0) ? end(s.end) : max(end(s.end) - start, Dim(0));
    const Dim length = s.step == 1 ? span : floordiv(span + Dim(s.step - 1), Dim(s.step));
    if (!(start == Dim(0)) || !(length == n) || s.step != 1) cut(start, length, s.step);
    out_.view.push_back(length);
    ++at_;
  }
  void mask(const Tensor& t) {
    TD_CHECK(t.dim() > 0, Unsupported, "a bool index of 0 dimensions\nUse where().");
    for (int k = 0; k < t.dim(); ++k)
      TD_CHECK(dims_equal(t.shape()[k], x_[at_ + k]), Index,
               "a mask of shape {} does not fit x {} at dimension {}", t.shape().to_string(),
               x_.to_string(), at_ + k);
    const Tensor at = nonzero(t, where_);
    for (int k = 0; k < t.dim(); ++k) {
      out_.dims.push_back(out_.view.rank());
      out_.tensors.push_back(select(at, 1, k, where_));
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
  Where where_;
  Parsed out_;
  int at_ = 0;
};

Tensor region_of(Tensor x, const Parsed& p, Where where) {
  for (int d = 0; !p.whole && d < x.dim(); ++d) {
    const Dim start = p.region.start[d], length = p.region.length[d], step = p.region.step[d];
    if (start == Dim(0) && step == Dim(1) && length == x.shape(d)) continue;
    SliceAttrs a{d, IntList(start, length, step)};
    x = call(op::slice, &a, where, std::move(x));
  }
  return reshape(std::move(x), p.view, where);
}

// Index tensors that are not side by side go in front: the order that brings their dims there.
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

Tensor value_like(const Operand& value, DType dtype, const Shape& shape, Where where) {
  Tensor v = value.is_scalar() ? full(Shape(), value.scalar(), dtype, where)
                               : value.tensor().to(dtype, where);
  // Leading ones of the value do not count, as in NumPy.
  Shape s = v.shape();
  while (s.rank() > shape.rank() && s[0] == Dim(1)) s.erase(0);
  return expand(reshape(std::move(v), s, where), shape, where);
}

Tensor put_tensors(Tensor x, const Parsed& p, const Operand& value, bool accumulate, Where where) {
  IndexAttrs a;
  a.wrap = true;
  a.accumulate = accumulate;
  const bool front = !p.adjacent();
  IntList order;
  if (front) {
    order = in_front(p);
    x = permute(std::move(x), order, where);
  } else {
    a.dim = p.dims[0];
  }
  Shape common, shape;
  for (const Tensor& t : p.tensors) common = broadcast_shapes(common, t.shape());
  const int d = static_cast<int>(a.dim), n = static_cast<int>(p.tensors.size());
  for (int i = 0; i < d; ++i) shape.push_back(x.shape()[i]);
  for (Dim s : common) shape.push_back(s);
  for (int i = d + n; i < x.dim(); ++i) shape.push_back(x.shape()[i]);
  const Tensor v = value_like(value, x.dtype(), shape, where);
  std::vector<Operand> in;
  in.reserve(2 + p.tensors.size());
  in.emplace_back(std::move(x), where);
  in.emplace_back(v, where);
  for (const Tensor& t : p.tensors) in.emplace_back(t, where);
  Tensor out[kMaxOpOuts];
  apply(op::index_put, &a, in, out, where);
  return front ? permute(std::move(out[0]), inverse(order), where) : std::move(out[0]);
}

// x[mask] = number needs no positions.
bool is_single_mask(const TensorIndices& indices, const Operand& value) {
  const auto& e = indices.entries();
  return e.size() == 1 && e[0].kind() == TensorIndex::Kind::tensor && e[0].tensor().defined() &&
         e[0].tensor().dtype() == DType::b8 && e[0].tensor().dim() > 0 &&
         (value.is_scalar() || value.tensor().dim() == 0);
}
Tensor wide_mask(const Tensor& x, const Tensor& mask, Where where) {
  Shape s = mask.shape();
  TD_CHECK(s.rank() <= x.dim(), Index, "a mask of shape {} does not fit x {}", s.to_string(),
           x.shape().to_string());
  for (int i = 0; i < s.rank(); ++i)
    TD_CHECK(dims_equal(s[i], x.shape()[i]), Index,
             "a mask of shape {} does not fit x {} at dimension {}", s.to_string(),
             x.shape().to_string(), i);
  while (s.rank() < x.dim()) s.push_back(1);
  return reshape(mask, s, where);
}

}  // namespace

Tensor index(Tensor x, const TensorIndices& indices, Where where) {
  return placed("index", where, [&] {
    const Parsed p = Parser(x.shape(), where).run(indices);
    x = region_of(std::move(x), p, where);
    if (p.tensors.empty()) return x;
    IndexAttrs a;
    a.wrap = true;
    if (p.adjacent())
      a.dim = p.dims[0];
    else
      x = permute(std::move(x), in_front(p), where);
    return call_list(op::index, &a, where, p.tensors, std::span<const Tensor>(&x, 1));
  });
}

Tensor index_put(Tensor x, const TensorIndices& indices, const Operand& value, bool accumulate,
                 Where where) {
  return placed("index_put", where, [&] {
    if (!accumulate && is_single_mask(indices, value)) {
      const Tensor mask = wide_mask(x, indices.entries()[0].tensor(), where);
      return masked_fill(std::move(x), mask, value, where);
    }
    Parsed p = Parser(x.shape(), where).run(indices);
    if (!p.tensors.empty() && p.whole && p.view == x.shape())
      return put_tensors(std::move(x), p, value, accumulate, where);
    // Write the region: the value itself, or the region with the index tensors written into it.
    Tensor v = p.tensors.empty() ? value_like(value, x.dtype(), p.view, where)
                                 : put_tensors(region_of(x, p, where), p, value, accumulate, where);
    p.region.accumulate = accumulate && p.tensors.empty();
    v = reshape(std::move(v), p.region.length, where);
    return call(op::region_put, &p.region, where, std::move(x), v);
  });
}

namespace {

// A call of index or index_put with one vector of indices along `dim`.
Tensor vector_index(const char* name, const Tensor& x, int64_t dim, const Tensor& index,
                    IndexAttrs& a, Where where) {
  return placed(name, where, [&] {
    a.dim = normalize_dim(dim, x.dim());
    TD_CHECK(index.dim() <= 1, Shape, "index must be a vector, got shape {}",
             index.shape().to_string());
    return reshape(as_index(index, where), Shape(-1), where);
  });
}

Tensor put_vector(const char* name, Tensor x, int64_t dim, const Tensor& index, Tensor source,
                  bool accumulate, Where where) {
  IndexAttrs a;
  a.accumulate = accumulate;
  const Tensor at = vector_index(name, x, dim, index, a, where);
  return named(name, where,
               [&] { return call(op::index_put, &a, where, std::move(x), std::move(source), at); });
}

}  // namespace

Tensor index_select(Tensor x, int64_t dim, const Tensor& index, Where where) {
  IndexAttrs a;
  const Tensor at = vector_index("index_select", x, dim, index, a, where);
  return named("index_select", where, [&] { return call(op::index, &a, where, std::move(x), at); });
}

Tensor index_add(Tensor x, int64_t dim, const Tensor& index, Tensor source, Scalar alpha,
                 Where where) {
  if (alpha.to_double() != 1) source = mul(std::move(source), alpha, where);
  return put_vector("index_add", std::move(x), dim, index, std::move(source), true, where);
}

Tensor index_copy(Tensor x, int64_t dim, const Tensor& index, Tensor source, Where where) {
  return put_vector("index_copy", std::move(x), dim, index, std::move(source), false, where);
}

Tensor index_fill(Tensor x, int64_t dim, const Tensor& index, Scalar value, Where where) {
  IndexAttrs a;
  const Tensor at = vector_index("index_fill", x, dim, index, a, where);
  Shape s = x.shape();
  s[static_cast<int>(a.dim)] = at.shape()[0];
  const Tensor v = expand(full(Shape(), value, x.dtype(), where), s, where);
  return named("index_fill", where,
               [&] { return call(op::index_put, &a, where, std::move(x), v, at); });
}

Tensor embedding(const Tensor& input, Tensor weight, std::optional<int64_t> padding_idx,
                 Where where) {
  IndexAttrs a;
  const Tensor at = placed("embedding", where, [&] {
    TD_CHECK(!is_floating(input.dtype()), DType,
             "wants integer rows as first argument, got {}\nThe order is (input, weight).",
             to_string(input.dtype()));
    TD_CHECK(weight.dim() == 2, Shape, "weight must be [rows, size], got {}",
             weight.shape().to_string());
    if (padding_idx) {
      const int64_t n = weight.size(0);
      TD_CHECK(*padding_idx >= -n && *padding_idx < n, Value,
               "padding_idx {} is out of range for a weight of {} rows", *padding_idx, n);
      a.skip = *padding_idx < 0 ? *padding_idx + n : *padding_idx;
    }
    return as_index(input, where);
  });
  return named("embedding", where,
               [&] { return call(op::index, &a, where, std::move(weight), at); });
}

Tensor gather(Tensor x, int64_t dim, const Tensor& index, Where where) {
  GatherAttrs a{dim};
  const Tensor at = placed("gather", where, [&] { return as_index(index, where); });
  return call(op::gather, &a, where, std::move(x), at);
}

Tensor take_along_dim(Tensor x, const Tensor& index, int64_t dim, Where where) {
  return placed("take_along_dim", where, [&] {
    TD_CHECK(x.dim() == index.dim(), Shape, "x {} and index {} must have as many dimensions",
             x.shape().to_string(), index.shape().to_string());
    const int d = normalize_dim(dim, x.dim());
    Shape a = x.shape(), b = index.shape();
    a[d] = b[d] = 1;
    Shape xs = broadcast_shapes(a, b), is = xs;
    xs[d] = x.shape()[d];
    is[d] = index.shape()[d];
    return gather(expand(std::move(x), xs, where), d, expand(index, is, where), where);
  });
}

Tensor scatter(Tensor x, int64_t dim, const Tensor& index, const Operand& src, Where where) {
  GatherAttrs a{dim};
  Tensor at, v;
  placed("scatter", where, [&] {
    at = as_index(index, where);
    v = src.is_scalar()
            ? expand(full(Shape(), src.scalar(), x.dtype(), where), index.shape(), where)
            : src.tensor();
  });
  return call(op::scatter, &a, where, std::move(x), at, v);
}

Tensor scatter_add(Tensor x, int64_t dim, const Tensor& index, Tensor src, Where where) {
  GatherAttrs a{dim};
  const Tensor at = placed("scatter_add", where, [&] { return as_index(index, where); });
  return call(op::scatter_add, &a, where, std::move(x), at, std::move(src));
}

Tensor masked_fill(Tensor x, const Tensor& mask, const Operand& value, Where where) {
  return named("masked_fill", where, [&] {
    TD_CHECK(mask.dtype() == DType::b8, DType, "mask must be bool, got {}",
             to_string(mask.dtype()));
    TD_CHECK(value.is_scalar() || value.tensor().dim() == 0, Shape,
             "value must be a number or a 0-d tensor, got shape {}",
             value.tensor().shape().to_string());
    // The result has x's dtype, whatever the number is.
    const DType dtype = x.dtype();
    Tensor v = value.is_scalar() ? full(Shape(), value.scalar(), dtype, where)
                                 : value.tensor().to(dtype, where);
    return tandem::where(mask, std::move(v), std::move(x), where);
  });
}

namespace {

int64_t count_nonzero_values(const char* name, const Tensor& x, Where where) {
  return placed(name, where, [&] {
    TD_CHECK(detail::readable(x), Unsupported,
             "the size of the result depends on values, which a trace does not have\n"
             "Use nonzero(x, size, fill), where(), or call it outside.");
    NoGradGuard no_grad;
    const Tensor dense = contiguous(x, where);
    return visit_dtype(dense.dtype(), [&](auto tag) {
      using T = decltype(tag);
      const T* p = dense.data<T>(where);
      int64_t n = 0;
      for (int64_t i = 0; i < dense.numel(); ++i) n += detail::is_nonzero(p[i]);
      return n;
    });
  });
}

}  // namespace

Tensor masked_select(Tensor x, const Tensor& mask, Where where) {
  return placed("masked_select", where, [&] {
    TD_CHECK(mask.dtype() == DType::b8, DType, "mask must be bool, got {}",
             to_string(mask.dtype()));
    const Shape s = broadcast_shapes(x.shape(), mask.shape());
    const Tensor wide = reshape(expand(mask, s, where), Shape(-1), where);
    const int64_t n = count_nonzero_values("masked_select", wide, where);
    const Tensor at = reshape(nonzero(wide, n, 0, where), Shape(-1), where);
    return index_select(reshape(expand(std::move(x), s, where), Shape(-1), where), 0, at, where);
  });
}

Tensor nonzero(const Tensor& x, Where where) {
  return nonzero(x, count_nonzero_values("nonzero", x, where), 0, where);
}

Tensor nonzero(const Tensor& x, int64_t size, int64_t fill, Where where) {
  NonzeroAttrs a{size, fill};
  return call(op::nonzero, &a, where, x);
}

namespace {

int64_t largest_value(const char* name, const Tensor& x, Where where) {
  return placed(name, where, [&] {
    TD_CHECK(detail::readable(x), Unsupported,
             "the size of the result depends on values, which a trace does not have\n"
             "Give the number of classes.");
    int64_t m = -1;
    for (int64_t v : x.to_vector<int64_t>(where)) m = std::max(m, v);
    TD_CHECK(m < int64_t{1} << 40, Memory,
             "the largest value is {}: that many entries are too many", m);
    return m;
  });
}

}  // namespace

Tensor one_hot(const Tensor& classes, int64_t num_classes, Where where) {
  const Tensor at = placed("one_hot", where, [&] {
    TD_CHECK(num_classes != -1 || classes.is_symbolic() || classes.numel() > 0, Value,
             "num_classes must be given for a tensor without elements");
    return as_index(classes, where);
  });
  OneHotAttrs a{num_classes == -1 ? largest_value("one_hot", at, where) + 1 : num_classes};
  return call(op::one_hot, &a, where, at);
}

Tensor bincount(const Tensor& x, int64_t minlength, Where where) {
  const Tensor at = placed("bincount", where, [&] {
    TD_CHECK(minlength >= 0, Value, "minlength must not be negative, got {}", minlength);
    return as_index(x, where);
  });
  BincountAttrs a{std::max(minlength, largest_value("bincount", at, where) + 1)};
  return call(op::bincount, &a, where, at);
}

namespace {

Operand start_operand(const Operand& start, Where where) {
  if (start.is_scalar()) {
    TD_CHECK(start.scalar().kind == 1, DType, "start must be an integer");
    return Operand(start.scalar(), where);
  }
  return Operand(as_index(start.tensor(), where), where);
}

}  // namespace

Tensor dynamic_update(Tensor x, int64_t dim, const Operand& start, Tensor value, Where where) {
  ShapeAttrs a{IntList(dim)};
  return placed("dynamic_update", where, [&] {
    Operand in[] = {Operand(std::move(x), where), start_operand(start, where),
                    Operand(std::move(value), where)};
    Tensor out[kMaxOpOuts];
    apply(op::dynamic_update, &a, in, out, where);
    return std::move(out[0]);
  });
}

Tensor dynamic_slice(Tensor x, int64_t dim, const Operand& start, Dim length, Where where) {
  DynamicSliceAttrs a{dim, IntList(length)};
  return placed("dynamic_slice", where, [&] {
    Operand in[] = {Operand(std::move(x), where), start_operand(start, where)};
    Tensor out[kMaxOpOuts];
    apply(op::dynamic_slice, &a, in, out, where);
    return std::move(out[0]);
  });
}

namespace {

std::pair<Tensor, Tensor> call_pair(const OpDef& row, const SortAttrs& a, const Tensor& x,
                                    Where where) {
  Operand in[] = {Operand(x, where)};
  Tensor out[kMaxOpOuts];
  apply(row, &a, in, out, where);
  return {std::move(out[0]), std::move(out[1])};
}

}  // namespace

std::pair<Tensor, Tensor> sort(const Tensor& x, int64_t dim, bool descending, Where where) {
  return call_pair(op::sort, SortAttrs{dim, descending, -1}, x, where);
}

Tensor argsort(const Tensor& x, int64_t dim, bool descending, Where where) {
  return sort(x, dim, descending, where).second;
}

std::pair<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim, bool largest, Where where) {
  return call_pair(op::topk, SortAttrs{dim, largest, k}, x, where);
}

}  // namespace tandem
