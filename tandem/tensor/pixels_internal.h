// SPDX-License-Identifier: Apache-2.0
// Pictures whose pixels keep their channels together, as decoders write them and resizing likes
// them: bytes [h, w, c], shown as u8 [c, h, w]. Not installed.
#pragma once

#include "tandem/tensor/tensor.h"

namespace tandem::detail {

/// Uninitialised u8 [c, h, w] of that layout (of one channel it is row-major).
Tensor new_pixels(int64_t channels, int64_t height, int64_t width);
/// Whether `t` is u8 [c, h, w] of that layout, with more than one channel.
bool is_pixels(const Tensor& t);

/// Bytes [pixels, channels] to the same place of each of `channels` planes, `plane` bytes apart.
void to_planes(const uint8_t* from, uint8_t* to, int64_t pixels, int64_t channels, int64_t plane);

}  // namespace tandem::detail
