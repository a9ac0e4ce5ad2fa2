// SPDX-License-Identifier: Apache-2.0
// Images through system libraries, which are opened when the first such image is read: programs
// that never read one do not need them. One file each: webp.cpp, tiff.cpp, jpeg2000.cpp; this file
// has the shared parts.
#pragma once

#include <array>

#include "tandem/io/image.h"

namespace tandem::io {

/// True if the bytes start such a file.
bool is_webp(std::string_view bytes);
bool is_tiff(std::string_view bytes);
bool is_jpeg2000(std::string_view bytes);

/// u8 [c, h, w]. Throws Format; Unsupported where libwebp.so.7 is not installed.
Tensor decode_webp(std::string_view bytes, const ReadImageOptions& options, std::string_view name);
/// The first page, rotated as its orientation tag says, samples of other widths converted to 8
/// bits. Throws Format; Unsupported where libtiff.so.6 is not installed.
Tensor decode_tiff(std::string_view bytes, const ReadImageOptions& options, std::string_view name);
/// JP2 files and bare codestreams. Throws Format; Unsupported where libopenjp2.so.7 is not
/// installed.
Tensor decode_jpeg2000(std::string_view bytes, const ReadImageOptions& options,
                       std::string_view name);

/// Decoded pixels in memory.
struct Pixels {
  const uint8_t* data;
  int64_t width, height;
  int64_t channels;                            ///< 1 gray, 2 gray and alpha, 3, 4
  int64_t stride;                              ///< bytes from pixel to pixel
  std::array<uint8_t, 4> at = {{0, 1, 2, 3}};  ///< where each channel lies in a pixel
};
/// The pixels converted to `mode`, as u8 [c, h, w].
Tensor image_of_pixels(const Pixels& pixels, ImageMode mode);

/// Throws Format for a size of 0 and for more pixels than are allowed.
void check_image_size(int64_t width, int64_t height, int64_t limit, std::string_view name);
}  // namespace tandem::io
