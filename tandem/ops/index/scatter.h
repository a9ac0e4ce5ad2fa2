// SPDX-License-Identifier: Apache-2.0
// Reductions into places given by an index (scatter_reduce, segments), and reading and writing by
// flat position or mask. PyTorch's names and arguments; segment_sum and its variants take the
// segment of each row, as in JAX. Nothing is written in place.
#pragma once

#include <string_view>

#include "tandem/graph/apply.h"

namespace tandem {

/// x with x[index[i][j]][j] = reduce(x[...], all src[i][j] that go there) for dim 0, and so on.
/// reduce: sum, prod, mean, amax, amin. Without include_self, indexed places ignore x. Equal
/// extremes share the gradient. Products of integers are exact up to 2^53.
TD_API Tensor scatter_reduce(Tensor x, int64_t dim, const Tensor& index, Tensor src,
                             std::string_view reduce, bool include_self = true,
                             SourceLocation loc = SourceLocation::here());
/// The same with a vector: entries `index` of `dim` with those of source. reduce: prod, mean, amax,
/// amin (sum: index_add).
TD_API Tensor index_reduce(Tensor x, int64_t dim, const Tensor& index, Tensor source,
                           std::string_view reduce, bool include_self = true,
                           SourceLocation loc = SourceLocation::here());

/// out[s] = reduction of the rows data[i] with segment_ids[i] == s, in any order. Without
/// num_segments the ids are read (Unsupported in a trace). Empty segments: 0, NaN, 1, -inf, inf
/// (integers: their least and largest number).
TD_API Tensor segment_sum(const Tensor& data, const Tensor& segment_ids, int64_t num_segments = -1,
                          SourceLocation loc = SourceLocation::here());
TD_API Tensor segment_mean(const Tensor& data, const Tensor& segment_ids, int64_t num_segments = -1,
                           SourceLocation loc = SourceLocation::here());
TD_API Tensor segment_prod(const Tensor& data, const Tensor& segment_ids, int64_t num_segments = -1,
                           SourceLocation loc = SourceLocation::here());
TD_API Tensor segment_max(const Tensor& data, const Tensor& segment_ids, int64_t num_segments = -1,
                          SourceLocation loc = SourceLocation::here());
TD_API Tensor segment_min(const Tensor& data, const Tensor& segment_ids, int64_t num_segments = -1,
                          SourceLocation loc = SourceLocation::here());
/// torch.segment_reduce: consecutive segments along dimension 0, given by their lengths, or by
/// offsets (one more than segments). reduce: sum, mean, max, min, prod.
TD_API Tensor segment_reduce(const Tensor& data, std::string_view reduce, const Tensor& lengths,
                             const Tensor& offsets = {},
                             SourceLocation loc = SourceLocation::here());

/// Elements of the flattened x at index; negative ones count from the end. Shape of index.
TD_API Tensor take(const Tensor& x, const Tensor& index,
                   SourceLocation loc = SourceLocation::here());
/// x with the elements of source written (added) at flat positions.
TD_API Tensor put(const Tensor& x, const Tensor& index, const Tensor& source,
                  bool accumulate = false, SourceLocation loc = SourceLocation::here());
/// x with the next elements of source, in order, where mask is true. Throws Index if source has too
/// few.
TD_API Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source,
                             SourceLocation loc = SourceLocation::here());

// ---- rows
struct ScatterExtremeAttrs {
  int64_t dim = 0;
  bool largest = true, include_self = true;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("largest", largest);
    v("include_self", include_self);
  }
};
namespace op {
/// x, index, src -> y, all of one rank.
extern TD_API const OpDef scatter_extreme;
}  // namespace op
/// The rows of this family.
TD_API std::span<const OpDef* const> scatter_rows();

}  // namespace tandem
