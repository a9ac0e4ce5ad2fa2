// SPDX-License-Identifier: Apache-2.0
// Rows of the transforms of colours.
#include "tandem/data/transforms/transform_rows_internal.h"

namespace tandem::data::detail {
namespace {

struct GrayscaleArguments {
  int64_t num_output_channels = 1;
  template <class V>
  void fields(V& v) {
    v("num_output_channels", num_output_channels,
      {.doc = "1, or 3 equal ones", .at_least = 1, .at_most = 3});
  }
  Transform make() const { return Grayscale(num_output_channels); }
};
struct RandomGrayscaleArguments {
  double p = 0.1;
  template <class V>
  void fields(V& v) {
    probability_field(v, p);
  }
  Transform make() const { return RandomGrayscale(p); }
};
struct GaussianBlurArguments {
  Sizes kernel_size = {};
  Range sigma = {0.1, 2.0};
  template <class V>
  void fields(V& v) {
    size_field(v, kernel_size, "width and height of the kernel, odd; one number for both",
               "kernel_size");
    v("sigma", sigma,
      {.doc = "range of the blur; a number stands for itself",
       .unit = "pixels",
       .above = 0,
       .single = Single::twice});
  }
  Transform make() const { return GaussianBlur({kernel_size[0], kernel_size.back()}, sigma); }
};
struct RandomPosterizeArguments {
  int64_t bits = 8;
  double p = 0.5;
  template <class V>
  void fields(V& v) {
    v("bits", bits,
      {.doc = "bits that are kept of each value", .at_least = 0, .at_most = 8, .required = true});
    probability_field(v, p);
  }
  Transform make() const { return RandomPosterize(bits, p); }
};
struct RandomSolarizeArguments {
  double threshold = 0, p = 0.5;
  template <class V>
  void fields(V& v) {
    v("threshold", threshold,
      {.doc = "values from here on are inverted, in the image's own unit", .required = true});
    probability_field(v, p);
  }
  Transform make() const { return RandomSolarize(threshold, p); }
};
struct RandomAdjustSharpnessArguments {
  double sharpness_factor = 1, p = 0.5;
  template <class V>
  void fields(V& v) {
    v("sharpness_factor", sharpness_factor,
      {.doc = "0 blurs, 1 changes nothing, 2 sharpens", .at_least = 0, .required = true});
    probability_field(v, p);
  }
  Transform make() const { return RandomAdjustSharpness(sharpness_factor, p); }
};

}  // namespace

std::span<const TransformRow> color_rows() {
  static constexpr TransformRow kRows[] = {
      transform_row<OnlyOptions<ColorJitterOptions, ColorJitter>>(
          "ColorJitter", "Random brightness, contrast, saturation and hue.",
          "{type: ColorJitter, brightness: 0.2, contrast: 0.2, hue: 0.05}"),
      transform_row<OnlyOptions<RandomPhotometricDistortOptions, RandomPhotometricDistort>>(
          "RandomPhotometricDistort", "SSD's distortion of colours.",
          "{type: RandomPhotometricDistort}"),
      plain_row<RGB>("RGB", "One channel becomes three equal ones.", "{type: RGB}"),
      transform_row<GrayscaleArguments>("Grayscale", "The luminance of the colours.",
                                        "{type: Grayscale, num_output_channels: 3}"),
      transform_row<RandomGrayscaleArguments>(
          "RandomGrayscale", "Their luminance, in as many channels.", "{type: RandomGrayscale}"),
      transform_row<GaussianBlurArguments>("GaussianBlur", "A Gaussian blur of random width.",
                                           "{type: GaussianBlur, kernel_size: 3}"),
      transform_row<OnlyProbability<RandomInvert>>("RandomInvert", "Black and white change places.",
                                                   "{type: RandomInvert}"),
      transform_row<RandomPosterizeArguments>("RandomPosterize", "Fewer bits of each value.",
                                              "{type: RandomPosterize, bits: 3}"),
      transform_row<RandomSolarizeArguments>("RandomSolarize", "Bright values are inverted.",
                                             "{type: RandomSolarize, threshold: 128}"),
      transform_row<RandomAdjustSharpnessArguments>(
          "RandomAdjustSharpness", "Blurred or sharpened.",
          "{type: RandomAdjustSharpness, sharpness_factor: 2}"),
      transform_row<OnlyProbability<RandomAutocontrast>>(
          "RandomAutocontrast", "Each channel stretched to the whole range.",
          "{type: RandomAutocontrast}"),
      transform_row<OnlyProbability<RandomEqualize>>(
          "RandomEqualize", "Each channel's values spread evenly.", "{type: RandomEqualize}"),
      plain_row<RandomChannelPermutation>("RandomChannelPermutation", "Channels in a random order.",
                                          "{type: RandomChannelPermutation}"),
  };
  return kRows;
}

}  // namespace tandem::data::detail
