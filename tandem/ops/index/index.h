// SPDX-License-Identifier: Apache-2.0
// Reading and writing by index tensors, and sorting. Nothing is written in place: `x = index_put(
// std::move(x), i, v)` gives x its new value and reuses its buffer. Names and argument order are
// PyTorch's. An index out of range throws Value when the values are known; no memory outside the
// tensor is ever read.
#pragma once

#include <optional>
#include <vector>

#include "tandem/graph/apply.h"

namespace tandem {

struct NoneType {};
struct EllipsisType {};
/// In an index: a new dimension of size 1; all dimensions that are not listed.
inline constexpr NoneType None;
inline constexpr EllipsisType Ellipsis;

/// One entry of an index: a number, a Slice, a tensor (integer or bool), None or Ellipsis.
class TensorIndex {
 public:
  enum class Kind : uint8_t { integer, slice, tensor, none, ellipsis };
  template <std::integral I>
    requires(!std::same_as<I, bool>)
  TensorIndex(I i) : kind_(Kind::integer), integer_(static_cast<int64_t>(i)) {}
  TensorIndex(Slice s) : kind_(Kind::slice), slice_(s) {}
  TensorIndex(Tensor t) : kind_(Kind::tensor), tensor_(std::move(t)) {}
  TensorIndex(NoneType) : kind_(Kind::none) {}
  TensorIndex(EllipsisType) : kind_(Kind::ellipsis) {}

  Kind kind() const { return kind_; }
  int64_t integer() const { return integer_; }
  const Slice& slice() const { return slice_; }
  const Tensor& tensor() const { return tensor_; }

 private:
  Kind kind_;
  int64_t integer_ = 0;
  Slice slice_;
  Tensor tensor_;
};

/// A whole index: `{Slice(), 0, mask}`, or one entry without braces.
class TensorIndices {
 public:
  template <class... I>
    requires(sizeof...(I) >= 1 && (std::convertible_to<I, TensorIndex> && ...))
  TensorIndices(I... i) : v_{TensorIndex(std::move(i))...} {}
  TensorIndices(std::vector<TensorIndex> v) : v_(std::move(v)) {}
  const std::vector<TensorIndex>& entries() const { return v_; }

 private:
  std::vector<TensorIndex> v_;
};

/// x[indices] as in NumPy and PyTorch: numbers and slices first, then index tensors broadcast
/// together; a bool tensor is replaced by its nonzero(). Nonadjacent tensors put their dimensions
/// in front. Negative indices count from the end.
TD_API Tensor index(Tensor x, const TensorIndices& indices,
                    SourceLocation loc = SourceLocation::here());
/// x with x[indices] = value, or += value; `value` is broadcast and cast to x's dtype.
TD_API Tensor index_put(Tensor x, const TensorIndices& indices, const Operand& value,
                        bool accumulate = false, SourceLocation loc = SourceLocation::here());

/// Entries `index` ([k], integers, not negative) of dimension `dim`.
TD_API Tensor index_select(Tensor x, int64_t dim, const Tensor& index,
                           SourceLocation loc = SourceLocation::here());
/// x with alpha * source added at entries `index` of `dim`; repeated indices accumulate in order.
TD_API Tensor index_add(Tensor x, int64_t dim, const Tensor& index, Tensor source, Scalar alpha = 1,
                        SourceLocation loc = SourceLocation::here());
/// x with entries `index` of `dim` replaced by those of `source` / by a number.
TD_API Tensor index_copy(Tensor x, int64_t dim, const Tensor& index, Tensor source,
                         SourceLocation loc = SourceLocation::here());
TD_API Tensor index_fill(Tensor x, int64_t dim, const Tensor& index, Scalar value,
                         SourceLocation loc = SourceLocation::here());
/// Rows `input` (integers of any shape, not negative) of `weight` [n, d]: result [*input, d]. The
/// gradient of row `padding_idx` is zero. Argument order as in torch.nn.functional.embedding.
TD_API Tensor embedding(const Tensor& input, Tensor weight, std::optional<int64_t> padding_idx = {},
                        SourceLocation loc = SourceLocation::here());
/// out[i][j] = x[index[i][j]][j] for dim 0, and so on. index.size(d) <= x.size(d) for d != dim.
TD_API Tensor gather(Tensor x, int64_t dim, const Tensor& index,
                     SourceLocation loc = SourceLocation::here());
/// Like gather, with index and x broadcast against each other outside `dim`.
TD_API Tensor take_along_dim(Tensor x, const Tensor& index, int64_t dim,
                             SourceLocation loc = SourceLocation::here());
/// x with x[index[i][j]][j] = src[i][j] for dim 0, and so on; the last write to a place wins.
TD_API Tensor scatter(Tensor x, int64_t dim, const Tensor& index, const Operand& src,
                      SourceLocation loc = SourceLocation::here());
/// The same with += in the order of the elements of `index`.
TD_API Tensor scatter_add(Tensor x, int64_t dim, const Tensor& index, Tensor src,
                          SourceLocation loc = SourceLocation::here());
/// x where mask is false, `value` where it is true.
TD_API Tensor masked_fill(Tensor x, const Tensor& mask, const Operand& value,
                          SourceLocation loc = SourceLocation::here());
/// The elements where mask is true, in row-major order, as a vector. Reads values: Unsupported in
/// a trace.
TD_API Tensor masked_select(Tensor x, const Tensor& mask,
                            SourceLocation loc = SourceLocation::here());
/// Coordinates of the nonzero elements: i64 [count, rank]. Reads values: in a trace pass `size` to
/// get exactly that many rows, with missing ones filled with `fill`.
TD_API Tensor nonzero(const Tensor& x, SourceLocation loc = SourceLocation::here());
TD_API Tensor nonzero(const Tensor& x, int64_t size, int64_t fill,
                      SourceLocation loc = SourceLocation::here());
/// i64 with a new last dimension that is 1 at the class. Without num_classes the values are read.
TD_API Tensor one_hot(const Tensor& classes, int64_t num_classes = -1,
                      SourceLocation loc = SourceLocation::here());
/// How often each of 0, 1, ... max(minlength - 1, x.max()) occurs. Reads values.
TD_API Tensor bincount(const Tensor& x, int64_t minlength = 0,
                       SourceLocation loc = SourceLocation::here());

/// x with `value` written over entries start .. start + value.size(dim) of `dim`; `start` may be a
/// 0-d integer tensor.
TD_API Tensor dynamic_update(Tensor x, int64_t dim, const Operand& start, Tensor value,
                             SourceLocation loc = SourceLocation::here());
/// `length` entries of `dim` starting at `start`, which may be a 0-d integer tensor.
TD_API Tensor dynamic_slice(Tensor x, int64_t dim, const Operand& start, Dim length,
                            SourceLocation loc = SourceLocation::here());

/// Sorted along `dim`, with the indices (i64) in x. Stable; NaN counts as the largest, as in
/// PyTorch.
TD_API ValuesAndIndices sort(const Tensor& x, int64_t dim = -1, bool descending = false,
                             SourceLocation loc = SourceLocation::here());
TD_API Tensor argsort(const Tensor& x, int64_t dim = -1, bool descending = false,
                      SourceLocation loc = SourceLocation::here());
/// The `k` largest (smallest) along `dim`, sorted; ties by lowest index.
TD_API ValuesAndIndices topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true,
                             SourceLocation loc = SourceLocation::here());

// ---- rows
// Index tensors 0, 1, ... index dimensions dim, dim + 1, ...
struct IndexAttrs {
  int64_t dim = 0;
  bool wrap = false;        ///< negative indices count from the end
  bool accumulate = false;  ///< for index_put
  int64_t skip = -1;        ///< a value of the last index tensor whose gradient is dropped
  IntList shape;            ///< of index_backward: its result
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("wrap", wrap);
    v("accumulate", accumulate);
    v("skip", skip);
    v("shape", shape);
  }
};
struct GatherAttrs {
  int64_t dim = 0;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
  }
};
struct NonzeroAttrs {
  int64_t size = 0, fill = 0;
  template <class V>
  void fields(V& v) {
    v("size", size);
    v("fill", fill);
  }
};
struct OneHotAttrs {
  int64_t num_classes = 0;
  template <class V>
  void fields(V& v) {
    v("num_classes", num_classes);
  }
};
struct BincountAttrs {
  int64_t size = 0;
  template <class V>
  void fields(V& v) {
    v("size", size);
  }
};
/// Attributes of dynamic_slice. dynamic_update has ShapeAttrs whose shape is {dim}.
struct DynamicSliceAttrs {
  int64_t dim = 0;
  IntList length;  ///< one Dim
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("length", length);
  }
};
/// A region of x: `length[d]` elements of dimension d starting at start[d] with step[d].
struct RegionAttrs {
  IntList start, length, step;
  bool accumulate = false;
  template <class V>
  void fields(V& v) {
    v("start", start);
    v("length", length);
    v("step", step);
    v("accumulate", accumulate);
  }
};
struct SortAttrs {
  int64_t dim = -1;
  bool descending = false;
  int64_t k = -1;  ///< for topk
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("descending", descending);
    v("k", k);
  }
};

namespace op {
extern TD_API const OpDef index, index_put, index_backward, region_put, gather, scatter,
    scatter_add, nonzero, one_hot, bincount, dynamic_update, dynamic_slice, sort, topk;
}  // namespace op

/// The rows of this family.
TD_API std::span<const OpDef* const> index_rows();

}  // namespace tandem
