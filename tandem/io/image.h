// SPDX-License-Identifier: Apache-2.0
// Reads and writes images: JPEG through libjpeg-turbo, PNG through libpng and, where libwebp,
// libtiff and OpenJPEG are installed, WebP, TIFF and JPEG 2000 (read only), as u8 tensors [c, h,
// w]. Damaged and hostile files give a Format error naming the file; sizes are checked before
// anything large is allocated.
#pragma once

#include <string>
#include <string_view>

#include "tandem/base/budget.h"
#include "tandem/base/files/file.h"
#include "tandem/tensor/tensor.h"

namespace tandem::io {

enum class ImageMode : uint8_t {
  unchanged,  ///< 1 (gray), 2 (gray and alpha), 3 or 4 channels, as in the file
  gray,
  rgb,
};

struct ReadImageOptions {
  ImageMode mode = ImageMode::rgb;
  /// Most pixels; a larger image throws Format before it is decoded.
  int64_t limit = int64_t{1} << 28;
  /// If both are set, a JPEG is decoded at 1/8, 1/4 or 1/2, to the smallest size that has at least
  /// this height and width: cheaper than decoding it whole before a resize. (Other eighths are no
  /// faster: the decoder has vector code only for these.)
  int64_t min_height = 0, min_width = 0;
  /// What reading it may cost: pixels that compress well make a small file a large image.
  BudgetLimits limits = {};
};

/// A JPEG, PNG, WebP, TIFF (its first page) or JPEG 2000 file, recognised by its first bytes, as u8
/// [c, h, w]. A JPEG or PNG may have the channels of a pixel adjacent in memory (strides 1, w * c,
/// c; contiguous() gives planes). 16-bit samples are reduced to 8 bits. Throws Io, Format;
/// Unsupported where the library that reads WebP, TIFF or JPEG 2000 is not installed.
TD_API Tensor read_image(const FilePath& path, const ReadImageOptions& options = {});
/// The same for bytes in memory; `name` is used in messages.
TD_API Tensor decode_image(std::string_view bytes, const ReadImageOptions& options = {},
                           std::string_view name = "image");
/// Encode [h, w] or [c, h, w] with 1 to 4 channels as a PNG file: u8, or a floating dtype with
/// values in 0..1 (others are clamped). Throws Shape, DType.
TD_API std::string encode_png(const Tensor& image);
/// The same, written to a file, all or nothing. Throws Io too.
TD_API void save_png(const Tensor& image, const FilePath& path);

}  // namespace tandem::io
