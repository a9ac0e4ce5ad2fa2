// SPDX-License-Identifier: Apache-2.0
// Images with interleaved channels, as decoders write them and resizing prefers them: bytes [h, w,
// c], viewed as u8 [c, h, w]. Not installed.
#pragma once

#include "tandem/tensor/tensor.h"

namespace tandem::detail {

/// Uninitialised u8 [c, h, w] in that layout (with one channel it is row-major).
Tensor new_pixels(int64_t channels, int64_t height, int64_t width);
/// Whether `t` is u8 [c, h, w] in that layout, with more than one channel.
bool is_pixels(const Tensor& t);

/// Copies bytes [pixels, channels] to `channels` planes, `plane` bytes apart.
void to_planes(const uint8_t* from, uint8_t* to, int64_t pixels, int64_t channels, int64_t plane);

}  // namespace tandem::detail
