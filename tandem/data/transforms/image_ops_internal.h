// SPDX-License-Identifier: Apache-2.0
// Shared by the files of image_ops: images as plain arrays. An Image wraps a row-major tensor; Out
// is a new one that is not shared.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "tandem/data/transforms/image_ops.h"
#include "tandem/tensor/strided.h"

namespace tandem::data::detail {

/// Throws Shape or DType for tensors that are not images.
void check_image(const Tensor& image, const char* what);

struct Image {
  Image(const Tensor& image, const char* what);
  Tensor held;
  int64_t c, h, w;
  bool u8;
  template <class T>
  const T* data() const {
    return static_cast<const T*>(held.impl()->data);
  }
  /// The largest value of the dtype.
  double bound() const { return u8 ? 255.0 : 1.0; }
};

/// Throws Value.
void check_new_size(int64_t h, int64_t w);
Tensor new_image(int64_t c, int64_t h, int64_t w, DType dtype);
template <class T>
T* pixels(const Tensor& t) {
  return static_cast<T*>(t.impl()->data);
}
/// Call f(T()) with the image's element type.
template <class F>
void each_type(const Image& p, F&& f) {
  if (p.u8)
    f(uint8_t());
  else
    f(float());
}
/// Clamped to the dtype's range and, for u8, truncated to an integer.
template <class T>
T stored(float v) {
  if constexpr (std::is_same_v<T, uint8_t>)
    return static_cast<uint8_t>(std::clamp(v, 0.0F, 255.0F));
  else
    return std::clamp(v, 0.0F, 1.0F);
}
/// Element i of n from `start` to `end`, with the roundings of torch.linspace in f32.
inline float linspace_at(float start, float end, int64_t n, int64_t i) {
  if (n == 1) return start;
  const float step = (end - start) / static_cast<float>(n - 1);
  return i < n / 2 ? std::fma(step, static_cast<float>(i), start)
                   : std::fma(-step, static_cast<float>(n - 1 - i), end);
}
/// image = normalize_image(image, mean, std); in place if its memory is not shared.
void normalize_own(Tensor& image, const std::vector<double>& mean, const std::vector<double>& std);
/// The same functions for images in a trace (image_traced.cpp).
Tensor traced_crop(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width);
Tensor traced_to_dtype(const Tensor& image, DType dtype, float bound);
Tensor traced_normalize(const Tensor& image, const std::vector<double>& mean,
                        const std::vector<double>& std);
Tensor traced_resize(const Tensor& image, int64_t height, int64_t width, ResizeArgs args);
/// One value of a fill; throws Value unless it has 1 or c values.
double fill_of(const Fill& fill, int64_t channel, int64_t c);

}  // namespace tandem::data::detail
