// SPDX-License-Identifier: Apache-2.0
// Concatenation and padding of images as the convolutions before them leave these: channels stay
// innermost where most elements come so, in place of a transposition here and another one before
// the next convolution. The loops are the rows' own.
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/graph/kernel.h"
#include "tandem/ops/view/view.h"

namespace tandem::detail {
namespace {

// Whether x is an image, or a part of one, whose channels (dimension 1) are innermost.
bool channels_innermost(const Array& x) {
  if (x.rank < 3 || x.contiguous || !x.strides || x.strides[1] != 1) return false;
  int64_t inner = x.shape[1];
  for (int k = 0; k + 1 < x.rank; ++k) {
    const int d = k + 2 < x.rank ? x.rank - 1 - k : 0;
    if (x.shape[d] != 1 && x.strides[d] < inner) return false;
    inner = x.shape[d] == 1 ? inner : x.strides[d] * x.shape[d];
  }
  return true;
}

bool layout(const KernelCall& c, int output, Strides& strides) {
  int64_t last = 0, all = 0;
  for (int i = 0; i < c.n_in; ++i) {
    all += c.in[i].numel;
    if (channels_innermost(c.in[i])) last += c.in[i].numel;
  }
  if (2 * last <= all) return false;
  strides = channels_last_strides(c.out[output].shape, c.out[output].rank);
  return true;
}

void run_cat(const KernelCall& c) { op::cat.reference_fn(c); }
void run_pad(const KernelCall& c) { op::pad.reference_fn(c); }

}  // namespace

void register_cat_kernels() {
  register_kernel(DeviceKind::cpu, op::cat, {nullptr, layout, nullptr, run_cat});
  register_kernel(DeviceKind::cpu, op::pad, {nullptr, layout, nullptr, run_pad});
}

}  // namespace tandem::detail
