// SPDX-License-Identifier: Apache-2.0
// AutoAugment (Cubuk et al.), RandAugment, TrivialAugmentWide (Mueller, Hutter), AugMix (Hendrycks
// et al.), MixUp and CutMix, with torchvision v2's ranges of magnitudes. The policies' tables are
// those of the papers.
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/data/transforms/image_ops_internal.h"
#include "tandem/data/transforms/transforms.h"
#include "tandem/graph/context.h"
#include "tandem/graph/rng.h"
#include "tandem/ops/ops.h"

namespace tandem::data {

namespace detail {

void augment(Vision& v, const std::string& op, double m, Interpolation mode, const Fill& fill) {
  constexpr double degrees = 180 / 3.14159265358979323846;
  const std::array<double, 2> corner = {0, 0};
  if (op == "ShearX")
    affine_all(v, {.shear = {std::atan(m) * degrees, 0}, .center = corner}, mode, fill);
  else if (op == "ShearY")
    affine_all(v, {.shear = {0, std::atan(m) * degrees}, .center = corner}, mode, fill);
  else if (op == "TranslateX")
    affine_all(v, {.translate = {std::trunc(m), 0}}, mode, fill);
  else if (op == "TranslateY")
    affine_all(v, {.translate = {0, std::trunc(m)}}, mode, fill);
  else if (op == "Rotate")
    affine_all(v, {.angle = -m}, mode, fill);
  else if (op == "Brightness")
    v.image = adjust_brightness_image(v.image, 1 + m);
  else if (op == "Color")
    v.image = adjust_saturation_image(v.image, 1 + m);
  else if (op == "Contrast")
    v.image = adjust_contrast_image(v.image, 1 + m);
  else if (op == "Sharpness")
    v.image = adjust_sharpness_image(v.image, 1 + m);
  else if (op == "Posterize")
    v.image = posterize_image(v.image, static_cast<int64_t>(m));
  else if (op == "Solarize")
    v.image = solarize_image(v.image, (v.image.dtype() == DType::u8 ? 255.0 : 1.0) * m);
  else if (op == "AutoContrast")
    v.image = autocontrast_image(v.image);
  else if (op == "Equalize")
    v.image = equalize_image(v.image);
  else if (op == "Invert")
    v.image = invert_image(v.image);
  else
    TD_CHECK(op == "Identity", Value, "there is no operation '{}'", op);
}

}  // namespace detail

namespace {

// The largest magnitudes of one family of policies.
struct Ranges {
  double shear, rotate, color;
  int posterize;     // most bits removed
  double translate;  // fraction of the size, or pixels if above 1
  int bits = 8;      // bits that Posterize starts with
};
constexpr Ranges kNarrow{0.3, 30, 0.9, 4, 150.0 / 331.0}, kWide{0.99, 135, 0.99, 6, 32},
    kMixed{0.3, 30, 0.9, 4, 1.0 / 3, 4};

// The magnitude of `op` at bin `i` of `bins`; signed where the operation has a direction.
double magnitude(const Ranges& r, const std::string& op, int64_t i, int64_t bins, const Vision& v,
                 PhiloxStream& random) {
  const double part = bins > 1 ? static_cast<double>(i) / static_cast<double>(bins - 1) : 0.0;
  double m = 0;
  if (op == "Posterize") return std::nearbyint(r.bits - part * r.posterize);
  if (op == "Solarize") return 1 - part;
  if (op.starts_with("Shear"))
    m = r.shear;
  else if (op.starts_with("Translate"))
    m = r.translate > 1
            ? r.translate
            : r.translate * static_cast<double>(v.image.size(op == "TranslateX" ? 2 : 1));
  else if (op == "Rotate")
    m = r.rotate;
  else if (op == "Brightness" || op == "Color" || op == "Contrast" || op == "Sharpness")
    m = r.color;
  else
    return 0;
  return random.next_below(2) ? m * part : -m * part;
}

const std::vector<std::string>& operations() {
  static const std::vector<std::string> all = {
      "Identity", "ShearX",   "ShearY",    "TranslateX", "TranslateY", "Rotate",       "Brightness",
      "Color",    "Contrast", "Sharpness", "Posterize",  "Solarize",   "AutoContrast", "Equalize"};
  return all;
}

struct Choice {
  const char* op;
  double p;
  int magnitude;
};
struct Pair {
  Choice first, second;
};
constexpr Pair kImageNet[] = {
    {{"Posterize", 0.4, 8}, {"Rotate", 0.6, 9}},  {{"Solarize", 0.6, 5}, {"AutoContrast", 0.6, 0}},
    {{"Equalize", 0.8, 0}, {"Equalize", 0.6, 0}}, {{"Posterize", 0.6, 7}, {"Posterize", 0.6, 6}},
    {{"Equalize", 0.4, 0}, {"Solarize", 0.2, 4}}, {{"Equalize", 0.4, 0}, {"Rotate", 0.8, 8}},
    {{"Solarize", 0.6, 3}, {"Equalize", 0.6, 0}}, {{"Posterize", 0.8, 5}, {"Equalize", 1.0, 0}},
    {{"Rotate", 0.2, 3}, {"Solarize", 0.6, 8}},   {{"Equalize", 0.6, 0}, {"Posterize", 0.4, 6}},
    {{"Rotate", 0.8, 8}, {"Color", 0.4, 0}},      {{"Rotate", 0.4, 9}, {"Equalize", 0.6, 0}},
    {{"Equalize", 0.0, 0}, {"Equalize", 0.8, 0}}, {{"Invert", 0.6, 0}, {"Equalize", 1.0, 0}},
    {{"Color", 0.6, 4}, {"Contrast", 1.0, 8}},    {{"Rotate", 0.8, 8}, {"Color", 1.0, 2}},
    {{"Color", 0.8, 8}, {"Solarize", 0.8, 7}},    {{"Sharpness", 0.4, 7}, {"Invert", 0.6, 0}},
    {{"ShearX", 0.6, 5}, {"Equalize", 1.0, 0}},   {{"Color", 0.4, 0}, {"Equalize", 0.6, 0}},
    {{"Equalize", 0.4, 0}, {"Solarize", 0.2, 4}}, {{"Solarize", 0.6, 5}, {"AutoContrast", 0.6, 0}},
    {{"Invert", 0.6, 0}, {"Equalize", 1.0, 0}},   {{"Color", 0.6, 4}, {"Contrast", 1.0, 8}},
    {{"Equalize", 0.8, 0}, {"Equalize", 0.6, 0}}};
constexpr Pair kCifar10[] = {{{"Invert", 0.1, 0}, {"Contrast", 0.2, 6}},
                             {{"Rotate", 0.7, 2}, {"TranslateX", 0.3, 9}},
                             {{"Sharpness", 0.8, 1}, {"Sharpness", 0.9, 3}},
                             {{"ShearY", 0.5, 8}, {"TranslateY", 0.7, 9}},
                             {{"AutoContrast", 0.5, 0}, {"Equalize", 0.9, 0}},
                             {{"ShearY", 0.2, 7}, {"Posterize", 0.3, 7}},
                             {{"Color", 0.4, 3}, {"Brightness", 0.6, 7}},
                             {{"Sharpness", 0.3, 9}, {"Brightness", 0.7, 9}},
                             {{"Equalize", 0.6, 0}, {"Equalize", 0.5, 0}},
                             {{"Contrast", 0.6, 7}, {"Sharpness", 0.6, 5}},
                             {{"Color", 0.7, 7}, {"TranslateX", 0.5, 8}},
                             {{"Equalize", 0.3, 0}, {"AutoContrast", 0.4, 0}},
                             {{"TranslateY", 0.4, 3}, {"Sharpness", 0.2, 6}},
                             {{"Brightness", 0.9, 6}, {"Color", 0.2, 8}},
                             {{"Solarize", 0.5, 2}, {"Invert", 0.0, 0}},
                             {{"Equalize", 0.2, 0}, {"AutoContrast", 0.6, 0}},
                             {{"Equalize", 0.2, 0}, {"Equalize", 0.6, 0}},
                             {{"Color", 0.9, 9}, {"Equalize", 0.6, 0}},
                             {{"AutoContrast", 0.8, 0}, {"Solarize", 0.2, 8}},
                             {{"Brightness", 0.1, 3}, {"Color", 0.7, 0}},
                             {{"Solarize", 0.4, 5}, {"AutoContrast", 0.9, 0}},
                             {{"TranslateY", 0.9, 9}, {"TranslateY", 0.7, 9}},
                             {{"AutoContrast", 0.9, 0}, {"Solarize", 0.8, 3}},
                             {{"Equalize", 0.8, 0}, {"Invert", 0.1, 0}},
                             {{"TranslateY", 0.7, 9}, {"AutoContrast", 0.9, 0}}};
constexpr Pair kSvhn[] = {
    {{"ShearX", 0.9, 4}, {"Invert", 0.2, 0}},       {{"ShearY", 0.9, 8}, {"Invert", 0.7, 0}},
    {{"Equalize", 0.6, 0}, {"Solarize", 0.6, 6}},   {{"Invert", 0.9, 0}, {"Equalize", 0.6, 0}},
    {{"Equalize", 0.6, 0}, {"Rotate", 0.9, 3}},     {{"ShearX", 0.9, 4}, {"AutoContrast", 0.8, 0}},
    {{"ShearY", 0.9, 8}, {"Invert", 0.4, 0}},       {{"ShearY", 0.9, 5}, {"Solarize", 0.2, 6}},
    {{"Invert", 0.9, 0}, {"AutoContrast", 0.8, 0}}, {{"Equalize", 0.6, 0}, {"Rotate", 0.9, 3}},
    {{"ShearX", 0.9, 4}, {"Solarize", 0.3, 3}},     {{"ShearY", 0.8, 8}, {"Invert", 0.7, 0}},
    {{"Equalize", 0.9, 0}, {"TranslateY", 0.6, 6}}, {{"Invert", 0.9, 0}, {"Equalize", 0.6, 0}},
    {{"Contrast", 0.3, 3}, {"Rotate", 0.8, 4}},     {{"Invert", 0.8, 0}, {"TranslateY", 0.0, 2}},
    {{"ShearY", 0.7, 6}, {"Solarize", 0.4, 8}},     {{"Invert", 0.6, 0}, {"Rotate", 0.8, 4}},
    {{"ShearY", 0.3, 7}, {"TranslateX", 0.9, 3}},   {{"ShearX", 0.1, 6}, {"Invert", 0.6, 0}},
    {{"Solarize", 0.7, 2}, {"TranslateY", 0.6, 7}}, {{"ShearY", 0.8, 4}, {"Invert", 0.8, 0}},
    {{"ShearX", 0.7, 9}, {"TranslateY", 0.8, 3}},   {{"ShearY", 0.8, 5}, {"AutoContrast", 0.7, 0}},
    {{"ShearX", 0.7, 2}, {"Invert", 0.1, 0}}};

// A draw from Gamma(shape, 1): Marsaglia and Tsang.
double gamma_draw(double shape, PhiloxStream& random) {
  if (shape < 1)
    return gamma_draw(shape + 1, random) * std::pow(1 - detail::between(random, 0, 1), 1 / shape);
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal_f64(random.next_block());
    const double v = (1 + c * x) * (1 + c * x) * (1 + c * x);
    if (v <= 0) continue;
    if (std::log(1 - detail::between(random, 0, 1)) < 0.5 * x * x + d - d * v + d * std::log(v))
      return d * v;
  }
}

// A draw from Dirichlet(alpha, ... alpha).
std::vector<double> shares(int64_t n, double alpha, PhiloxStream& random) {
  std::vector<double> out;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += out.emplace_back(gamma_draw(alpha, random));
  if (sum == 0) sum = out[random.next_below(out.size())] = 1;  // a tiny alpha: one share gets all
  for (double& x : out) x /= sum;
  return out;
}

// The weight of the batch itself; then its classes mixed with the neighbour's.
struct Mix {
  PhiloxStream random;
  double share;
};
Mix begin_mix(const Example& b, int64_t num_classes, double alpha, const char* what) {
  TD_CHECK(alpha > 0 && num_classes > 0, Value, "{}: alpha {} and num_classes {} are positive",
           what, alpha, num_classes);
  TD_CHECK(b.x.dim() == 4 && b.y.dim() == 1 && b.x.size(0) == b.y.size(0), Shape,
           "{}: a batch is x [n, c, h, w] and y [n], got {} and {}", what, b.x.shape().to_string(),
           b.y.shape().to_string());
  const auto key = tandem::detail::next_rng_key();
  PhiloxStream random(key.seed, key.offset);
  const double share = shares(2, alpha, random)[0];
  return {random, share};
}
Tensor mixed_classes(const Tensor& y, int64_t num_classes, double share) {
  const Tensor hot = one_hot(y, num_classes).to(DType::f32);
  return hot * share + roll(hot, {1}, {0}) * (1 - share);
}

}  // namespace

Transform AutoAugment(AutoAugmentPolicy policy, Interpolation mode, Fill fill) {
  return Transform("AutoAugment", [policy, mode, fill = std::move(fill)](Vision& v,
                                                                         PhiloxStream& random) {
    const Pair* table = policy == AutoAugmentPolicy::imagenet  ? kImageNet
                        : policy == AutoAugmentPolicy::cifar10 ? kCifar10
                                                               : kSvhn;
    const Pair& pair = table[random.next_below(std::size(kImageNet))];
    for (const Choice& c : {pair.first, pair.second}) {
      if (detail::between(random, 0, 1) > c.p) continue;
      detail::augment(v, c.op, magnitude(kNarrow, c.op, c.magnitude, 10, v, random), mode, fill);
    }
  });
}

Transform RandAugment(int64_t num_ops, int64_t bin, int64_t bins, Interpolation mode, Fill fill) {
  TD_CHECK(num_ops >= 0 && bins > 1 && bin >= 0 && bin < bins, Value,
           "RandAugment: magnitude {} of {} bins, {} operations", bin, bins, num_ops);
  return Transform("RandAugment", [=, fill = std::move(fill)](Vision& v, PhiloxStream& random) {
    for (int64_t i = 0; i < num_ops; ++i) {
      const std::string& op = operations()[random.next_below(operations().size())];
      detail::augment(v, op, magnitude(kNarrow, op, bin, bins, v, random), mode, fill);
    }
  });
}

Transform TrivialAugmentWide(int64_t bins, Interpolation mode, Fill fill) {
  TD_CHECK(bins > 1, Value, "TrivialAugmentWide: at least 2 bins, got {}", bins);
  return Transform(
      "TrivialAugmentWide", [=, fill = std::move(fill)](Vision& v, PhiloxStream& random) {
        const std::string& op = operations()[random.next_below(operations().size())];
        const auto bin = static_cast<int64_t>(random.next_below(static_cast<uint64_t>(bins)));
        detail::augment(v, op, magnitude(kWide, op, bin, bins, v, random), mode, fill);
      });
}

Transform AugMix(AugMixOptions o) {
  TD_CHECK(o.severity >= 1 && o.severity <= 10, Value,
           "AugMix: the severity lies in 1 .. 10, got {}", o.severity);
  TD_CHECK(o.mixture_width > 0 && o.alpha > 0, Value,
           "AugMix: mixture_width and alpha are positive, got {} and {}", o.mixture_width, o.alpha);
  return Transform("AugMix", [o = std::move(o)](Vision& v, PhiloxStream& random) {
    TD_CHECK(!v.boxes.defined() && !v.mask.defined(), Unsupported,
             "AugMix takes an image alone, got {} too", v.boxes.defined() ? "boxes" : "a mask");
    const double own = shares(2, o.alpha, random)[0];
    const std::vector<double> parts = shares(o.mixture_width, o.alpha, random);
    const detail::Image p(v.image, "AugMix");
    std::vector<float> mix(static_cast<size_t>(p.c * p.h * p.w));
    const auto add = [&](const Tensor& image, double part) {
      const detail::Image q(image, "AugMix");
      detail::each_type(q, [&](auto t) {
        using T = decltype(t);
        for (size_t i = 0; i < mix.size(); ++i)
          mix[i] += static_cast<float>(part) * static_cast<float>(q.data<T>()[i]);
      });
    };
    add(v.image, own);
    // Without Identity, and maybe without the four colour operations after Rotate.
    const size_t left_out = o.all_ops ? 1 : 5;
    for (const double part : parts) {
      Vision chain{v.image, {}, {}, {}};
      const auto depth =
          o.chain_depth > 0 ? o.chain_depth : 1 + static_cast<int64_t>(random.next_below(3));
      for (int64_t i = 0; i < depth; ++i) {
        size_t k = 1 + random.next_below(operations().size() - left_out);
        if (!o.all_ops && k > 5) k += 4;
        const std::string& op = operations()[k];
        const auto bin = static_cast<int64_t>(random.next_below(static_cast<uint64_t>(o.severity)));
        detail::augment(chain, op, magnitude(kMixed, op, bin, 10, v, random), o.interpolation,
                        o.fill);
      }
      add(chain.image, part * (1 - own));
    }
    Tensor out = detail::new_image(p.c, p.h, p.w, v.image.dtype());
    detail::each_type(p, [&](auto t) {
      using T = decltype(t);
      for (size_t i = 0; i < mix.size(); ++i) detail::pixels<T>(out)[i] = detail::stored<T>(mix[i]);
    });
    v.image = out;
  });
}

Example MixUp(const Example& batch, int64_t num_classes, double alpha) {
  NoGradGuard no_grad;
  const Mix m = begin_mix(batch, num_classes, alpha, "MixUp");
  return {batch.x * m.share + roll(batch.x, {1}, {0}) * (1 - m.share),
          mixed_classes(batch.y, num_classes, m.share)};
}

Example CutMix(const Example& batch, int64_t num_classes, double alpha) {
  NoGradGuard no_grad;
  Mix m = begin_mix(batch, num_classes, alpha, "CutMix");
  const int64_t h = batch.x.size(2), w = batch.x.size(3);
  const auto cx = static_cast<int64_t>(m.random.next_below(static_cast<uint64_t>(w)));
  const auto cy = static_cast<int64_t>(m.random.next_below(static_cast<uint64_t>(h)));
  const double r = 0.5 * std::sqrt(1 - m.share);
  const auto rw = static_cast<int64_t>(r * static_cast<double>(w));
  const auto rh = static_cast<int64_t>(r * static_cast<double>(h));
  const int64_t x1 = std::max<int64_t>(cx - rw, 0), x2 = std::min(cx + rw, w);
  const int64_t y1 = std::max<int64_t>(cy - rh, 0), y2 = std::min(cy + rh, h);
  std::vector<uint8_t> inside(static_cast<size_t>(h * w));
  for (int64_t y = y1; y < y2; ++y)
    for (int64_t x = x1; x < x2; ++x) inside[static_cast<size_t>(y * w + x)] = 1;
  const double share = 1 - static_cast<double>((x2 - x1) * (y2 - y1)) / static_cast<double>(h * w);
  const Tensor mask = tensor(inside, Shape(h, w)).to(DType::b8);
  return {where(mask, roll(batch.x, {1}, {0}), batch.x),
          mixed_classes(batch.y, num_classes, share)};
}

}  // namespace tandem::data
