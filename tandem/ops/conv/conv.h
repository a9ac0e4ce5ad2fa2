// SPDX-License-Identifier: Apache-2.0
// Convolution in one to three dimensions: one row `conv` and the two rows of its derivative, each
// of which has a derivative in terms of the other two. Attributes are always complete lists.
#pragma once

#include "tandem/graph/op_def.h"

namespace tandem {

/// Attributes of `conv`, `conv_backward_input` and `conv_backward_weight`. All lists have one entry
/// per spatial dimension (d); the functions below fill them in.
struct ConvAttrs {
  IntList stride, padding, dilation;
  int64_t groups = 1;
  /// Padding at the end; `padding` is the one at the start. Never empty.
  IntList padding_end;
  /// Spatial size of a backward row's result: that of x or of w. Empty for `conv`.
  IntList size;
  template <class V>
  void fields(V& v) {
    v("stride", stride);
    v("padding", padding);
    v("dilation", dilation);
    v("groups", groups);
    v("padding_end", padding_end);
    v("size", size);
  }
};

namespace op {
/// conv: x [n, c, ...d], w [o, c/groups, ...k], b? [o] -> y [n, o, ...].
/// conv_backward_input: gy [n, o, ...], w -> gx [n, c, ...size].
/// conv_backward_weight: x, gy -> gw [o, c/groups, ...size].
extern TD_API const OpDef conv, conv_backward_input, conv_backward_weight;
}  // namespace op
TD_API std::span<const OpDef* const> conv_rows();

/// "same" or "valid" as padding. A number does not convert: `conv2d(x, w, b, 1, 0)` means a size.
class PaddingMode {
 public:
  template <class S>
    requires(std::convertible_to<const S&, std::string_view> && !std::integral<S>)
  PaddingMode(const S& text) : text_(text) {}
  std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

/// Convolution of x [n, c, l] (or [c, l]) with w [o, c/groups, k]; sizes are one number or a list,
/// `conv2d(x, w, b, 2)`, `conv2d(x, w, b, {2, 1})`. Throws Shape, DType, Value.
TD_API Tensor conv1d(Tensor x, Tensor w, Tensor b = {}, IntList stride = {1}, IntList padding = {0},
                     IntList dilation = {1}, int64_t groups = 1,
                     SourceLocation loc = SourceLocation::here());
/// Convolution of x [n, c, h, w] (or [c, h, w]) with w [o, c/groups, kh, kw]. A list with one entry
/// applies to all spatial dimensions.
TD_API Tensor conv2d(Tensor x, Tensor w, Tensor b = {}, IntList stride = {1}, IntList padding = {0},
                     IntList dilation = {1}, int64_t groups = 1,
                     SourceLocation loc = SourceLocation::here());
/// Convolution of x [n, c, d, h, w] (or [c, d, h, w]) with w [o, c/groups, kd, kh, kw].
TD_API Tensor conv3d(Tensor x, Tensor w, Tensor b = {}, IntList stride = {1}, IntList padding = {0},
                     IntList dilation = {1}, int64_t groups = 1,
                     SourceLocation loc = SourceLocation::here());
/// padding "valid" (none) or "same" (output as large as the input; requires stride 1; an odd
/// remainder goes to the end).
TD_API Tensor conv1d(Tensor x, Tensor w, Tensor b, IntList stride, PaddingMode padding,
                     IntList dilation = {1}, int64_t groups = 1,
                     SourceLocation loc = SourceLocation::here());
TD_API Tensor conv2d(Tensor x, Tensor w, Tensor b, IntList stride, PaddingMode padding,
                     IntList dilation = {1}, int64_t groups = 1,
                     SourceLocation loc = SourceLocation::here());
TD_API Tensor conv3d(Tensor x, Tensor w, Tensor b, IntList stride, PaddingMode padding,
                     IntList dilation = {1}, int64_t groups = 1,
                     SourceLocation loc = SourceLocation::here());
/// The gradient of a convolution by its input, as a layer: x [n, c, ...], w [c, o/groups, ...k] ->
/// [n, o, (size - 1) * stride - 2 * padding + dilation * (k - 1) + output_padding + 1].
TD_API Tensor conv_transpose1d(Tensor x, Tensor w, Tensor b = {}, IntList stride = {1},
                               IntList padding = {0}, IntList output_padding = {0},
                               int64_t groups = 1, IntList dilation = {1},
                               SourceLocation loc = SourceLocation::here());
TD_API Tensor conv_transpose2d(Tensor x, Tensor w, Tensor b = {}, IntList stride = {1},
                               IntList padding = {0}, IntList output_padding = {0},
                               int64_t groups = 1, IntList dilation = {1},
                               SourceLocation loc = SourceLocation::here());
TD_API Tensor conv_transpose3d(Tensor x, Tensor w, Tensor b = {}, IntList stride = {1},
                               IntList padding = {0}, IntList output_padding = {0},
                               int64_t groups = 1, IntList dilation = {1},
                               SourceLocation loc = SourceLocation::here());
/// The rows as functions.
TD_API Tensor conv(Tensor x, Tensor w, Tensor b, const ConvAttrs& attrs,
                   SourceLocation loc = SourceLocation::here());
TD_API Tensor conv_backward_input(Tensor gy, Tensor w, const ConvAttrs& attrs,
                                  SourceLocation loc = SourceLocation::here());
TD_API Tensor conv_backward_weight(Tensor x, Tensor gy, const ConvAttrs& attrs,
                                   SourceLocation loc = SourceLocation::here());

}  // namespace tandem
