// SPDX-License-Identifier: Apache-2.0
// Image patches as columns and back: im2col and col2im, each the other's derivative. PyTorch's
// torch.nn.functional.unfold and fold (`unfold` here is the tensor's method).
#pragma once

#include "tandem/graph/op_def.h"

namespace tandem {

/// Attributes of im2col and col2im; lists have two entries.
struct FoldAttrs {
  IntList kernel, dilation, padding, stride;
  IntList size;  ///< for col2im: [h, w] of its result
  template <class V>
  void fields(V& v) {
    v("kernel", kernel);
    v("dilation", dilation);
    v("padding", padding);
    v("stride", stride);
    v("size", size);
  }
};

namespace op {
/// im2col: x [n, c, h, w] -> y [n, c * kh * kw, places]. col2im: its transpose, sums patches.
extern TD_API const OpDef im2col, col2im;
}  // namespace op
TD_API std::span<const OpDef* const> fold_rows();

/// Every patch of x [n, c, h, w] (or [c, h, w]) as a column: [n, c * kh * kw, positions],
/// row-major. A list with one entry applies to both dimensions. Throws Shape, Value.
TD_API Tensor im2col(Tensor x, IntList kernel_size, IntList dilation = {1}, IntList padding = {0},
                     IntList stride = {1}, SourceLocation loc = SourceLocation::here());
/// Columns [n, c * kh * kw, positions] summed into images [n, c, *output_size].
TD_API Tensor col2im(Tensor x, IntList output_size, IntList kernel_size, IntList dilation = {1},
                     IntList padding = {0}, IntList stride = {1},
                     SourceLocation loc = SourceLocation::here());
/// col2im under PyTorch's name.
TD_API Tensor fold(Tensor x, IntList output_size, IntList kernel_size, IntList dilation = {1},
                   IntList padding = {0}, IntList stride = {1},
                   SourceLocation loc = SourceLocation::here());

}  // namespace tandem
