// SPDX-License-Identifier: Apache-2.0
// ONNX's ImageDecoder: JPEG, PNG, WebP, TIFF, JPEG 2000, BMP and PNM to [h, w, c].
#include "tandem/io/image/plain.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

void image_decoder(OnnxCall& c) {
  const Tensor encoded = c.x(0).contiguous();
  TD_CHECK(c.type(0) == OnnxType::u8, DType, "expected bytes, got {}", c.value(0).describe());
  const std::string_view bytes(reinterpret_cast<const char*>(encoded.data<uint8_t>()),
                               static_cast<size_t>(encoded.numel()));
  const std::string format = c.attr_choice("pixel_format", "RGB", {"RGB", "BGR", "Grayscale"});
  const bool gray = format == "Grayscale";
  io::ReadImageOptions options;
  options.mode = io::ImageMode::rgb;
  Tensor y = io::is_plain_image(bytes) ? io::decode_plain_image(bytes, options)
                                       : io::decode_image(bytes, options);
  if (y.size(0) == 1) y = contiguous(expand(y, {3, y.size(1), y.size(2)}));
  if (gray) {  // luma of ITU-R 601 with 16 fraction bits
    const Tensor v = y.to(DType::i32);
    const Tensor luma = v.select(0, 0) * 19595 + v.select(0, 1) * 38470 + v.select(0, 2) * 7471;
    y = bitwise_right_shift(luma + 32768, 16).to(DType::u8).unsqueeze(0);
  }
  if (format == "BGR") y = flip(y, {0});
  c.set(0, contiguous(y.permute({1, 2, 0})));
}

}  // namespace

std::span<const OnnxRow> onnx_image_rows() {
  static constexpr OnnxRow kRows[] = {
      {"", "ImageDecoder", 20, 0, image_decoder, {1, 1, "pixel_format"}},
  };
  return kRows;
}

}  // namespace tandem::onnx
