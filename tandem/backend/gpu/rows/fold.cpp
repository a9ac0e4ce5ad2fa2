// SPDX-License-Identifier: Apache-2.0
// Patches and windows: im2col, col2im and the derivative of unfold. A thread an element of the
// result; where several elements are added to one, in the order of the row's reference.
#include "tandem/ops/conv/fold.h"
#include "tandem/backend/gpu/rows/dense_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/view/view.h"

namespace tandem::gpu {
namespace {

// Sizes of the image and of the places of its patches.
void number_patches(DenseCall& call, const FoldAttrs& a, const Array& image) {
  static constexpr const char* kNames[2][6] = {{"in_h", "k_h", "dil_h", "pad_h", "by_h", "out_h"},
                                               {"in_w", "k_w", "dil_w", "pad_w", "by_w", "out_w"}};
  for (int i = 0; i < 2; ++i) {
    const int64_t in = image.shape[i + 2], k = a.kernel[i].value(), dil = a.dilation[i].value();
    const int64_t pad = a.padding[i].value(), by = a.stride[i].value();
    const int64_t all[] = {in, k, dil, pad, by, (in + 2 * pad - dil * (k - 1) - 1) / by + 1};
    for (int n = 0; n < 6; ++n) call.number(kNames[i][n], all[n]);
  }
}

constexpr DenseKernel kIm2col{.name = "im2col", .body = {R"td_text(
  const td_i64 place = me % (out_h * out_w), row = me / (out_h * out_w);
  const td_i64 tap = row % (k_h * k_w), plane = row / (k_h * k_w);
  const td_i64 h = place / out_w * by_h - pad_h + tap / k_w * dil_h;
  const td_i64 w = place % out_w * by_w - pad_w + tap % k_w * dil_w;
  TI0 v = 0;
  if (h >= 0 && h < in_h && w >= 0 && w < in_w) v = I0((plane * in_h + h) * in_w + w);
  P0(me, v);
)td_text"}};

// Floating numbers are added in their registers and rounded once.
constexpr DenseKernel kCol2im{.name = "col2im", .body = {R"td_text(
  const td_i64 w = me % in_w, h = me / in_w % in_h, plane = me / in_w / in_h;
  TO0 sum = 0;
  for (td_i64 tap = 0; tap < k_h * k_w; ++tap) {
    const td_i64 y = h + pad_h - tap / k_w * dil_h, x = w + pad_w - tap % k_w * dil_w;
    const td_i64 oh = y / by_h, ow = x / by_w;
    if (y < 0 || x < 0 || oh * by_h != y || ow * by_w != x || oh >= out_h || ow >= out_w) continue;
    sum = ADD0(sum, I0(((plane * k_h * k_w + tap) * out_h + oh) * out_w + ow));
  }
  P0(me, sum);
)td_text"}};

void run_im2col(const KernelCall& c) {
  DenseCall call(c);
  number_patches(call, c.get_attrs<FoldAttrs>(), c.in[0]);
  call.run(kIm2col, c.out[0].numel);
}
void run_col2im(const KernelCall& c) {
  DenseCall call(c);
  number_patches(call, c.get_attrs<FoldAttrs>(), c.out[0]);
  call.run(kCol2im, c.out[0].numel);
}

// g is [outer, windows, inner, size], the result [outer, n, inner]; every sum is rounded.
constexpr DenseKernel kUnfoldBackward{.name = "unfold_backward", .body = {R"td_text(
  const td_i64 j = me % inner, at = me / inner % n, o = me / inner / n;
  const td_i64 from = at >= size ? (at - size) / by + 1 : 0;
  P0(me, 0);
  for (td_i64 w = from; w < windows && w * by <= at; ++w) {
    P0(me, ADD0(O0(me), I0(((o * windows + w) * inner + j) * size + at - w * by)));
  }
)td_text"}};

void run_unfold_backward(const KernelCall& c) {
  const auto& a = c.get_attrs<UnfoldAttrs>();
  const Array &g = c.in[0], &y = c.out[0];
  const int d = normalize_dim(a.dim, y.rank);
  int64_t inner = 1;
  for (int i = d + 1; i < y.rank; ++i) inner *= y.shape[i];
  DenseCall call(c);
  call.number("n", y.shape[d]).number("windows", g.shape[d]).number("inner", inner);
  call.number("size", a.size).number("by", a.step).run(kUnfoldBackward, y.numel);
}

}  // namespace

void register_fold(DeviceKind kind) {
  register_kernel(kind, op::im2col, {has_types, nullptr, prepare_dense, run_im2col});
  register_kernel(kind, op::col2im, {has_types, nullptr, prepare_dense, run_col2im});
  register_kernel(kind, op::unfold_backward,
                  {has_types, nullptr, prepare_dense, run_unfold_backward});
}

}  // namespace tandem::gpu
