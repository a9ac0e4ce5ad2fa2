// SPDX-License-Identifier: Apache-2.0
// The colour functions of image_ops.h, with torchvision v2's f32 arithmetic and truncation to u8.
#include "tandem/base/error.h"
#include "tandem/data/transforms/image_ops_internal.h"
#include "tandem/data/transforms/pixel_loops_internal.h"

namespace tandem::data {
namespace {

using detail::each_type;
using detail::Image;
using detail::pixels;
using detail::stored;

void check_channels(const Image& p, const char* what) {
  TD_CHECK(p.c == 1 || p.c == 3, Shape, "{}: an image of 1 or 3 channels is expected, got {}", what,
           p.c);
}
void check_factor(double f, const char* what) {
  TD_CHECK(std::isfinite(f) && f >= 0, Value, "{}: the factor is not negative, got {}", what, f);
}

// A new image of f(value, channel) for each element.
template <class F>
Tensor mapped(const Image& p, F&& f) {
  Tensor out = detail::new_image(p.c, p.h, p.w, p.held.dtype());
  each_type(p, [&](auto t) {
    using T = decltype(t);
    for (int64_t k = 0; k < p.c; ++k) {
      const T* from = p.data<T>() + k * p.h * p.w;
      T* to = pixels<T>(out) + k * p.h * p.w;
      for (int64_t i = 0; i < p.h * p.w; ++i) to[i] = f(from[i], k);
    }
  });
  return out;
}

// The gray value of each pixel; truncated for u8 images.
std::vector<float> gray_of(const Image& p) {
  const int64_t n = p.h * p.w;
  std::vector<float> gray(static_cast<size_t>(n));
  each_type(p, [&](auto t) {
    using T = decltype(t);
    const T* d = p.data<T>();
    for (int64_t i = 0; i < n; ++i) {
      float v = static_cast<float>(d[i]);
      if (p.c == 3)
        v = static_cast<float>(d[i]) * 0.2989F + 0.587F * static_cast<float>(d[n + i]) +
            0.114F * static_cast<float>(d[2 * n + i]);
      gray[static_cast<size_t>(i)] = p.u8 ? std::floor(v) : v;
    }
  });
  return gray;
}

// image * factor + other(pixel) * (1 - factor)
template <class F>
Tensor blend(const Image& p, double factor, F&& other) {
  Tensor out = detail::new_image(p.c, p.h, p.w, p.held.dtype());
  const auto f = static_cast<float>(factor), rest = static_cast<float>(1.0 - factor);
  each_type(p, [&](auto t) {
    using T = decltype(t);
    const int64_t n = p.h * p.w;
    for (int64_t i = 0; i < p.c * n; ++i)
      pixels<T>(out)[i] = stored<T>(static_cast<float>(p.data<T>()[i]) * f + other(i % n) * rest);
  });
  return out;
}

}  // namespace

Tensor adjust_brightness_image(const Tensor& image, double brightness_factor) {
  const Image p(image, "adjust_brightness");
  check_channels(p, "adjust_brightness");
  check_factor(brightness_factor, "adjust_brightness");
  return mapped(p, [f = static_cast<float>(brightness_factor)](auto v, int64_t) {
    return stored<decltype(v)>(static_cast<float>(v) * f);
  });
}

Tensor adjust_saturation_image(const Tensor& image, double saturation_factor) {
  const Image p(image, "adjust_saturation");
  check_channels(p, "adjust_saturation");
  check_factor(saturation_factor, "adjust_saturation");
  if (p.c == 1) return p.held;
  const std::vector<float> gray = gray_of(p);
  return blend(p, saturation_factor, [&](int64_t i) { return gray[static_cast<size_t>(i)]; });
}

Tensor adjust_contrast_image(const Tensor& image, double contrast_factor) {
  const Image p(image, "adjust_contrast");
  check_channels(p, "adjust_contrast");
  check_factor(contrast_factor, "adjust_contrast");
  double sum = 0;
  for (const float v : gray_of(p)) sum += v;
  const auto mean = static_cast<float>(sum / static_cast<double>(p.h * p.w));
  return blend(p, contrast_factor, [mean](int64_t) { return mean; });
}

Tensor adjust_hue_image(const Tensor& image, double hue_factor) {
  const Image p(image, "adjust_hue");
  check_channels(p, "adjust_hue");
  TD_CHECK(hue_factor >= -0.5 && hue_factor <= 0.5, Value,
           "adjust_hue: the factor lies in -0.5 .. 0.5, got {}", hue_factor);
  if (p.c == 1) return p.held;
  Tensor out = detail::new_image(p.c, p.h, p.w, image.dtype());
  const int64_t n = p.h * p.w;
  const auto turn = static_cast<float>(hue_factor);
  each_type(p, [&](auto t) {
    using T = decltype(t);
    const T* d = p.data<T>();
    T* to = pixels<T>(out);
    const float by = p.u8 ? 255.0F : 1.0F;
    for (int64_t i = 0; i < n; ++i) {
      const float r = static_cast<float>(d[i]) / by, g = static_cast<float>(d[n + i]) / by;
      const float b = static_cast<float>(d[2 * n + i]) / by;
      const float high = std::max({r, g, b}), low = std::min({r, g, b}), range = high - low;
      const float s = range > 0 ? range / high : 0, div = range > 0 ? range : 1;
      const float rc = (high - r) / div, gc = (high - g) / div, bc = (high - b) / div;
      float h = high == r ? bc - gc : high == g ? 2 + rc - bc : 4 + gc - rc;
      h = std::fmod(h / 6 + 1, 1.0F) + turn;
      h -= std::floor(h);  // Python's modulo
      const float h6 = h * 6, whole = std::floor(h6), f = h6 - whole;
      const float q = std::clamp((1 - s * f) * high, 0.0F, 1.0F);
      const float up = std::clamp((1 - s + s * f) * high, 0.0F, 1.0F);
      const float bottom = std::clamp((1 - s) * high, 0.0F, 1.0F);
      const float table[6][3] = {{high, up, bottom}, {q, high, bottom},  {bottom, high, up},
                                 {bottom, q, high},  {up, bottom, high}, {high, bottom, q}};
      const float* rgb = table[static_cast<int>(whole) % 6];
      for (int64_t k = 0; k < 3; ++k) {
        if constexpr (std::is_same_v<T, uint8_t>)
          to[k * n + i] = stored<T>(rgb[k] * (255.0F + 1.0F - 1e-3F));
        else
          to[k * n + i] = rgb[k];
      }
    }
  });
  return out;
}

Tensor adjust_sharpness_image(const Tensor& image, double sharpness_factor) {
  const Image p(image, "adjust_sharpness");
  check_channels(p, "adjust_sharpness");
  check_factor(sharpness_factor, "adjust_sharpness");
  if (p.h <= 2 || p.w <= 2) return p.held;
  Tensor out = p.held.clone();
  const auto rest = static_cast<float>(1.0 - sharpness_factor);
  each_type(p, [&](auto t) {
    using T = decltype(t);
    for (int64_t k = 0; k < p.c; ++k) {
      const T* d = p.data<T>() + k * p.h * p.w;
      T* to = pixels<T>(out) + k * p.h * p.w;
      for (int64_t y = 1; y + 1 < p.h; ++y)
        for (int64_t x = 1; x + 1 < p.w; ++x) {
          float sum = 0;
          for (int64_t dy = -1; dy <= 1; ++dy)
            for (int64_t dx = -1; dx <= 1; ++dx)
              sum += static_cast<float>(d[(y + dy) * p.w + x + dx]) *
                     (dx == 0 && dy == 0 ? 5.0F / 13.0F : 1.0F / 13.0F);
          if (p.u8) sum = std::nearbyint(sum);
          const auto v = static_cast<float>(d[y * p.w + x]);
          to[y * p.w + x] = stored<T>(v + (sum - v) * rest);
        }
    }
  });
  return out;
}

Tensor autocontrast_image(const Tensor& image) {
  const Image p(image, "autocontrast");
  check_channels(p, "autocontrast");
  std::vector<float> low, scale;
  each_type(p, [&](auto t) {
    using T = decltype(t);
    for (int64_t k = 0; k < p.c; ++k) {
      const T* d = p.data<T>() + k * p.h * p.w;
      const auto [a, b] = std::minmax_element(d, d + p.h * p.w);
      const auto lo = static_cast<float>(*a), hi = static_cast<float>(*b);
      low.push_back(hi == lo ? 0 : lo);
      scale.push_back(hi == lo ? 1 : (hi - lo) * static_cast<float>(1.0 / p.bound()));
    }
  });
  return mapped(p, [&](auto v, int64_t k) {
    return stored<decltype(v)>((static_cast<float>(v) - low[static_cast<size_t>(k)]) /
                               scale[static_cast<size_t>(k)]);
  });
}

Tensor equalize_image(const Tensor& image) {
  if (image.defined() && image.dtype() == DType::f32)
    return to_dtype_image(equalize_image(to_dtype_image(image, DType::u8, true)), DType::f32, true);
  const Image p(image, "equalize");
  const int64_t n = p.h * p.w;
  std::vector<std::array<uint8_t, 256>> tables;
  for (int64_t k = 0; k < p.c; ++k) {
    std::array<int64_t, 256> count{};
    for (int64_t i = 0; i < n; ++i) ++count[p.data<uint8_t>()[k * n + i]];
    size_t last = 255;
    while (count[last] == 0) --last;
    const int64_t step = (n - count[last]) / 255;
    std::array<uint8_t, 256> table{};
    int64_t below = step / 2;
    for (size_t v = 0; v < 256; ++v) {
      table[v] = step == 0 ? static_cast<uint8_t>(v)
                           : static_cast<uint8_t>(std::min<int64_t>(below / step, 255));
      below += count[v];
    }
    tables.push_back(table);
  }
  Tensor out = detail::new_image(p.c, p.h, p.w, DType::u8);
  for (int64_t i = 0; i < p.c * n; ++i)
    pixels<uint8_t>(out)[i] = tables[static_cast<size_t>(i / n)][p.data<uint8_t>()[i]];
  return out;
}

Tensor invert_image(const Tensor& image) {
  const Image p(image, "invert");
  return mapped(p, [](auto v, int64_t) {
    using T = decltype(v);
    return static_cast<T>((std::is_same_v<T, uint8_t> ? T(255) : T(1)) - v);
  });
}

Tensor posterize_image(const Tensor& image, int64_t bits) {
  const Image p(image, "posterize");
  TD_CHECK(bits >= 0 && bits <= 8, Value, "posterize keeps 0 to 8 bits, got {}", bits);
  const int mask = 256 - (1 << (8 - bits));
  const auto levels = static_cast<float>(1 << bits);
  return mapped(p, [&](auto v, int64_t) {
    using T = decltype(v);
    if constexpr (std::is_same_v<T, uint8_t>)
      return static_cast<T>(v & mask);
    else
      return std::clamp(std::floor(v * levels), 0.0F, levels - 1) * (1.0F / levels);
  });
}

Tensor solarize_image(const Tensor& image, double threshold) {
  const Image p(image, "solarize");
  TD_CHECK(threshold <= p.bound(), Value, "solarize: the threshold is at most {}, got {}",
           p.bound(), threshold);
  return mapped(p, [threshold](auto v, int64_t) {
    using T = decltype(v);
    const T inverse = static_cast<T>((std::is_same_v<T, uint8_t> ? T(255) : T(1)) - v);
    return static_cast<double>(v) >= threshold ? inverse : v;
  });
}

Tensor rgb_to_grayscale_image(const Tensor& image, int64_t num_output_channels) {
  const Image p(image, "rgb_to_grayscale");
  check_channels(p, "rgb_to_grayscale");
  TD_CHECK(num_output_channels == 1 || num_output_channels == 3, Value,
           "rgb_to_grayscale gives 1 or 3 channels, not {}", num_output_channels);
  const std::vector<float> gray = gray_of(p);
  Tensor out = detail::new_image(num_output_channels, p.h, p.w, image.dtype());
  each_type(p, [&](auto t) {
    using T = decltype(t);
    for (int64_t k = 0; k < num_output_channels; ++k)
      for (size_t i = 0; i < gray.size(); ++i)
        pixels<T>(out)[k * p.h * p.w + static_cast<int64_t>(i)] = static_cast<T>(gray[i]);
  });
  return out;
}

Tensor gaussian_blur_image(const Tensor& image, std::array<int64_t, 2> kernel_size,
                           std::optional<std::array<double, 2>> sigma) {
  const Image p(image, "gaussian_blur");
  std::array<std::vector<float>, 2> kernels;
  for (size_t axis = 0; axis < 2; ++axis) {
    const int64_t n = kernel_size[axis];
    TD_CHECK(n > 0 && n % 2 == 1, Value, "gaussian_blur: kernel sizes are odd, got {}", n);
    const double s = sigma ? (*sigma)[axis] : 0.15 * static_cast<double>(n) + 0.35;
    TD_CHECK(s > 0, Value, "gaussian_blur: sigma is positive, got {}", s);
    TD_CHECK(n / 2 < (axis == 0 ? p.w : p.h), Value,
             "gaussian_blur: a kernel of {} does not fit {} x {}", n, p.h, p.w);
    double sum = 0;
    std::vector<double> k;
    for (int64_t i = 0; i < n; ++i) {
      const double x = static_cast<double>(i - n / 2) / s;
      k.push_back(std::exp(-0.5 * x * x));
      sum += k.back();
    }
    for (const double v : k) kernels[axis].push_back(static_cast<float>(v / sum));
  }
  const int64_t rx = kernel_size[0] / 2, ry = kernel_size[1] / 2;
  const auto reflected = [](int64_t i, int64_t n) {
    return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
  };
  Tensor out = detail::new_image(p.c, p.h, p.w, image.dtype());
  // Lines and rows, extended by reflection on both sides.
  std::vector<float> line(static_cast<size_t>(p.w + 2 * rx)), sums(static_cast<size_t>(p.w));
  std::vector<float> rows(static_cast<size_t>((p.h + 2 * ry) * p.w));
  each_type(p, [&](auto t) {
    using T = decltype(t);
    for (int64_t k = 0; k < p.c; ++k) {
      const T* d = p.data<T>() + k * p.h * p.w;
      for (int64_t y = 0; y < p.h; ++y) {
        for (int64_t x = -rx; x < p.w + rx; ++x)
          line[static_cast<size_t>(x + rx)] = static_cast<float>(d[y * p.w + reflected(x, p.w)]);
        detail::sum_neighbours(line.data(), 1, kernels[0].data(), 2 * rx + 1,
                               rows.data() + (y + ry) * p.w, p.w);
      }
      for (int64_t y = -ry; y < p.h + ry; ++y)
        if (y < 0 || y >= p.h)
          std::copy_n(rows.data() + (reflected(y, p.h) + ry) * p.w, p.w,
                      rows.data() + (y + ry) * p.w);
      T* to = pixels<T>(out) + k * p.h * p.w;
      for (int64_t y = 0; y < p.h; ++y) {
        detail::sum_neighbours(rows.data() + y * p.w, p.w, kernels[1].data(), 2 * ry + 1,
                               sums.data(), p.w);
        for (int64_t x = 0; x < p.w; ++x) {
          const float sum = sums[static_cast<size_t>(x)];
          to[y * p.w + x] = p.u8 ? stored<T>(std::nearbyint(sum)) : static_cast<T>(sum);
        }
      }
    }
  });
  return out;
}

}  // namespace tandem::data
