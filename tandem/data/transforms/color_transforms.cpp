// SPDX-License-Identifier: Apache-2.0
// Transforms of colours and values: they change only the image.
#include <cmath>
#include <numeric>

#include "tandem/data/transforms/image_ops_internal.h"
#include "tandem/data/transforms/transforms_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::data {

using detail::between;
using detail::check_probability;
using detail::check_range;
using detail::happens;

namespace {

// Applies a colour function with probability p.
Transform sometimes(const char* name, double p, std::function<Tensor(const Tensor&)> f) {
  check_probability(p, name);
  return Transform(name, [p, f = std::move(f)](Vision& v, PhiloxStream& random) {
    if (happens(random, p)) v.image = f(v.image);
  });
}

// Checks the ranges of ColorJitterOptions and RandomPhotometricDistortOptions.
template <class Options>
void check_factors(const Options& o, const char* what) {
  for (const Range& r : {o.brightness, o.contrast, o.saturation, o.hue}) check_range(r, what);
  TD_CHECK(o.hue[0] >= -0.5 && o.hue[1] <= 0.5, Value, "{}: hue lies in -0.5 .. 0.5, got {} .. {}",
           what, o.hue[0], o.hue[1]);
}

Tensor permuted_channels(const Tensor& image, PhiloxStream& random) {
  std::vector<int64_t> order(static_cast<size_t>(image.size(0)));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.next_below(i)]);
  return index_select(image, 0, tensor(order));
}

}  // namespace

Transform ColorJitter(ColorJitterOptions o) {
  check_factors(o, "ColorJitter");
  return Transform("ColorJitter", [o](Vision& v, PhiloxStream& random) {
    const double factors[4] = {between(random, o.brightness[0], o.brightness[1]),
                               between(random, o.contrast[0], o.contrast[1]),
                               between(random, o.saturation[0], o.saturation[1]),
                               between(random, o.hue[0], o.hue[1])};
    size_t order[4] = {0, 1, 2, 3};
    for (size_t i = 4; i > 1; --i) std::swap(order[i - 1], order[random.next_below(i)]);
    for (const size_t i : order) {
      if (factors[i] == (i == 3 ? 0.0 : 1.0)) continue;
      v.image = i == 0   ? adjust_brightness_image(v.image, factors[0])
                : i == 1 ? adjust_contrast_image(v.image, factors[1])
                : i == 2 ? adjust_saturation_image(v.image, factors[2])
                         : adjust_hue_image(v.image, factors[3]);
    }
  });
}

Transform RandomPhotometricDistort(RandomPhotometricDistortOptions o) {
  check_factors(o, "RandomPhotometricDistort");
  check_probability(o.p, "RandomPhotometricDistort");
  return Transform("RandomPhotometricDistort", [o](Vision& v, PhiloxStream& random) {
    const auto sometimes = [&](Range r, Tensor (*f)(const Tensor&, double)) {
      if (happens(random, o.p)) v.image = f(v.image, between(random, r[0], r[1]));
    };
    sometimes(o.brightness, adjust_brightness_image);
    const bool contrast_first = happens(random, 0.5);
    if (contrast_first) sometimes(o.contrast, adjust_contrast_image);
    sometimes(o.saturation, adjust_saturation_image);
    sometimes(o.hue, adjust_hue_image);
    if (!contrast_first) sometimes(o.contrast, adjust_contrast_image);
    if (happens(random, o.p)) v.image = permuted_channels(v.image, random);
  });
}

Transform Grayscale(int64_t num_output_channels) {
  return Transform("Grayscale", [num_output_channels](Vision& v, PhiloxStream&) {
    v.image = rgb_to_grayscale_image(v.image, num_output_channels);
  });
}
Transform RGB() {
  return Transform("RGB", [](Vision& v, PhiloxStream&) {
    if (v.image.size(0) < 3) v.image = rgb_to_grayscale_image(v.image, 3);
  });
}
Transform RandomGrayscale(double p) {
  return sometimes("RandomGrayscale", p, [](const Tensor& t) {
    return rgb_to_grayscale_image(t, t.size(0) == 1 ? 1 : 3);
  });
}
Transform GaussianBlur(std::array<int64_t, 2> kernel_size, Range sigma) {
  check_range(sigma, "GaussianBlur");
  return Transform("GaussianBlur", [kernel_size, sigma](Vision& v, PhiloxStream& random) {
    const double s = between(random, sigma[0], sigma[1]);
    v.image = gaussian_blur_image(v.image, kernel_size, std::array<double, 2>{s, s});
  });
}
Transform RandomInvert(double p) { return sometimes("RandomInvert", p, invert_image); }
Transform RandomPosterize(int64_t bits, double p) {
  return sometimes("RandomPosterize", p,
                   [bits](const Tensor& t) { return posterize_image(t, bits); });
}
Transform RandomSolarize(double threshold, double p) {
  return sometimes("RandomSolarize", p,
                   [threshold](const Tensor& t) { return solarize_image(t, threshold); });
}
Transform RandomAdjustSharpness(double f, double p) {
  return sometimes("RandomAdjustSharpness", p,
                   [f](const Tensor& t) { return adjust_sharpness_image(t, f); });
}
Transform RandomAutocontrast(double p) {
  return sometimes("RandomAutocontrast", p, autocontrast_image);
}
Transform RandomEqualize(double p) { return sometimes("RandomEqualize", p, equalize_image); }
Transform RandomChannelPermutation() {
  return Transform("RandomChannelPermutation", [](Vision& v, PhiloxStream& random) {
    v.image = permuted_channels(v.image, random);
  });
}

Transform Normalize(std::vector<double> mean, std::vector<double> std) {
  return Transform("Normalize",
                   [mean = std::move(mean), std = std::move(std)](Vision& v, PhiloxStream&) {
                     detail::normalize_own(v.image, mean, std);
                   });
}
Transform ToDtype(DType dtype, bool scale) {
  return Transform("ToDtype", [dtype, scale](Vision& v, PhiloxStream&) {
    v.image = to_dtype_image(v.image, dtype, scale);
  });
}
Transform ConvertImageDtype(DType dtype) { return ToDtype(dtype, true); }

Transform GaussianNoise(double mean, double sigma, bool clip) {
  TD_CHECK(std::isfinite(mean), Value, "GaussianNoise: the mean is finite, got {}", mean);
  TD_CHECK(std::isfinite(sigma) && sigma >= 0, Value,
           "GaussianNoise: sigma is not negative, got {}", sigma);
  return Transform("GaussianNoise", [mean, sigma, clip](Vision& v, PhiloxStream& random) {
    const detail::Image p(v.image, "GaussianNoise");
    const auto shift = static_cast<float>(mean * p.bound());
    const auto spread = static_cast<float>(sigma * p.bound());
    Tensor out = detail::new_image(p.c, p.h, p.w, v.image.dtype());
    detail::each_type(p, [&](auto t) {
      using T = decltype(t);
      for (int64_t i = 0; i < p.c * p.h * p.w; ++i) {
        const float noise = shift + random.next_normal() * spread;
        T& to = detail::pixels<T>(out)[i];
        if constexpr (std::is_same_v<T, uint8_t>) {  // integer noise, which fits 16 bits
          const int sum = p.data<T>()[i] + static_cast<int>(std::clamp(noise, -32768.F, 32767.F));
          to = static_cast<T>(clip ? std::clamp(sum, 0, 255) : sum);
        } else {
          to = clip ? std::clamp(p.data<T>()[i] + noise, 0.0F, 1.0F) : p.data<T>()[i] + noise;
        }
      }
    });
    v.image = out;
  });
}

Transform LinearTransformation(Tensor transformation_matrix, Tensor mean_vector) {
  const Tensor &m = transformation_matrix, &mean = mean_vector;
  TD_CHECK(m.defined() && mean.defined() && m.dim() == 2 && mean.dim() == 1 &&
               m.size(0) == m.size(1) && mean.size(0) == m.size(0),
           Shape,
           "LinearTransformation: a matrix [d, d] and a mean [d] are expected, got {} and {}",
           m.defined() ? m.shape().to_string() : "none",
           mean.defined() ? mean.shape().to_string() : "none");
  TD_CHECK(m.dtype() == DType::f32 && mean.dtype() == DType::f32, DType,
           "LinearTransformation: matrix and mean are f32, got {} and {}", to_string(m.dtype()),
           to_string(mean.dtype()));
  return Transform("LinearTransformation", [m, mean](Vision& v, PhiloxStream&) {
    const Shape shape = v.image.shape();
    TD_CHECK(v.image.numel() == mean.size(0), Shape,
             "LinearTransformation: an image {} has {} values, the matrix is {}", shape.to_string(),
             v.image.numel(), m.shape().to_string());
    const Tensor flat = v.image.to(DType::f32).reshape({1, mean.size(0)});
    v.image = matmul(flat - mean, m).reshape(shape);
  });
}

}  // namespace tandem::data
