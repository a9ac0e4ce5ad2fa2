// SPDX-License-Identifier: Apache-2.0
// bf16 activations as rows of channels, one a pixel.
#pragma once

#include "tandem/backend/cpu/conv/conv_internal.h"

namespace tandem::detail {

/// An activation as it lies, or copied channels-last.
struct Pixels {
  bool copied = false;
  size_t at = 0;     ///< the copy in scratch
  int64_t step = 0;  ///< between pixels
};

/// Adds the room of a copy to `workspace` where one is needed. A slice of the channels of a
/// channels-last array needs none.
Pixels pixels_of(const Array& a, size_t& workspace);
/// Of a call of op::conv_backward_weight.
ConvSizes weight_sizes(const KernelCall& c);
/// Input i of the call as `p` says; copies it if it must be.
const uint16_t* read_pixels(const KernelCall& c, int i, const Pixels& p);

}  // namespace tandem::detail
