// SPDX-License-Identifier: Apache-2.0
// Stacking by direction, splitting into nearly equal parts, and small changes of shape, with
// PyTorch's names. All are composed of the functions of view.h.
#pragma once

#include <vector>

#include "tandem/graph/apply.h"

namespace tandem {

/// x as at least one (two, three) dimensions: 0-d becomes [1], [1, 1], [1, 1, 1]; a vector [n]
/// becomes [1, n], [1, n, 1]; a matrix [m, n] becomes [m, n, 1].
TD_API Tensor atleast_1d(Tensor x, SourceLocation loc = SourceLocation::here());
TD_API Tensor atleast_2d(Tensor x, SourceLocation loc = SourceLocation::here());
TD_API Tensor atleast_3d(Tensor x, SourceLocation loc = SourceLocation::here());
TD_API std::vector<Tensor> atleast_1d(const std::vector<Tensor>& xs,
                                      SourceLocation loc = SourceLocation::here());
TD_API std::vector<Tensor> atleast_2d(const std::vector<Tensor>& xs,
                                      SourceLocation loc = SourceLocation::here());
TD_API std::vector<Tensor> atleast_3d(const std::vector<Tensor>& xs,
                                      SourceLocation loc = SourceLocation::here());

/// Side by side (vectors end to end), one below the other, one after the other.
TD_API Tensor hstack(const std::vector<Tensor>& xs, SourceLocation loc = SourceLocation::here());
TD_API Tensor vstack(const std::vector<Tensor>& xs, SourceLocation loc = SourceLocation::here());
TD_API Tensor dstack(const std::vector<Tensor>& xs, SourceLocation loc = SourceLocation::here());
/// hstack in which vectors are columns.
TD_API Tensor column_stack(const std::vector<Tensor>& xs,
                           SourceLocation loc = SourceLocation::here());

/// `sections` parts along `dim`, of which the first are one longer where the size is not a
/// multiple; or parts that begin at 0 and at the indices (a slice each, so indices beyond the size
/// give empty parts).
TD_API std::vector<Tensor> tensor_split(const Tensor& x, int64_t sections, int64_t dim = 0,
                                        SourceLocation loc = SourceLocation::here());
TD_API std::vector<Tensor> tensor_split(const Tensor& x, const std::vector<int64_t>& indices,
                                        int64_t dim = 0,
                                        SourceLocation loc = SourceLocation::here());
/// tensor_split along columns (elements of a vector), rows and the third dimension. A number of
/// sections must divide the size; throws Shape.
TD_API std::vector<Tensor> hsplit(const Tensor& x, int64_t sections,
                                  SourceLocation loc = SourceLocation::here());
TD_API std::vector<Tensor> hsplit(const Tensor& x, const std::vector<int64_t>& indices,
                                  SourceLocation loc = SourceLocation::here());
TD_API std::vector<Tensor> vsplit(const Tensor& x, int64_t sections,
                                  SourceLocation loc = SourceLocation::here());
TD_API std::vector<Tensor> vsplit(const Tensor& x, const std::vector<int64_t>& indices,
                                  SourceLocation loc = SourceLocation::here());
TD_API std::vector<Tensor> dsplit(const Tensor& x, int64_t sections,
                                  SourceLocation loc = SourceLocation::here());
TD_API std::vector<Tensor> dsplit(const Tensor& x, const std::vector<int64_t>& indices,
                                  SourceLocation loc = SourceLocation::here());

/// All elements as a vector.
TD_API Tensor ravel(Tensor x, SourceLocation loc = SourceLocation::here());
/// Columns (rows) in reverse order: flip along dimension 1 (0). Throws Shape without that
/// dimension.
TD_API Tensor fliplr(const Tensor& x, SourceLocation loc = SourceLocation::here());
TD_API Tensor flipud(const Tensor& x, SourceLocation loc = SourceLocation::here());
/// Matrices transposed: the last two dimensions exchanged.
TD_API Tensor adjoint(Tensor x, SourceLocation loc = SourceLocation::here());
/// x in the shape of `other`.
TD_API Tensor reshape_as(Tensor x, const Tensor& other,
                         SourceLocation loc = SourceLocation::here());

}  // namespace tandem
