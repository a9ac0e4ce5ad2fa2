// SPDX-License-Identifier: Apache-2.0
// What the files of image_ops share: pictures as plain arrays. A Picture holds a row-major tensor;
// Out a new one that nobody else has seen.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "tandem/data/image_ops.h"
#include "tandem/tensor/strided.h"

namespace tandem::data::detail {

/// Throws Shape or DType for what is no picture.
void check_picture(const Tensor& image, const char* what);

struct Picture {
  Picture(const Tensor& image, const char* what);
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
Tensor new_picture(int64_t c, int64_t h, int64_t w, DType dtype);
template <class T>
T* pixels(const Tensor& t) {
  return static_cast<T*>(t.impl()->data);
}
/// Call f(T()) with the picture's element type.
template <class F>
void each_type(const Picture& p, F&& f) {
  if (p.u8)
    f(uint8_t());
  else
    f(float());
}
/// Clamped to the dtype's range and, for u8, cut to an integer.
template <class T>
T stored(float v) {
  if constexpr (std::is_same_v<T, uint8_t>)
    return static_cast<uint8_t>(std::clamp(v, 0.0F, 255.0F));
  else
    return std::clamp(v, 0.0F, 1.0F);
}
/// Number i of n from `start` to `end`, with the roundings of torch.linspace in f32.
inline float linspace_at(float start, float end, int64_t n, int64_t i) {
  if (n == 1) return start;
  const float step = (end - start) / static_cast<float>(n - 1);
  return i < n / 2 ? std::fma(step, static_cast<float>(i), start)
                   : std::fma(-step, static_cast<float>(n - 1 - i), end);
}
/// image = normalize_image(image, mean, std); in place where nobody else can see its bytes.
void normalize_own(Tensor& image, const std::vector<double>& mean, const std::vector<double>& std);
/// One value of a fill; throws Value when it has neither one nor c.
double fill_of(const Fill& fill, int64_t channel, int64_t c);

}  // namespace tandem::data::detail
