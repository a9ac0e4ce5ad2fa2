// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/error.h"
#include "tandem/io/image/system_image_internal.h"
#include "tandem/tensor/strided.h"

namespace tandem::io {

Tensor image_of_pixels(const Pixels& p, ImageMode mode) {
  const int64_t n = p.width * p.height;
  const int64_t c = mode == ImageMode::gray ? 1 : mode == ImageMode::rgb ? 3 : p.channels;
  Tensor out(Ref<detail::TensorImpl>::adopt(
      detail::new_tensor(Shape(c, p.height, p.width), DType::u8, cpu)));
  auto* to = static_cast<uint8_t*>(out.impl()->data);
  const bool colored = p.channels >= 3;
  if (colored && mode == ImageMode::gray) {
    for (int64_t i = 0; i < n; ++i) {  // Pillow's weights of ITU-R 601
      const uint8_t* at = p.data + i * p.stride;
      to[i] = static_cast<uint8_t>(
          (at[p.at[0]] * 19595 + at[p.at[1]] * 38470 + at[p.at[2]] * 7471 + 0x8000) >> 16);
    }
    return out;
  }
  for (int64_t k = 0; k < c; ++k) {
    const bool repeats = !colored && mode == ImageMode::rgb;  // gray in all three channels
    const uint8_t* from = p.data + p.at[repeats ? 0 : static_cast<size_t>(k)];
    for (int64_t i = 0; i < n; ++i) to[k * n + i] = from[i * p.stride];
  }
  return out;
}

void check_image_size(int64_t width, int64_t height, int64_t limit, std::string_view name) {
  TD_CHECK(width > 0 && height > 0 && width <= limit / height, Format,
           "'{}' is an image of {} x {}, at most {} pixels are allowed", name, width, height,
           limit);
}

}  // namespace tandem::io
