// SPDX-License-Identifier: Apache-2.0
// Options of the transforms, with torchvision.transforms.v2's names and defaults. `fields` names
// each with what it is: recipes, the reference page and programs that make a transform by name read
// it (data/transforms/transform_table.h).
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "tandem/base/fields.h"
#include "tandem/data/transforms/image_ops.h"

namespace tandem::data {

constexpr const char* field_names(Interpolation) {
  return "nearest nearest_exact bilinear bicubic";
}
constexpr const char* field_names(PaddingMode) { return "constant edge reflect symmetric"; }

using Range = std::array<double, 2>;
using Sizes = std::vector<int64_t>;  ///< {both} or {height, width}

struct ResizeOptions {
  Interpolation interpolation = Interpolation::bilinear;
  int64_t max_size = 0;
  bool antialias = true;

  template <class V>
  void fields(V& v) {
    v("interpolation", interpolation, {.doc = "how pixels between pixels are computed"});
    v("max_size", max_size,
      {.doc = "most pixels of the longer side, with one size; 0: any", .at_least = 0});
    v("antialias", antialias, {.doc = "average over the pixels that one new pixel covers"});
  }
};
struct RandomCropOptions {
  Sizes padding = {};
  bool pad_if_needed = false;
  Fill fill = {0};
  PaddingMode padding_mode = PaddingMode::constant;

  template <class V>
  void fields(V& v) {
    v("padding", padding,
      {.doc = "pixels around the image before the crop: one, two or four numbers",
       .counts = counts(0, 1, 2, 4)});
    v("pad_if_needed", pad_if_needed, {.doc = "pad an image that is smaller than the crop"});
    v("fill", fill,
      {.doc = "value of padded pixels, one or one per channel", .single = Single::itself});
    v("padding_mode", padding_mode, {.doc = "what padded pixels hold"});
  }
};
struct RandomResizedCropOptions {
  Range scale = {0.08, 1.0}, ratio = {3.0 / 4.0, 4.0 / 3.0};
  Interpolation interpolation = Interpolation::bilinear;
  bool antialias = true;

  template <class V>
  void fields(V& v) {
    v("scale", scale, {.doc = "range of the crop's share of the image"});
    v("ratio", ratio, {.doc = "range of width over height"});
    v("interpolation", interpolation, {.doc = "how pixels between pixels are computed"});
    v("antialias", antialias, {.doc = "average over the pixels that one new pixel covers"});
  }
};
struct RandomIoUCropOptions {
  double min_scale = 0.3, max_scale = 1.0;
  double min_aspect_ratio = 0.5, max_aspect_ratio = 2.0;
  std::vector<double> sampler_options = {0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0};
  int64_t trials = 40;

  template <class V>
  void fields(V& v) {
    v("min_scale", min_scale, {.doc = "least share of each side"});
    v("max_scale", max_scale, {.doc = "largest share of each side"});
    v("min_aspect_ratio", min_aspect_ratio, {.doc = "least width over height"});
    v("max_aspect_ratio", max_aspect_ratio, {.doc = "largest width over height"});
    v("sampler_options", sampler_options,
      {.doc = "overlaps of which one is drawn; 1 stands for the whole image"});
    v("trials", trials,
      {.doc = "crops tried before another overlap is drawn (100 times, then none is cut)",
       .at_least = 1});
  }
};
struct RandomRotationOptions {
  Interpolation interpolation = Interpolation::nearest;
  bool expand = false;
  std::optional<std::array<double, 2>> center = {};
  Fill fill = {0};

  template <class V>
  void fields(V& v) {
    v("interpolation", interpolation, {.doc = "how pixels between pixels are computed"});
    v("expand", expand, {.doc = "enlarge the image so that it holds all of the turned one"});
    v("center", center, {.doc = "point [x, y] to turn about; default: the middle"});
    v("fill", fill,
      {.doc = "value outside the image, one or one per channel", .single = Single::itself});
  }
};
struct RandomAffineOptions {
  std::optional<Range> translate = {};
  std::optional<Range> scale = {};
  std::vector<double> shear = {};  ///< {x from, x to} or {x from, x to, y from, y to}
  Interpolation interpolation = Interpolation::nearest;
  Fill fill = {0};
  std::optional<std::array<double, 2>> center = {};

  template <class V>
  void fields(V& v) {
    v("translate", translate, {.doc = "largest shifts as shares of width and height"});
    v("scale", scale, {.doc = "range of the scale"});
    v("shear", shear,
      {.doc = "range of degrees along x, or along x and y", .counts = counts(0, 1, 2, 4)});
    v("interpolation", interpolation, {.doc = "how pixels between pixels are computed"});
    v("fill", fill,
      {.doc = "value outside the image, one or one per channel", .single = Single::itself});
    v("center", center, {.doc = "point [x, y] that stays; default: the middle"});
  }
};
struct RandomPerspectiveOptions {
  double distortion_scale = 0.5, p = 0.5;
  Interpolation interpolation = Interpolation::bilinear;
  Fill fill = {0};

  template <class V>
  void fields(V& v) {
    v("distortion_scale", distortion_scale,
      {.doc = "how far corners move, 0 to 1", .at_least = 0, .at_most = 1});
    v("p", p, {.doc = "probability", .at_least = 0, .at_most = 1});
    v("interpolation", interpolation, {.doc = "how pixels between pixels are computed"});
    v("fill", fill,
      {.doc = "value outside the image, one or one per channel", .single = Single::itself});
  }
};
struct ElasticTransformOptions {
  std::array<double, 2> alpha = {50, 50}, sigma = {5, 5};
  Interpolation interpolation = Interpolation::bilinear;
  Fill fill = {0};

  template <class V>
  void fields(V& v) {
    v("alpha", alpha,
      {.doc = "how far pixels move in x and y: times the blurred noise, in half pixels",
       .single = Single::twice});
    v("sigma", sigma,
      {.doc = "blur of the noise in x and y, in pixels; 0: none", .single = Single::twice});
    v("interpolation", interpolation, {.doc = "how pixels between pixels are computed"});
    v("fill", fill,
      {.doc = "value outside the image, one or one per channel", .single = Single::itself});
  }
};
struct ColorJitterOptions {
  /// Ranges of factors (of hue: of shifts); {1, 1} (hue {0, 0}) changes nothing. torchvision's
  /// number b stands for {1 - b, 1 + b}.
  Range brightness = {1, 1}, contrast = {1, 1}, saturation = {1, 1}, hue = {0, 0};

  template <class V>
  void fields(V& v) {
    v("brightness", brightness,
      {.doc = "range of the factor of brightness", .single = Single::around_one});
    v("contrast", contrast,
      {.doc = "range of the factor of contrast", .single = Single::around_one});
    v("saturation", saturation,
      {.doc = "range of the factor of saturation", .single = Single::around_one});
    v("hue", hue,
      {.doc = "range of the shift of hue, within -0.5 to 0.5", .single = Single::around_zero});
  }
};
struct RandomPhotometricDistortOptions {
  Range brightness = {0.875, 1.125}, contrast = {0.5, 1.5}, saturation = {0.5, 1.5},
        hue = {-0.05, 0.05};
  double p = 0.5;

  template <class V>
  void fields(V& v) {
    v("brightness", brightness, {.doc = "range of the factor of brightness"});
    v("contrast", contrast, {.doc = "range of the factor of contrast"});
    v("saturation", saturation, {.doc = "range of the factor of saturation"});
    v("hue", hue, {.doc = "range of the shift of hue, within -0.5 to 0.5"});
    v("p", p, {.doc = "probability of each change", .at_least = 0, .at_most = 1});
  }
};
struct RandomErasingOptions {
  double p = 0.5;
  Range scale = {0.02, 0.33}, ratio = {0.3, 3.3};
  Fill value = {0};

  template <class V>
  void fields(V& v) {
    v("p", p, {.doc = "probability", .at_least = 0, .at_most = 1});
    v("scale", scale, {.doc = "range of the rectangle's share of the image"});
    v("ratio", ratio, {.doc = "range of its height over its width"});
    v("value", value,
      {.doc = "value of erased pixels, one or one per channel", .single = Single::itself});
  }
};
struct AugMixOptions {
  int64_t severity = 3;
  int64_t mixture_width = 3;
  int64_t chain_depth = -1;
  double alpha = 1.0;
  bool all_ops = true;
  Interpolation interpolation = Interpolation::bilinear;
  Fill fill = {};

  template <class V>
  void fields(V& v) {
    v("severity", severity,
      {.doc = "strength of the operations, 1 to 10", .at_least = 1, .at_most = 10});
    v("mixture_width", mixture_width, {.doc = "chains that are mixed", .at_least = 1});
    v("chain_depth", chain_depth, {.doc = "operations in a chain; not above 0: 1 to 3, drawn"});
    v("alpha", alpha,
      {.doc = "of the Dirichlet and Beta distributions that weights are drawn from", .above = 0});
    v("all_ops", all_ops, {.doc = "use brightness, color, contrast and sharpness too"});
    v("interpolation", interpolation, {.doc = "how pixels between pixels are computed"});
    v("fill", fill,
      {.doc = "value outside the image, one or one per channel", .single = Single::itself});
  }
};

}  // namespace tandem::data
