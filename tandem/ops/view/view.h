// SPDX-License-Identifier: Apache-2.0
// Shapes, views, concatenation and rearrangement. Views share the bytes of their input; since
// values never change this is unobservable, so `view` and `reshape` are the same. Names, argument
// order and defaults are PyTorch's.
#pragma once

#include <string_view>
#include <vector>

#include "tandem/graph/apply.h"

namespace tandem {

// ---- views
// The elements of `x` in row-major order as `shape`; one size may be -1. Throws Shape unless the
// number of elements is unchanged. Copies only if the strides of `x` do not allow a view.
TD_API Tensor reshape(Tensor x, Shape shape, SourceLocation loc = SourceLocation::here());
TD_API Tensor view(Tensor x, Shape shape, SourceLocation loc = SourceLocation::here());
/// Dimensions start..end merged into one; a 0-d tensor becomes [1].
TD_API Tensor flatten(Tensor x, int64_t start_dim = 0, int64_t end_dim = -1,
                      SourceLocation loc = SourceLocation::here());
/// Dimension `dim` split into `sizes`, one of which may be -1.
TD_API Tensor unflatten(Tensor x, int64_t dim, Shape sizes,
                        SourceLocation loc = SourceLocation::here());
/// Output dimension i is input dimension dims[i].
TD_API Tensor permute(Tensor x, IntList dims, SourceLocation loc = SourceLocation::here());
TD_API Tensor transpose(Tensor x, int64_t dim0, int64_t dim1,
                        SourceLocation loc = SourceLocation::here());
/// Transpose of a matrix; vectors and scalars unchanged. Throws Shape beyond 2 dimensions.
TD_API Tensor t(Tensor x, SourceLocation loc = SourceLocation::here());
TD_API Tensor movedim(Tensor x, IntList source, IntList destination,
                      SourceLocation loc = SourceLocation::here());
/// x without its dimensions of size 1 (all of them, or `dim` if it has size 1).
TD_API Tensor squeeze(Tensor x, SourceLocation loc = SourceLocation::here());
TD_API Tensor squeeze(Tensor x, int64_t dim, SourceLocation loc = SourceLocation::here());
TD_API Tensor squeeze(Tensor x, IntList dims, SourceLocation loc = SourceLocation::here());
/// x with a new dimension of size 1 at `dim` (-rank-1..rank).
TD_API Tensor unsqueeze(Tensor x, int64_t dim, SourceLocation loc = SourceLocation::here());
/// Dimensions of size 1 repeated to `shape`, without copying; -1 keeps a size.
TD_API Tensor expand(Tensor x, Shape shape, SourceLocation loc = SourceLocation::here());
TD_API Tensor expand_as(Tensor x, const Tensor& other, SourceLocation loc = SourceLocation::here());
TD_API Tensor broadcast_to(Tensor x, Shape shape, SourceLocation loc = SourceLocation::here());
/// All tensors expanded to their common shape.
TD_API std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& xs,
                                             SourceLocation loc = SourceLocation::here());
/// x[start:end:step] along `dim`; ends may be negative and beyond the size; step > 0.
TD_API Tensor slice(Tensor x, int64_t dim, int64_t start, int64_t end = Slice::kEnd,
                    int64_t step = 1, SourceLocation loc = SourceLocation::here());
/// `length` elements from `start` (may be negative) along `dim`; throws Index outside.
TD_API Tensor narrow(Tensor x, int64_t dim, Dim start, Dim length,
                     SourceLocation loc = SourceLocation::here());
/// Element `index` (may be negative) of `dim`, which is removed; throws Index outside.
TD_API Tensor select(Tensor x, int64_t dim, int64_t index,
                     SourceLocation loc = SourceLocation::here());
/// Pieces of `size` along `dim` (the last may be smaller), of given sizes, or `chunks` pieces.
TD_API std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0,
                                 SourceLocation loc = SourceLocation::here());
TD_API std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes,
                                 int64_t dim = 0, SourceLocation loc = SourceLocation::here());
TD_API std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0,
                                 SourceLocation loc = SourceLocation::here());
/// The slices of `dim`, without that dimension.
TD_API std::vector<Tensor> unbind(const Tensor& x, int64_t dim = 0,
                                  SourceLocation loc = SourceLocation::here());
/// The diagonal of dimensions dim1 and dim2 as a new last dimension.
TD_API Tensor diagonal(Tensor x, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1,
                       SourceLocation loc = SourceLocation::here());
/// Windows of `size` every `step` elements of `dim`, as a new last dimension.
TD_API Tensor unfold(Tensor x, int64_t dim, int64_t size, int64_t step,
                     SourceLocation loc = SourceLocation::here());

// ---- copies
// The same values, dense in row-major order; `x` itself if it already is.
TD_API Tensor contiguous(Tensor x, SourceLocation loc = SourceLocation::here());
/// The same values in new memory.
TD_API Tensor clone(const Tensor& x, SourceLocation loc = SourceLocation::here());
/// Concatenate along an existing dimension. Other sizes must be equal; dtypes are promoted; a
/// tensor of shape [0] is skipped. Throws Value on an empty list.
TD_API Tensor cat(const std::vector<Tensor>& xs, int64_t dim = 0,
                  SourceLocation loc = SourceLocation::here());
TD_API Tensor concat(const std::vector<Tensor>& xs, int64_t dim = 0,
                     SourceLocation loc = SourceLocation::here());
/// Stack along a new dimension; all shapes must be equal.
TD_API Tensor stack(const std::vector<Tensor>& xs, int64_t dim = 0,
                    SourceLocation loc = SourceLocation::here());
/// `pad` holds (before, after) for the last dimension, then the one before it, up to four
/// dimensions; negative numbers crop. mode: constant, reflect, replicate, circular.
TD_API Tensor pad(Tensor x, IntList pad, std::string_view mode = "constant", Scalar value = 0,
                  SourceLocation loc = SourceLocation::here());
/// Elements in reverse order along `dims`.
TD_API Tensor flip(const Tensor& x, IntList dims, SourceLocation loc = SourceLocation::here());
/// Elements shifted cyclically by `shifts` along `dims`; without dims rolled as if flat.
TD_API Tensor roll(const Tensor& x, IntList shifts, IntList dims = {},
                   SourceLocation loc = SourceLocation::here());
/// Rotated `k` times by 90 degrees from dims[0] towards dims[1].
TD_API Tensor rot90(const Tensor& x, int64_t k = 1, IntList dims = {0, 1},
                    SourceLocation loc = SourceLocation::here());
/// Lower (upper) triangle of the last two dimensions, zero elsewhere.
TD_API Tensor tril(Tensor x, int64_t diagonal = 0, SourceLocation loc = SourceLocation::here());
TD_API Tensor triu(Tensor x, int64_t diagonal = 0, SourceLocation loc = SourceLocation::here());
/// A square matrix with `x` [n] on its diagonal, or the diagonal of a matrix.
TD_API Tensor diag(Tensor x, int64_t diagonal = 0, SourceLocation loc = SourceLocation::here());
/// The whole tensor repeated repeats[i] times along dimension i (new dimensions in front).
TD_API Tensor repeat(Tensor x, IntList repeats, SourceLocation loc = SourceLocation::here());
TD_API Tensor tile(Tensor x, IntList dims, SourceLocation loc = SourceLocation::here());
/// Each element repeated along `dim`; with a tensor, element i is repeated repeats[i] times.
TD_API Tensor repeat_interleave(Tensor x, int64_t repeats, int64_t dim,
                                SourceLocation loc = SourceLocation::here());
TD_API Tensor repeat_interleave(Tensor x, const Tensor& repeats, int64_t dim,
                                SourceLocation loc = SourceLocation::here());
/// Coordinate grids of vectors. indexing: "ij" or "xy".
TD_API std::vector<Tensor> meshgrid(const std::vector<Tensor>& xs, std::string_view indexing = "ij",
                                    SourceLocation loc = SourceLocation::here());
/// [*, c*r*r, h, w] -> [*, c, h*r, w*r], and back.
TD_API Tensor pixel_shuffle(Tensor x, int64_t upscale_factor,
                            SourceLocation loc = SourceLocation::here());
TD_API Tensor pixel_unshuffle(Tensor x, int64_t downscale_factor,
                              SourceLocation loc = SourceLocation::here());
/// Channels of x [n, c, ...] interleaved: c as [groups, c / groups] transposed.
TD_API Tensor channel_shuffle(Tensor x, int64_t groups,
                              SourceLocation loc = SourceLocation::here());

// ---- rows
struct PermuteAttrs {
  IntList dims;
  template <class V>
  void fields(V& v) {
    v("dims", dims);
  }
};
/// `length` elements of `dim`: start, start + step, ... (start not negative, step > 0).
struct SliceAttrs {
  int64_t dim = 0;
  IntList range;  ///< start, length, step
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("range", range);
  }
};
struct SelectAttrs {
  int64_t dim = 0;
  IntList index;  ///< one Dim, not negative
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("index", index);
  }
};
struct DiagonalAttrs {
  int64_t offset = 0, dim1 = 0, dim2 = 1;
  IntList shape;  ///< of the input; read by the derivative's row
  template <class V>
  void fields(V& v) {
    v("offset", offset);
    v("dim1", dim1);
    v("dim2", dim2);
    v("shape", shape);
  }
};
struct UnfoldAttrs {
  int64_t dim = 0, size = 1, step = 1;
  IntList shape;  ///< of the input; read by the derivative's row
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("size", size);
    v("step", step);
    v("shape", shape);
  }
};
/// Zeros of `shape` with a slice written over.
struct SliceBackwardAttrs {
  IntList shape;
  int64_t dim = 0;
  IntList range;
  template <class V>
  void fields(V& v) {
    v("shape", shape);
    v("dim", dim);
    v("range", range);
  }
};
struct DimAttrs {
  int64_t dim = 0;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
  }
};
struct PadAttrs {
  IntList before, after;  ///< one per dimension; negative crops
  Scalar value;
  template <class V>
  void fields(V& v) {
    v("before", before);
    v("after", after);
    v("value", value);
  }
};
struct RollAttrs {
  IntList shifts, dims;
  template <class V>
  void fields(V& v) {
    v("shifts", shifts);
    v("dims", dims);
  }
};
struct TriAttrs {
  int64_t diagonal = 0;
  template <class V>
  void fields(V& v) {
    v("diagonal", diagonal);
  }
};

namespace op {
// `view` and `copy` are declared in graph/apply.h.
extern TD_API const OpDef permute, expand, slice, select, diagonal, unfold, slice_backward,
    diagonal_backward, unfold_backward, cat, pad, flip, roll, tril, triu;
}  // namespace op

/// The rows of this family.
TD_API std::span<const OpDef* const> view_rows();

}  // namespace tandem
