// SPDX-License-Identifier: Apache-2.0
// Rows of the transforms of values, dtypes and boxes.
#include "tandem/data/transforms/transform_rows_internal.h"

namespace tandem::data::detail {
namespace {

DType dtype_of(const std::string& name) {
  return name == "uint8" || name == "u8" ? DType::u8 : DType::f32;
}
template <class V>
void dtype_field(V& v, std::string& dtype) {
  v("dtype", dtype, {.doc = "of the result", .one_of = "float32 uint8 f32 u8"});
}

/// Of images 0 .. 1, whether or not ToDtype stands before it.
struct NormalizeArguments {
  std::vector<double> mean = {}, std = {};
  template <class V>
  void fields(V& v) {
    v("mean", mean,
      {.doc = "of each channel, or one for all", .single = Single::itself, .required = true});
    v("std", std,
      {.doc = "standard deviation of each channel, or one for all",
       .above = 0,
       .single = Single::itself,
       .required = true});
  }
  Transform make() const { return Compose({ToDtype(DType::f32, true), Normalize(mean, std)}); }
};
struct ToDtypeArguments {
  std::string dtype = "float32";
  bool scale = false;
  template <class V>
  void fields(V& v) {
    dtype_field(v, dtype);
    v("scale", scale, {.doc = "bring values to the dtype's range, 0 to 255 or 0 to 1"});
  }
  Transform make() const { return ToDtype(dtype_of(dtype), scale); }
};
struct ConvertImageDtypeArguments {
  std::string dtype = "float32";
  template <class V>
  void fields(V& v) {
    dtype_field(v, dtype);
  }
  Transform make() const { return ConvertImageDtype(dtype_of(dtype)); }
};
struct GaussianNoiseArguments {
  double mean = 0, sigma = 0.1;
  bool clip = true;
  template <class V>
  void fields(V& v) {
    v("mean", mean, {.doc = "of the noise, as a share of the range of values"});
    v("sigma", sigma, {.doc = "its standard deviation, the same way", .at_least = 0});
    v("clip", clip, {.doc = "keep the result within the range"});
  }
  Transform make() const { return GaussianNoise(mean, sigma, clip); }
};
struct SanitizeArguments {
  double min_size = 1, min_area = 1;
  template <class V>
  void fields(V& v) {
    v("min_size", min_size, {.doc = "least width and height of a box", .unit = "pixels"});
    v("min_area", min_area, {.doc = "least area of a box", .unit = "pixels"});
  }
  Transform make() const { return SanitizeBoundingBoxes(min_size, min_area); }
};

}  // namespace

std::span<const TransformRow> value_rows() {
  static constexpr TransformRow kRows[] = {
      transform_row<NormalizeArguments>(
          "Normalize",
          "(x - mean) / std of each channel of values 0 to 1; needs no ToDtype before it.",
          "{type: Normalize, mean: [0.5], std: [0.25]}"),
      transform_row<ToDtypeArguments>("ToDtype", "Another dtype.", "{type: ToDtype, scale: true}"),
      transform_row<ConvertImageDtypeArguments>("ConvertImageDtype",
                                                "Another dtype, with its range of values.",
                                                "{type: ConvertImageDtype}"),
      transform_row<GaussianNoiseArguments>("GaussianNoise", "A normal draw added to each value.",
                                            "{type: GaussianNoise, sigma: 0.05}"),
      transform_row<OnlyOptions<RandomErasingOptions, RandomErasing>>(
          "RandomErasing", "A random rectangle of one value.", "{type: RandomErasing, p: 0.3}"),
      transform_row<SanitizeArguments>("SanitizeBoundingBoxes",
                                       "Boxes that are too small go, with their labels.",
                                       "{type: SanitizeBoundingBoxes, min_size: 2}"),
      plain_row<ClampBoundingBoxes>("ClampBoundingBoxes", "Boxes are cut to the image.",
                                    "{type: ClampBoundingBoxes}"),
  };
  return kRows;
}

}  // namespace tandem::data::detail
