// SPDX-License-Identifier: Apache-2.0
// Rows of the transforms that say how many and which of others are applied.
#include "tandem/data/transforms/transform_rows_internal.h"

namespace tandem::data::detail {
namespace {

template <class V>
void transforms_field(V& v, std::vector<ChosenTransform>& transforms) {
  v("transforms", transforms, {.doc = "the transforms, at least one", .required = true});
}

template <auto function>
struct OfOthers {
  std::vector<ChosenTransform> transforms = {};
  template <class V>
  void fields(V& v) {
    transforms_field(v, transforms);
  }
  Transform make() const { return function(make_transforms(transforms)); }
};
struct RandomApplyArguments {
  std::vector<ChosenTransform> transforms = {};
  double p = 0.5;
  template <class V>
  void fields(V& v) {
    transforms_field(v, transforms);
    probability_field(v, p);
  }
  Transform make() const { return RandomApply(make_transforms(transforms), p); }
};
struct RandomChoiceArguments {
  std::vector<ChosenTransform> transforms = {};
  std::vector<double> p = {};
  template <class V>
  void fields(V& v) {
    transforms_field(v, transforms);
    v("p", p, {.doc = "weight of each of them; none: all the same", .at_least = 0});
  }
  Transform make() const { return RandomChoice(make_transforms(transforms), p); }
};

}  // namespace

std::span<const TransformRow> choice_rows() {
  static constexpr TransformRow kRows[] = {
      transform_row<OfOthers<Compose>>("Compose", "All of them, one after the other.",
                                       "{type: Compose, transforms: [{type: RGB}]}"),
      transform_row<RandomApplyArguments>(
          "RandomApply", "All of them or none.",
          "{type: RandomApply, p: 0.8, transforms: [{type: ColorJitter, brightness: 0.4}]}"),
      transform_row<RandomChoiceArguments>(
          "RandomChoice", "One of them.",
          "{type: RandomChoice, transforms: [{type: RandomInvert}, {type: RandomEqualize}]}"),
      transform_row<OfOthers<RandomOrder>>(
          "RandomOrder", "All of them in a random order.",
          "{type: RandomOrder, transforms: [{type: RandomInvert}, {type: GaussianNoise}]}"),
  };
  return kRows;
}

}  // namespace tandem::data::detail
