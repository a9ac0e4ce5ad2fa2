// SPDX-License-Identifier: Apache-2.0
// Images [n, c, ...] whose channels are innermost in memory, as fast convolutions have them. Nobody
// asks for that order: a convolution gives it (Kernel::layout), pointwise rows keep the order of
// their inputs, and kernels of other rows of images keep it by the functions below. So eager calls
// and compiled programs alike have it between convolutions without a word in the program.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem::detail {

/// Whether the strides are those of a dense array whose channels (dimension 1) are innermost.
/// Dimensions of size 1 are ignored.
TD_API bool is_channels_last(const Array& a);
/// Channels-last strides of a shape [n, c, ...].
TD_API Strides channels_last_strides(const int64_t* shape, int rank);

/// Whether x is an image, or a part of one, whose channels are innermost.
TD_API bool channels_innermost(const Array& x);

/// Kernel::layout: outputs are channels-last where that input is.
template <int input>
bool keep_channels_last(const KernelCall& c, int output, Strides& strides) {
  if (!is_channels_last(c.in[input])) return false;
  strides = channels_last_strides(c.out[output].shape, c.out[output].rank);
  return true;
}
/// Kernel::layout of rows that take any order: where most elements of the inputs have their
/// channels innermost, parts of larger images among them.
TD_API bool keep_most_channels_last(const KernelCall& c, int output, Strides& strides);

}  // namespace tandem::detail
