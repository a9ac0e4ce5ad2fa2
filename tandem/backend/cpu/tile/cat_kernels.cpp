// SPDX-License-Identifier: Apache-2.0
// Concatenation and padding of images as the convolutions before them leave these: channels stay
// innermost where most elements come so, in place of a transposition here and another one before
// the next convolution. The loops are the rows' own.
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/graph/kernel.h"
#include "tandem/ops/view/view.h"

namespace tandem::detail {
namespace {

void run_cat(const KernelCall& c) { op::cat.reference_fn(c); }
void run_pad(const KernelCall& c) { op::pad.reference_fn(c); }

}  // namespace

void register_cat_kernels() {
  register_kernel(DeviceKind::cpu, op::cat, {nullptr, keep_most_channels_last, nullptr, run_cat});
  register_kernel(DeviceKind::cpu, op::pad, {nullptr, keep_most_channels_last, nullptr, run_pad});
}

}  // namespace tandem::detail
