// SPDX-License-Identifier: Apache-2.0
// What evaluation does to images, as ops: a traced image has no pixels yet. The results are those
// of the loops but for resized u8 images, which may differ by one level where a value lies
// half-way.
#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/data/transforms/image_ops_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::data::detail {

Tensor traced_crop(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width) {
  check_new_size(height, width);
  const int64_t h = image.size(1), w = image.size(2);
  const int64_t y = std::clamp<int64_t>(top, 0, h), x = std::clamp<int64_t>(left, 0, w);
  const int64_t rows = std::clamp<int64_t>(top + height, y, h) - y,
                columns = std::clamp<int64_t>(left + width, x, w) - x;
  const Tensor part = narrow(narrow(image, 1, y, rows), 2, x, columns);
  if (rows == height && columns == width) return part;
  const int64_t above = std::min(y - top, height), before = std::min(x - left, width);
  return pad(part, {before, width - before - columns, above, height - above - rows});
}

Tensor traced_to_dtype(const Tensor& image, DType dtype, float bound) {
  if (dtype == DType::f32) return image.to(DType::f32) / static_cast<double>(bound);
  const double by = bound > 1 ? 255.0F + 1.0F - 1e-3F : 1.0F;
  return floor(clamp(image * by, 0.0, 255.0)).to(DType::u8);
}

Tensor traced_normalize(const Tensor& image, const std::vector<double>& mean,
                        const std::vector<double>& std) {
  const int64_t c = image.size(0);
  std::vector<float> m, s;
  for (int64_t k = 0; k < c; ++k) {
    m.push_back(static_cast<float>(fill_of(mean, k, c)));
    s.push_back(static_cast<float>(fill_of(std, k, c)));
    TD_CHECK(s.back() != 0, Value, "normalize: std of channel {} is 0", k);
  }
  return (image - tensor(m, {c, 1, 1})) / tensor(s, {c, 1, 1});
}

Tensor traced_resize(const Tensor& image, int64_t height, int64_t width, ResizeArgs args) {
  using I = Interpolation;
  const I how = args.interpolation;
  const bool weighted = how == I::bilinear || how == I::bicubic;
  const bool levels = image.dtype() == DType::u8;
  // Levels are rounded between the passes along rows and columns, too.
  const auto pass = [&](const Tensor& x, int64_t h, int64_t w) {
    if (x.size(2) == h && x.size(3) == w) return x;
    if (!weighted)
      return interpolate(x,
                         {.size = {h, w}, .mode = how == I::nearest ? "nearest" : "nearest-exact"});
    const Tensor y = interpolate(x, {.size = {h, w},
                                     .mode = how == I::bicubic ? "bicubic" : "bilinear",
                                     .align_corners = false,
                                     .antialias = args.antialias});
    return levels ? clamp(round(y), 0.0, 255.0) : y;
  };
  const Tensor x = image.to(DType::f32).unsqueeze(0);
  const Tensor y = pass(pass(x, image.size(1), width), height, width).squeeze(0);
  return levels ? y.to(DType::u8) : y;
}

}  // namespace tandem::data::detail
