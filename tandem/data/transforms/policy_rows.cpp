// SPDX-License-Identifier: Apache-2.0
// Rows of the policies: several operations drawn by one rule.
#include "tandem/data/transforms/transform_rows_internal.h"

namespace tandem::data {

constexpr const char* field_names(AutoAugmentPolicy) { return "imagenet cifar10 svhn"; }

namespace detail {
namespace {

template <class V>
void bins_field(V& v, int64_t& bins) {
  v("num_magnitude_bins", bins, {.doc = "steps of the strength's range", .at_least = 1});
}

struct AutoAugmentArguments {
  AutoAugmentPolicy policy = AutoAugmentPolicy::imagenet;
  Interpolation interpolation = Interpolation::nearest;
  Fill fill = {};
  template <class V>
  void fields(V& v) {
    v("policy", policy, {.doc = "the data set that the policy was found on"});
    interpolation_field(v, interpolation);
    fill_field(v, fill);
  }
  Transform make() const { return AutoAugment(policy, interpolation, fill); }
};
struct RandAugmentArguments {
  int64_t num_ops = 2, magnitude = 9, num_magnitude_bins = 31;
  Interpolation interpolation = Interpolation::nearest;
  Fill fill = {};
  template <class V>
  void fields(V& v) {
    v("num_ops", num_ops, {.doc = "operations on each image", .at_least = 0});
    v("magnitude", magnitude, {.doc = "their strength, below num_magnitude_bins", .at_least = 0});
    bins_field(v, num_magnitude_bins);
    interpolation_field(v, interpolation);
    fill_field(v, fill);
  }
  Transform make() const {
    return RandAugment(num_ops, magnitude, num_magnitude_bins, interpolation, fill);
  }
};
struct TrivialAugmentWideArguments {
  int64_t num_magnitude_bins = 31;
  Interpolation interpolation = Interpolation::nearest;
  Fill fill = {};
  template <class V>
  void fields(V& v) {
    bins_field(v, num_magnitude_bins);
    interpolation_field(v, interpolation);
    fill_field(v, fill);
  }
  Transform make() const { return TrivialAugmentWide(num_magnitude_bins, interpolation, fill); }
};

}  // namespace

std::span<const TransformRow> policy_rows() {
  static constexpr TransformRow kRows[] = {
      transform_row<AutoAugmentArguments>(
          "AutoAugment", "Two operations of a policy that was searched for (Cubuk et al. 2019).",
          "{type: AutoAugment, policy: cifar10}"),
      transform_row<RandAugmentArguments>("RandAugment",
                                          "Random operations of one strength (Cubuk et al. 2020).",
                                          "{type: RandAugment, magnitude: 7}"),
      transform_row<TrivialAugmentWideArguments>(
          "TrivialAugmentWide",
          "One random operation of random strength (Mueller and Hutter 2021).",
          "{type: TrivialAugmentWide}"),
      transform_row<OnlyOptions<AugMixOptions, AugMix>>(
          "AugMix",
          "The image mixed with chains of operations (Hendrycks et al. 2020). For images without "
          "boxes and masks.",
          "{type: AugMix, severity: 2}"),
  };
  return kRows;
}

}  // namespace detail
}  // namespace tandem::data
