// SPDX-License-Identifier: Apache-2.0
// Convolutions by the library of the device's vendor (conv_by_library.cpp), beside the own kernels
// (conv.cpp) that run what it does not take.
#pragma once

#include "tandem/backend/gpu/conv_library.h"
#include "tandem/backend/gpu/rows/call_internal.h"

namespace tandem::gpu {

/// The operands of a call of conv or of one of its derivative rows, by their part in y = conv(x,
/// w).
struct ConvArrays {
  const Array *x, *w, *y, *bias = nullptr;
};
ConvArrays arrays_of_conv(const KernelCall& c, ConvResult result);

/// Kernel::layout of conv and of the gradient of its input.
bool conv_layout(const KernelCall& c, int output, Strides& strides);
std::shared_ptr<const Plan> plan_conv(const KernelCall& c, ConvResult result);
/// False: own kernels must run this call.
bool run_conv_by_library(const KernelCall& c, ConvResult result);

}  // namespace tandem::gpu
