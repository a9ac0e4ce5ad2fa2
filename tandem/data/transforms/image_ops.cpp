// SPDX-License-Identifier: Apache-2.0
#include "tandem/data/transforms/image_ops.h"

#include "tandem/base/error.h"
#include "tandem/data/transforms/image_ops_internal.h"
#include "tandem/data/transforms/pixel_loops_internal.h"
#include "tandem/tensor/pixels_internal.h"

namespace tandem::data {

namespace detail {

void check_image(const Tensor& image, const char* what) {
  TD_CHECK(image.defined() && image.dim() == 3, Shape, "{}: an image is [c, h, w], got {}", what,
           image.defined() ? image.shape().to_string() : "an undefined tensor");
  TD_CHECK(image.dtype() == DType::u8 || image.dtype() == DType::f32, DType,
           "{}: an image is u8 or f32, got {}\nConvert with to_dtype_image().", what,
           to_string(image.dtype()));
  TD_CHECK(image.numel() > 0, Shape, "{}: the image is empty: {}", what, image.shape().to_string());
}

Image::Image(const Tensor& image, const char* what) {
  check_image(image, what);
  TD_CHECK(
      !image.is_symbolic(), Unsupported,
      "{} has no form in a trace\nCrops, bilinear and bicubic sizes, Normalize and ToDtype have "
      "one.",
      what);
  c = image.size(0);
  h = image.size(1);
  w = image.size(2);
  u8 = image.dtype() == DType::u8;
  held = image.contiguous();
}

void check_new_size(int64_t h, int64_t w) {
  TD_CHECK(h > 0 && w > 0 && h <= int64_t{1} << 24 && w <= (int64_t{1} << 31) / h, Value,
           "an image of {} x {} (h, w) cannot be made", h, w);
}

Tensor new_image(int64_t c, int64_t h, int64_t w, DType dtype) {
  check_new_size(h, w);
  return Tensor(
      Ref<tandem::detail::TensorImpl>::adopt(tandem::detail::new_tensor({c, h, w}, dtype, cpu)));
}

double fill_of(const Fill& fill, int64_t channel, int64_t c) {
  TD_CHECK(fill.size() == 1 || static_cast<int64_t>(fill.size()) == c, Value,
           "a fill has one value or one per channel ({}), got {}", c, fill.size());
  return fill.size() == 1 ? fill[0] : fill[static_cast<size_t>(channel)];
}

}  // namespace detail

using detail::each_type;
using detail::Image;
using detail::new_image;
using detail::pixels;

namespace {

// Rows of a window; pixels outside the image are 0. `unit` elements make a pixel.
template <class T>
void crop_rows(const T* from, int64_t h, int64_t w, T* to, int64_t top, int64_t left,
               int64_t height, int64_t width, int64_t unit) {
  const int64_t begin = std::clamp<int64_t>(left, 0, w);
  const int64_t end = std::max(begin, std::clamp<int64_t>(left + width, 0, w));
  for (int64_t y = 0; y < height; ++y, to += width * unit) {
    const int64_t sy = top + y;
    if (sy < 0 || sy >= h || begin == end) {
      std::fill_n(to, width * unit, T(0));
      continue;
    }
    const T* row = from + sy * w * unit;
    std::fill_n(to, (begin - left) * unit, T(0));
    std::copy(row + begin * unit, row + end * unit, to + (begin - left) * unit);
    std::fill(to + (end - left) * unit, to + width * unit, T(0));
  }
}

}  // namespace

Tensor crop_image(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width) {
  detail::check_image(image, "crop");
  if (image.is_symbolic()) return detail::traced_crop(image, top, left, height, width);
  if (tandem::detail::is_pixels(image)) {
    detail::check_new_size(height, width);
    const Tensor out = tandem::detail::new_pixels(image.size(0), height, width);
    crop_rows(pixels<uint8_t>(image), image.size(1), image.size(2), pixels<uint8_t>(out), top, left,
              height, width, image.size(0));
    return out;
  }
  const Image p(image, "crop");
  Tensor out = new_image(p.c, height, width, image.dtype());
  each_type(p, [&](auto t) {
    using T = decltype(t);
    for (int64_t k = 0; k < p.c; ++k)
      crop_rows(p.data<T>() + k * p.h * p.w, p.h, p.w, pixels<T>(out) + k * height * width, top,
                left, height, width, 1);
  });
  return out;
}

Tensor center_crop_image(const Tensor& image, int64_t height, int64_t width) {
  detail::check_image(image, "center_crop");
  const int64_t old_h = image.size(1), old_w = image.size(2);
  // Python's round: ties go to the even neighbour.
  const auto half = [](int64_t room) {
    return static_cast<int64_t>(std::nearbyint(static_cast<double>(room) / 2.0));
  };
  if (height <= old_h && width <= old_w)
    return crop_image(image, half(old_h - height), half(old_w - width), height, width);
  // Too small: pad first, with the smaller half in front.
  const int64_t left = std::max<int64_t>((width - old_w) / 2, 0);
  const int64_t top = std::max<int64_t>((height - old_h) / 2, 0);
  const int64_t right = std::max<int64_t>((width - old_w + 1) / 2, 0);
  const int64_t bottom = std::max<int64_t>((height - old_h + 1) / 2, 0);
  const int64_t h = old_h + top + bottom, w = old_w + left + right;
  return crop_image(image, half(h - height) - top, half(w - width) - left, height, width);
}

Tensor horizontal_flip_image(const Tensor& image) {
  const Image p(image, "horizontal_flip");
  Tensor out = new_image(p.c, p.h, p.w, image.dtype());
  each_type(p, [&](auto t) {
    using T = decltype(t);
    for (int64_t r = 0; r < p.c * p.h; ++r)
      std::reverse_copy(p.data<T>() + r * p.w, p.data<T>() + (r + 1) * p.w,
                        pixels<T>(out) + r * p.w);
  });
  return out;
}

Tensor vertical_flip_image(const Tensor& image) {
  const Image p(image, "vertical_flip");
  Tensor out = new_image(p.c, p.h, p.w, image.dtype());
  each_type(p, [&](auto t) {
    using T = decltype(t);
    for (int64_t k = 0; k < p.c; ++k)
      for (int64_t y = 0; y < p.h; ++y)
        std::copy_n(p.data<T>() + (k * p.h + p.h - 1 - y) * p.w, p.w,
                    pixels<T>(out) + (k * p.h + y) * p.w);
  });
  return out;
}

namespace {

// Which element a position outside 0 .. n-1 reads; -1 for the fill value.
int64_t inside(int64_t i, int64_t n, PaddingMode mode) {
  if (i >= 0 && i < n) return i;
  switch (mode) {
    case PaddingMode::constant:
      return -1;
    case PaddingMode::edge:
      return std::clamp<int64_t>(i, 0, n - 1);
    case PaddingMode::reflect:
      return i < 0 ? -i : 2 * (n - 1) - i;
    case PaddingMode::symmetric:
      return i < 0 ? -i - 1 : 2 * n - 1 - i;
  }
  return -1;
}

}  // namespace

Tensor pad_image(const Tensor& image, const std::vector<int64_t>& padding, const Fill& fill,
                 PaddingMode mode) {
  const Image p(image, "pad");
  TD_CHECK(padding.size() == 1 || padding.size() == 2 || padding.size() == 4, Value,
           "pad: padding has 1, 2 or 4 numbers, got {}", padding.size());
  const size_t n = padding.size();
  const int64_t left = padding[0], top = padding[n > 1 ? 1 : 0];
  const int64_t right = padding[n == 4 ? 2 : 0], bottom = padding[n == 4 ? 3 : n > 1 ? 1 : 0];
  const int64_t low = std::min({left, top, right, bottom});
  const int64_t room = mode == PaddingMode::reflect ? 1 : 0;
  TD_CHECK(low >= 0 || mode == PaddingMode::constant, Value, "pad: {} is negative", low);
  if (mode == PaddingMode::reflect || mode == PaddingMode::symmetric)
    TD_CHECK(std::max(left, right) <= p.w - room && std::max(top, bottom) <= p.h - room, Value,
             "pad: reflecting {} x {} by {}, {}, {}, {} goes beyond it", p.h, p.w, left, top, right,
             bottom);
  const int64_t h = p.h + top + bottom, w = p.w + left + right;
  Tensor out = new_image(p.c, h, w, image.dtype());
  each_type(p, [&](auto t) {
    using T = decltype(t);
    for (int64_t k = 0; k < p.c; ++k) {
      const T value = static_cast<T>(detail::fill_of(fill, k, p.c));
      for (int64_t y = 0; y < h; ++y) {
        T* to = pixels<T>(out) + (k * h + y) * w;
        const int64_t sy = inside(y - top, p.h, mode);
        const T* row = p.data<T>() + (k * p.h + std::max<int64_t>(sy, 0)) * p.w;
        for (int64_t x = 0; x < w; ++x) {
          const int64_t sx = inside(x - left, p.w, mode);
          to[x] = sy < 0 || sx < 0 ? value : row[sx];
        }
      }
    }
  });
  return out;
}

namespace {

void normalize_planes(const Image& p, float* to, const std::vector<double>& mean,
                      const std::vector<double>& std) {
  for (int64_t k = 0; k < p.c; ++k) {
    const auto m = static_cast<float>(detail::fill_of(mean, k, p.c));
    const auto s = static_cast<float>(detail::fill_of(std, k, p.c));
    TD_CHECK(s != 0, Value, "normalize: std of channel {} is 0", k);
    const int64_t plane = p.h * p.w;
    detail::normalize_numbers(p.data<float>() + k * plane, to + k * plane, plane, m, s);
  }
}

}  // namespace

Tensor normalize_image(const Tensor& image, const std::vector<double>& mean,
                       const std::vector<double>& std) {
  detail::check_image(image, "normalize");
  TD_CHECK(image.dtype() == DType::f32, DType,
           "normalize expects f32, got u8\nPut ToDtype(f32, true) before it.");
  if (image.is_symbolic()) return detail::traced_normalize(image, mean, std);
  const Image p(image, "normalize");
  Tensor out = new_image(p.c, p.h, p.w, DType::f32);
  normalize_planes(p, pixels<float>(out), mean, std);
  return out;
}

void detail::normalize_own(Tensor& image, const std::vector<double>& mean,
                           const std::vector<double>& std) {
  if (!image.defined() || image.is_symbolic() || image.dtype() != DType::f32 ||
      !image.is_contiguous() || !image.impl()->donatable()) {
    image = normalize_image(image, mean, std);
    return;
  }
  const Image p(image, "normalize");
  normalize_planes(p, pixels<float>(image), mean, std);
}

Tensor to_dtype_image(const Tensor& image, DType dtype, bool scale) {
  detail::check_image(image, "to_dtype");
  TD_CHECK(dtype == DType::u8 || dtype == DType::f32, DType, "to_dtype gives u8 or f32, not {}",
           to_string(dtype));
  if (dtype == image.dtype()) return image;
  const float bound = scale ? 255.0F : 1.0F;
  if (image.is_symbolic()) return detail::traced_to_dtype(image, dtype, bound);
  if (tandem::detail::is_pixels(image) && image.size(0) == 3) {
    const int64_t h = image.size(1), w = image.size(2);
    Tensor out = new_image(3, h, w, dtype);
    detail::divide_pixels(pixels<uint8_t>(image), pixels<float>(out), h * w, bound);
    return out;
  }
  const Image p(image, "to_dtype");
  Tensor out = new_image(p.c, p.h, p.w, dtype);
  const int64_t n = p.c * p.h * p.w;
  if (p.u8) {
    detail::divide_bytes(p.data<uint8_t>(), pixels<float>(out), n, bound);
  } else {
    const float by = scale ? 255.0F + 1.0F - 1e-3F : 1.0F;
    for (int64_t i = 0; i < n; ++i)
      pixels<uint8_t>(out)[i] = detail::stored<uint8_t>(p.data<float>()[i] * by);
  }
  return out;
}

Tensor erase_image(const Tensor& image, int64_t i, int64_t j, int64_t h, int64_t w, const Fill& v) {
  const Image p(image, "erase");
  Tensor out = p.held.clone();
  each_type(p, [&](auto t) {
    using T = decltype(t);
    for (int64_t k = 0; k < p.c; ++k) {
      const T value = static_cast<T>(detail::fill_of(v, k, p.c));
      for (int64_t y = std::max<int64_t>(i, 0); y < std::min(i + h, p.h); ++y)
        for (int64_t x = std::max<int64_t>(j, 0); x < std::min(j + w, p.w); ++x)
          pixels<T>(out)[(k * p.h + y) * p.w + x] = value;
    }
  });
  return out;
}

}  // namespace tandem::data
