// SPDX-License-Identifier: Apache-2.0
// What `transforms:` of a recipe's pictures may name: the transforms of tandem/data/transforms.h
// with torchvision v2's names, arguments and defaults. A number stands for a range where it does
// there. Not here: Lambda, LinearTransformation, ConvertBoundingBoxFormat (code, matrices and other
// boxes are no part of a recipe) and functions that give several pictures.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cli/model_internal.h"
#include "cli/recipe_internal.h"
#include "tandem/base/nearest.h"
#include "tandem/ops/ops.h"

namespace tandem::cli {

std::string choice(train::Options& o, const std::string& key, const std::vector<std::string>& names,
                   std::optional<std::string> otherwise) {
  const std::string given = o.text(key, std::move(otherwise));
  if (std::find(names.begin(), names.end(), given) != names.end()) return given;
  const std::string near = nearest_word(given, names);
  if (!near.empty()) o.fail(key, fmt::format("there is no '{}', did you mean '{}'?", given, near));
  o.fail(key, fmt::format("there is no '{}'. There are {}", given, fmt::join(names, ", ")));
}

DType dtype_option(train::Options& o, const std::string& key, DType otherwise) {
  const std::string given = o.text(key, to_string(otherwise));
  try {
    return dtype_named(given);
  } catch (const Error& e) {
    o.fail(key, e.message());
  }
}

namespace {

using data::Fill;
using data::Interpolation;
using data::Range;
using data::Sizes;
using data::Transform;
using train::Options;
using Numbers = std::vector<double>;

// ---- arguments

// As many numbers as `counts` has.
Numbers few(Options& o, const char* key, std::optional<Numbers> otherwise,
            std::initializer_list<size_t> counts) {
  Numbers v = o.numbers(key, std::move(otherwise));
  if (std::find(counts.begin(), counts.end(), v.size()) != counts.end()) return v;
  std::string want;
  for (size_t n : counts)
    if (n > 0) want += (want.empty() ? "" : " or ") + std::to_string(n);
  o.fail(key, fmt::format("wants {} number(s), got {}", want, v.size()));
}
Sizes whole_numbers(Options& o, const char* key, const Numbers& v) {
  Sizes out;
  for (double n : v) {
    if (!(std::abs(n) <= 1e9 && n == std::floor(n)))
      o.fail(key, fmt::format("wants whole numbers, got {}", n));
    out.push_back(static_cast<int64_t>(n));
  }
  return out;
}
Sizes size(Options& o, const char* key = "size", std::optional<Numbers> otherwise = {}) {
  return whole_numbers(o, key, few(o, key, std::move(otherwise), {1, 2}));
}
Sizes padding(Options& o, std::optional<Numbers> otherwise) {
  return whole_numbers(o, "padding", few(o, "padding", std::move(otherwise), {0, 1, 2, 4}));
}
// Two numbers.
Range range(Options& o, const char* key, std::optional<Numbers> otherwise = {}) {
  const Numbers v = few(o, key, std::move(otherwise), {2});
  return {v[0], v[1]};
}
// Two numbers, or one for -v .. v.
Range around_zero(Options& o, const char* key, std::optional<Numbers> otherwise = {}) {
  const Numbers v = few(o, key, std::move(otherwise), {1, 2});
  return v.size() == 1 ? Range{-v[0], v[0]} : Range{v[0], v[1]};
}
// Two numbers, or one for 1 - v .. 1 + v, never below 0.
Range around_one(Options& o, const char* key) {
  const Numbers v = few(o, key, Numbers{0}, {1, 2});
  return v.size() == 1 ? Range{std::max(0.0, 1 - v[0]), 1 + v[0]} : Range{v[0], v[1]};
}
// Two numbers, or one twice.
std::array<double, 2> twice(Options& o, const char* key, const Numbers& otherwise) {
  const Numbers v = few(o, key, otherwise, {1, 2});
  return {v[0], v.back()};
}
// Two numbers, or none.
std::optional<Range> maybe(Options& o, const char* key) {
  const Numbers v = few(o, key, Numbers{}, {0, 2});
  if (v.empty()) return {};
  return Range{v[0], v[1]};
}
Fill fill(Options& o, const Fill& otherwise = {0}, const char* key = "fill") {
  return o.numbers(key, otherwise);
}
double chance(Options& o, double otherwise = 0.5) { return o.number("p", otherwise); }

template <class Enum>
Enum one_of(Options& o, const char* key, const std::vector<std::string>& names, Enum otherwise) {
  const std::string given = choice(o, key, names, names[static_cast<size_t>(otherwise)]);
  return static_cast<Enum>(std::find(names.begin(), names.end(), given) - names.begin());
}
Interpolation interpolation(Options& o, Interpolation otherwise) {
  return one_of(o, "interpolation", {"nearest", "nearest_exact", "bilinear", "bicubic"}, otherwise);
}
data::PaddingMode padding_mode(Options& o) {
  return one_of(o, "padding_mode", {"constant", "edge", "reflect", "symmetric"},
                data::PaddingMode::constant);
}
data::ResizeArgs resizing(Options& o) {
  return {interpolation(o, Interpolation::bilinear), o.flag("antialias", true)};
}

std::vector<Transform> inner(Options& o) {
  std::vector<Transform> t = transform_list(o, "transforms");
  if (t.empty()) o.fail("transforms", "wants at least one transform");
  return t;
}

// ---- the table

using Make = Transform (*)(Options&);

const std::map<std::string, Make>& table() {
  static const std::map<std::string, Make> all{
      {"Compose", [](Options& o) { return data::Compose(inner(o)); }},
      {"RandomApply", [](Options& o) { return data::RandomApply(inner(o), chance(o)); }},
      {"RandomChoice",
       [](Options& o) { return data::RandomChoice(inner(o), o.numbers("p", Numbers{})); }},
      {"RandomOrder", [](Options& o) { return data::RandomOrder(inner(o)); }},
      // geometry
      {"Resize",
       [](Options& o) {
         return data::Resize(size(o), {.interpolation = interpolation(o, Interpolation::bilinear),
                                       .max_size = o.whole("max_size", 0),
                                       .antialias = o.flag("antialias", true)});
       }},
      {"ScaleJitter",
       [](Options& o) {
         const Sizes s = size(o, "target_size");
         return data::ScaleJitter({s[0], s.back()}, range(o, "scale_range", Numbers{0.1, 2.0}),
                                  resizing(o));
       }},
      {"RandomShortestSize",
       [](Options& o) {
         return data::RandomShortestSize(
             whole_numbers(o, "min_size", o.numbers("min_size", std::nullopt)),
             o.whole("max_size", 0), resizing(o));
       }},
      {"RandomResize",
       [](Options& o) {
         return data::RandomResize(o.whole("min_size"), o.whole("max_size"), resizing(o));
       }},
      {"CenterCrop", [](Options& o) { return data::CenterCrop(size(o)); }},
      {"RandomCrop",
       [](Options& o) {
         return data::RandomCrop(size(o), {.padding = padding(o, Numbers{}),
                                           .pad_if_needed = o.flag("pad_if_needed", false),
                                           .fill = fill(o),
                                           .padding_mode = padding_mode(o)});
       }},
      {"RandomResizedCrop",
       [](Options& o) {
         return data::RandomResizedCrop(size(o),
                                        {.scale = range(o, "scale", Numbers{0.08, 1.0}),
                                         .ratio = range(o, "ratio", Numbers{3.0 / 4.0, 4.0 / 3.0}),
                                         .interpolation = interpolation(o, Interpolation::bilinear),
                                         .antialias = o.flag("antialias", true)});
       }},
      {"RandomIoUCrop",
       [](Options& o) {
         data::RandomIoUCropOptions c;
         c.min_scale = o.number("min_scale", c.min_scale);
         c.max_scale = o.number("max_scale", c.max_scale);
         c.min_aspect_ratio = o.number("min_aspect_ratio", c.min_aspect_ratio);
         c.max_aspect_ratio = o.number("max_aspect_ratio", c.max_aspect_ratio);
         c.sampler_options = o.numbers("sampler_options", c.sampler_options);
         c.trials = o.whole("trials", c.trials);
         return data::RandomIoUCrop(c);
       }},
      {"RandomHorizontalFlip", [](Options& o) { return data::RandomHorizontalFlip(chance(o)); }},
      {"RandomVerticalFlip", [](Options& o) { return data::RandomVerticalFlip(chance(o)); }},
      {"Pad",
       [](Options& o) { return data::Pad(padding(o, std::nullopt), fill(o), padding_mode(o)); }},
      {"RandomZoomOut",
       [](Options& o) {
         return data::RandomZoomOut(fill(o), range(o, "side_range", Numbers{1.0, 4.0}), chance(o));
       }},
      {"RandomRotation",
       [](Options& o) {
         return data::RandomRotation(around_zero(o, "degrees"),
                                     {.interpolation = interpolation(o, Interpolation::nearest),
                                      .expand = o.flag("expand", false),
                                      .center = maybe(o, "center"),
                                      .fill = fill(o)});
       }},
      {"RandomAffine",
       [](Options& o) {
         Numbers shear = few(o, "shear", Numbers{}, {0, 1, 2, 4});
         if (shear.size() == 1) shear = {-shear[0], shear[0]};
         return data::RandomAffine(around_zero(o, "degrees"),
                                   {.translate = maybe(o, "translate"),
                                    .scale = maybe(o, "scale"),
                                    .shear = std::move(shear),
                                    .interpolation = interpolation(o, Interpolation::nearest),
                                    .fill = fill(o),
                                    .center = maybe(o, "center")});
       }},
      {"RandomPerspective",
       [](Options& o) {
         return data::RandomPerspective({.distortion_scale = o.number("distortion_scale", 0.5),
                                         .p = chance(o),
                                         .interpolation = interpolation(o, Interpolation::bilinear),
                                         .fill = fill(o)});
       }},
      {"ElasticTransform",
       [](Options& o) {
         return data::ElasticTransform({.alpha = twice(o, "alpha", {50}),
                                        .sigma = twice(o, "sigma", {5}),
                                        .interpolation = interpolation(o, Interpolation::bilinear),
                                        .fill = fill(o)});
       }},
      // colour
      {"ColorJitter",
       [](Options& o) {
         return data::ColorJitter({.brightness = around_one(o, "brightness"),
                                   .contrast = around_one(o, "contrast"),
                                   .saturation = around_one(o, "saturation"),
                                   .hue = around_zero(o, "hue", Numbers{0})});
       }},
      {"RandomPhotometricDistort",
       [](Options& o) {
         return data::RandomPhotometricDistort(
             {.brightness = range(o, "brightness", Numbers{0.875, 1.125}),
              .contrast = range(o, "contrast", Numbers{0.5, 1.5}),
              .saturation = range(o, "saturation", Numbers{0.5, 1.5}),
              .hue = range(o, "hue", Numbers{-0.05, 0.05}),
              .p = chance(o)});
       }},
      {"RGB", [](Options&) { return data::RGB(); }},
      {"Grayscale", [](Options& o) { return data::Grayscale(o.whole("num_output_channels", 1)); }},
      {"RandomGrayscale", [](Options& o) { return data::RandomGrayscale(chance(o, 0.1)); }},
      {"GaussianBlur",
       [](Options& o) {
         const Sizes k = size(o, "kernel_size");
         return data::GaussianBlur({k[0], k.back()}, twice(o, "sigma", {0.1, 2.0}));
       }},
      {"RandomInvert", [](Options& o) { return data::RandomInvert(chance(o)); }},
      {"RandomPosterize",
       [](Options& o) { return data::RandomPosterize(o.whole("bits"), chance(o)); }},
      {"RandomSolarize",
       [](Options& o) { return data::RandomSolarize(o.number("threshold"), chance(o)); }},
      {"RandomAdjustSharpness",
       [](Options& o) {
         return data::RandomAdjustSharpness(o.number("sharpness_factor"), chance(o));
       }},
      {"RandomAutocontrast", [](Options& o) { return data::RandomAutocontrast(chance(o)); }},
      {"RandomEqualize", [](Options& o) { return data::RandomEqualize(chance(o)); }},
      {"RandomChannelPermutation", [](Options&) { return data::RandomChannelPermutation(); }},
      // values
      {"Normalize",  // of pictures 0 .. 1, whether or not ToDtype stands before it
       [](Options& o) {
         const Numbers mean = o.numbers("mean", std::nullopt), std = o.numbers("std", std::nullopt);
         return data::Compose({data::ToDtype(DType::f32, true), data::Normalize(mean, std)});
       }},
      {"ToDtype",
       [](Options& o) {
         return data::ToDtype(dtype_option(o, "dtype", DType::f32), o.flag("scale", false));
       }},
      {"ConvertImageDtype",
       [](Options& o) { return data::ConvertImageDtype(dtype_option(o, "dtype", DType::f32)); }},
      {"GaussianNoise",
       [](Options& o) {
         return data::GaussianNoise(o.number("mean", 0.0), o.number("sigma", 0.1),
                                    o.flag("clip", true));
       }},
      {"RandomErasing",
       [](Options& o) {
         return data::RandomErasing({.p = chance(o),
                                     .scale = range(o, "scale", Numbers{0.02, 0.33}),
                                     .ratio = range(o, "ratio", Numbers{0.3, 3.3}),
                                     .value = fill(o, {0}, "value")});
       }},
      // boxes
      {"SanitizeBoundingBoxes",
       [](Options& o) {
         return data::SanitizeBoundingBoxes(o.number("min_size", 1.0), o.number("min_area", 1.0));
       }},
      {"ClampBoundingBoxes", [](Options&) { return data::ClampBoundingBoxes(); }},
      // policies
      {"AutoAugment",
       [](Options& o) {
         return data::AutoAugment(one_of(o, "policy", {"imagenet", "cifar10", "svhn"},
                                         data::AutoAugmentPolicy::imagenet),
                                  interpolation(o, Interpolation::nearest), fill(o, {}));
       }},
      {"RandAugment",
       [](Options& o) {
         return data::RandAugment(o.whole("num_ops", 2), o.whole("magnitude", 9),
                                  o.whole("num_magnitude_bins", 31),
                                  interpolation(o, Interpolation::nearest), fill(o, {}));
       }},
      {"TrivialAugmentWide",
       [](Options& o) {
         return data::TrivialAugmentWide(o.whole("num_magnitude_bins", 31),
                                         interpolation(o, Interpolation::nearest), fill(o, {}));
       }},
      {"AugMix",
       [](Options& o) {
         data::AugMixOptions a;
         a.severity = o.whole("severity", a.severity);
         a.mixture_width = o.whole("mixture_width", a.mixture_width);
         a.chain_depth = o.whole("chain_depth", a.chain_depth);
         a.alpha = o.number("alpha", a.alpha);
         a.all_ops = o.flag("all_ops", a.all_ops);
         a.interpolation = interpolation(o, a.interpolation);
         a.fill = fill(o, a.fill);
         return data::AugMix(a);
       }},
  };
  return all;
}

}  // namespace

std::vector<Transform> transform_list(Options& o, const std::string& key,
                                      const io::Yaml* otherwise) {
  std::vector<std::string> names;
  for (const auto& [name, make] : table()) names.push_back(name);
  std::vector<Transform> out;
  for (Options& one : o.parts(key, otherwise)) {
    out.push_back(table().at(choice(one, "type", names))(one));
    one.finish();
  }
  return out;
}

std::optional<Transform> transform_chain(Options& o, const std::string& key,
                                         const io::Yaml* otherwise) {
  std::vector<Transform> all = transform_list(o, key, otherwise);
  if (all.empty()) return {};
  return data::Compose(std::move(all));
}

data::Vision transformed(const std::optional<Transform>& chain, data::Vision v) {
  if (v.image.dtype() != DType::u8) v.image = round(v.image * 255.0).to(DType::u8);
  if (chain) v = (*chain)(std::move(v));
  if (v.image.dtype() == DType::u8) v.image = data::to_dtype_image(v.image, DType::f32, true);
  return v;
}

}  // namespace tandem::cli
