// SPDX-License-Identifier: Apache-2.0
// Views by strides, and writing through a view: x with the elements of a source in the places that
// a slice, a diagonal or strides name. Nothing is written in place. PyTorch's names and arguments.
#pragma once

#include <optional>
#include <vector>

#include "tandem/graph/apply.h"

namespace tandem {

/// The elements of x in row-major order, read at storage_offset + the sum of index[d] * stride[d].
/// Places may repeat. Throws Shape unless size and stride have one length, Index if a place lies
/// outside x. (PyTorch reads x's storage, which is the same for a contiguous x.)
TD_API Tensor as_strided(const Tensor& x, IntList size, IntList stride, int64_t storage_offset = 0,
                         SourceLocation loc = SourceLocation::here());
/// x with `src` written to those places.
TD_API Tensor as_strided_scatter(const Tensor& x, const Tensor& src, IntList size, IntList stride,
                                 int64_t storage_offset = 0,
                                 SourceLocation loc = SourceLocation::here());
/// x with `src` written over x[start:end:step] along `dim`; src has the slice's shape.
TD_API Tensor slice_scatter(const Tensor& x, const Tensor& src, int64_t dim = 0,
                            std::optional<int64_t> start = {}, std::optional<int64_t> end = {},
                            int64_t step = 1, SourceLocation loc = SourceLocation::here());
/// x with `src` written over element `index` of `dim`.
TD_API Tensor select_scatter(const Tensor& x, const Tensor& src, int64_t dim, int64_t index,
                             SourceLocation loc = SourceLocation::here());
/// x with `src` written over a diagonal of dimensions dim1 and dim2.
TD_API Tensor diagonal_scatter(const Tensor& x, const Tensor& src, int64_t offset = 0,
                               int64_t dim1 = 0, int64_t dim2 = 1,
                               SourceLocation loc = SourceLocation::here());

/// Coordinates of the nonzero elements, i64 [count, rank]. Reads values.
TD_API Tensor argwhere(const Tensor& x, SourceLocation loc = SourceLocation::here());
/// The first `size` of them; missing rows are filled with `fill_value`. Works in a trace.
TD_API Tensor nonzero_static(const Tensor& x, int64_t size, int64_t fill_value = -1,
                             SourceLocation loc = SourceLocation::here());
/// Flat positions in a tensor of `shape` as one tensor of coordinates per dimension. Throws Shape
/// for an empty shape, DType unless the indices are integers.
TD_API std::vector<Tensor> unravel_index(const Tensor& indices, IntList shape,
                                         SourceLocation loc = SourceLocation::here());

}  // namespace tandem
