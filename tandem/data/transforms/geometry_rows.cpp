// SPDX-License-Identifier: Apache-2.0
// Rows of the transforms that move pixels, boxes and masks.
#include "tandem/data/transforms/transform_rows_internal.h"

namespace tandem::data::detail {
namespace {

struct ResizeArguments {
  Sizes size = {};
  ResizeOptions options = {};
  template <class V>
  void fields(V& v) {
    size_field(v, size, "of the shorter side, or height and width");
    options.fields(v);
  }
  Transform make() const { return Resize(size, options); }
};
struct ScaleJitterArguments {
  Sizes target_size = {};
  Range scale_range = {0.1, 2.0};
  ResizeArgs args = {};
  template <class V>
  void fields(V& v) {
    size_field(v, target_size, "that the image is fitted into", "target_size");
    v("scale_range", scale_range, {.doc = "range of the factor on top of that", .above = 0});
    resize_fields(v, args);
  }
  Transform make() const {
    return ScaleJitter({target_size[0], target_size.back()}, scale_range, args);
  }
};
struct RandomShortestSizeArguments {
  Sizes min_size = {};
  int64_t max_size = 0;
  ResizeArgs args = {};
  template <class V>
  void fields(V& v) {
    v("min_size", min_size,
      {.doc = "sizes of the shorter side, of which one is drawn",
       .unit = "pixels",
       .at_least = 1,
       .single = Single::itself,
       .required = true});
    v("max_size", max_size, {.doc = "most pixels of the longer side; 0: any", .at_least = 0});
    resize_fields(v, args);
  }
  Transform make() const { return RandomShortestSize(min_size, max_size, args); }
};
struct RandomResizeArguments {
  int64_t min_size = 1, max_size = 2;
  ResizeArgs args = {};
  template <class V>
  void fields(V& v) {
    v("min_size", min_size,
      {.doc = "least size of the shorter side", .unit = "pixels", .at_least = 1, .required = true});
    v("max_size", max_size,
      {.doc = "one more than its largest size", .unit = "pixels", .at_least = 2, .required = true});
    resize_fields(v, args);
  }
  Transform make() const { return RandomResize(min_size, max_size, args); }
};
struct CenterCropArguments {
  Sizes size = {};
  template <class V>
  void fields(V& v) {
    size_field(v, size, "of the crop: both sides, or height and width");
  }
  Transform make() const { return CenterCrop(size); }
};
template <class Options, auto function>
struct CropArguments {
  Sizes size = {};
  Options options = {};
  template <class V>
  void fields(V& v) {
    size_field(v, size, "of the result: both sides, or height and width");
    options.fields(v);
  }
  Transform make() const { return function(size, options); }
};
struct PadArguments {
  Sizes padding = {};
  Fill fill = {0};
  PaddingMode padding_mode = PaddingMode::constant;
  template <class V>
  void fields(V& v) {
    v("padding", padding,
      {.doc = "all sides, sides and top, or left, top, right, bottom",
       .unit = "pixels",
       .counts = counts(1, 2, 4),
       .required = true});
    fill_field(v, fill, "value of padded pixels, one or one per channel");
    v("padding_mode", padding_mode, {.doc = "what padded pixels hold"});
  }
  Transform make() const { return Pad(padding, fill, padding_mode); }
};
struct RandomZoomOutArguments {
  Fill fill = {0};
  Range side_range = {1.0, 4.0};
  double p = 0.5;
  template <class V>
  void fields(V& v) {
    fill_field(v, fill, "value of the canvas, one or one per channel");
    v("side_range", side_range,
      {.doc = "range of the canvas's sides over the image's", .at_least = 1});
    probability_field(v, p);
  }
  Transform make() const { return RandomZoomOut(fill, side_range, p); }
};
struct RandomRotationArguments {
  Range degrees = {0, 0};
  RandomRotationOptions options = {};
  template <class V>
  void fields(V& v) {
    degrees_field(v, degrees);
    options.fields(v);
  }
  Transform make() const { return RandomRotation(degrees, options); }
};
struct RandomAffineArguments {
  Range degrees = {0, 0};
  RandomAffineOptions options = {};
  template <class V>
  void fields(V& v) {
    degrees_field(v, degrees);
    options.fields(v);
  }
  Transform make() const {
    RandomAffineOptions o = options;
    if (o.shear.size() == 1) o.shear = {-o.shear[0], o.shear[0]};
    return RandomAffine(degrees, o);
  }
};

}  // namespace

std::span<const TransformRow> geometry_rows() {
  static constexpr TransformRow kRows[] = {
      transform_row<ResizeArguments>("Resize", "Another size.", "{type: Resize, size: 8}"),
      transform_row<ScaleJitterArguments>(
          "ScaleJitter", "As large as fits target_size, times a random factor.",
          "{type: ScaleJitter, target_size: [8, 8], scale_range: [0.8, 1.2]}"),
      transform_row<RandomShortestSizeArguments>(
          "RandomShortestSize", "The shorter side gets one of several sizes.",
          "{type: RandomShortestSize, min_size: [8, 10, 12], max_size: 16}"),
      transform_row<RandomResizeArguments>("RandomResize",
                                           "The shorter side gets a random size of a range.",
                                           "{type: RandomResize, min_size: 6, max_size: 13}"),
      transform_row<CenterCropArguments>("CenterCrop", "The middle of the image.",
                                         "{type: CenterCrop, size: 6}"),
      transform_row<CropArguments<RandomCropOptions, RandomCrop>>(
          "RandomCrop", "A random piece of the image.", "{type: RandomCrop, size: 8, padding: 1}"),
      transform_row<CropArguments<RandomResizedCropOptions, RandomResizedCrop>>(
          "RandomResizedCrop", "A random piece of random shape, brought to one size.",
          "{type: RandomResizedCrop, size: 8, scale: [0.5, 1]}"),
      transform_row<OnlyOptions<RandomIoUCropOptions, RandomIoUCrop>>(
          "RandomIoUCrop",
          "SSD's crop: it holds the middle of a box and overlaps one by a drawn share. For images "
          "with boxes.",
          "{type: RandomIoUCrop, min_scale: 0.5}"),
      transform_row<OnlyProbability<RandomHorizontalFlip>>(
          "RandomHorizontalFlip", "Left and right change places.", "{type: RandomHorizontalFlip}"),
      transform_row<OnlyProbability<RandomVerticalFlip>>(
          "RandomVerticalFlip", "Top and bottom change places.", "{type: RandomVerticalFlip}"),
      transform_row<PadArguments>("Pad", "Pixels around the image.", "{type: Pad, padding: 2}"),
      transform_row<RandomZoomOutArguments>("RandomZoomOut",
                                            "The image somewhere on a larger canvas.",
                                            "{type: RandomZoomOut, side_range: [1, 2]}"),
      transform_row<RandomRotationArguments>("RandomRotation", "A turn by a random angle.",
                                             "{type: RandomRotation, degrees: 10}"),
      transform_row<RandomAffineArguments>(
          "RandomAffine", "A random turn, shift, scale and shear.",
          "{type: RandomAffine, degrees: 5, translate: [0.1, 0.1], shear: 3}"),
      transform_row<OnlyOptions<RandomPerspectiveOptions, RandomPerspective>>(
          "RandomPerspective", "The image as seen from a random side.",
          "{type: RandomPerspective}"),
      transform_row<OnlyOptions<ElasticTransformOptions, ElasticTransform>>(
          "ElasticTransform", "Pixels move by blurred noise.",
          "{type: ElasticTransform, alpha: 5, sigma: 1}"),
  };
  return kRows;
}

}  // namespace tandem::data::detail
