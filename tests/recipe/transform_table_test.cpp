// SPDX-License-Identifier: Apache-2.0
// Transforms by name: every row is whole, its example runs on an image with boxes and a mask and
// gives what the function gives, and every function of the header has a row.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tandem/data/transforms/transform_table.h"
#include "tandem/tandem.h"
#include "tests/support/component_checks.h"
#include "tests/support/init.h"

namespace tandem::data {
namespace {

Transform made(const std::string& text) {
  const io::Yaml yaml = io::parse_yaml(text, "transform");
  recipe::Options o(&yaml, "", "transform");
  const ChosenTransform chosen = recipe::read_component(o, transforms());
  o.finish();
  return make_transform(chosen);
}

Vision sample() {
  return {(rand({3, 16, 20}) * 255).to(DType::u8),
          tensor({2.0F, 3.0F, 12.0F, 13.0F}).reshape({1, 4}), tensor({int64_t{1}}),
          zeros({1, 16, 20}, DType::u8)};
}

TEST(TransformTable, EveryRowIsWholeAndItsExampleRuns) {
  ASSERT_GT(transforms().rows().size(), 35u);
  for (const TransformRow* row : transforms().rows()) {
    SCOPED_TRACE(row->name);
    check_component(transforms(), *row);
    manual_seed(3);
    Vision v = sample();
    if (std::string(row->name) == "AugMix") v.boxes = v.labels = v.mask = Tensor();
    const Vision out = made(row->example)(v);
    EXPECT_EQ(out.image.dim(), 3);
    EXPECT_GT(out.image.numel(), 0);
    if (v.mask.defined()) {
      EXPECT_EQ(out.mask.size(1), out.image.size(1));
    }
  }
}

TEST(TransformTable, EveryFunctionOfTheHeaderHasARow) {
  std::ifstream in("tandem/data/transforms/transforms.h");
  const std::string header((std::istreambuf_iterator<char>(in)), {});
  const std::regex declared(R"(TD_API Transform (\w+)\()");
  std::set<std::string> want, got;
  for (std::sregex_iterator it(header.begin(), header.end(), declared), end; it != end; ++it)
    want.insert((*it)[1]);
  // Functions, matrices and other boxes have no place in a recipe.
  for (const char* no : {"Lambda", "LinearTransformation", "ConvertBoundingBoxFormat"})
    EXPECT_EQ(want.erase(no), 1u) << no;
  for (const TransformRow* row : transforms().rows()) got.insert(row->name);
  for (const std::string& name : want) EXPECT_TRUE(got.count(name)) << name;
}

TEST(TransformTable, RowsGiveWhatTheFunctionsGive) {
  // A number stands for a range, for both sides, or for as many as there are.
  const std::pair<const char*, Transform> kCases[] = {
      {"{type: Resize, size: 8}", Resize({8})},
      {"{type: Resize, size: [8, 9], interpolation: nearest}",
       Resize({8, 9}, {.interpolation = Interpolation::nearest})},
      {"{type: RandomCrop, size: 10, padding: [2, 1], padding_mode: reflect}",
       RandomCrop({10}, {.padding = {2, 1}, .padding_mode = PaddingMode::reflect})},
      {"{type: RandomRotation, degrees: 20, center: [3, 4], fill: 7}",
       RandomRotation({-20, 20}, {.center = std::array<double, 2>{3, 4}, .fill = {7}})},
      {"{type: RandomRotation, degrees: [5, 20], center: null}", RandomRotation({5, 20})},
      {"{type: RandomAffine, degrees: 0, shear: 4, scale: [0.9, 1.1]}",
       RandomAffine({0, 0}, {.scale = Range{0.9, 1.1}, .shear = {-4, 4}})},
      {"{type: ColorJitter, brightness: 0.3, contrast: [0.5, 0.6], saturation: 2, hue: 0.1}",
       ColorJitter({.brightness = {0.7, 1.3},
                    .contrast = {0.5, 0.6},
                    .saturation = {0, 3},
                    .hue = {-0.1, 0.1}})},
      {"{type: GaussianBlur, kernel_size: 3, sigma: 1.5}", GaussianBlur({3, 3}, {1.5, 1.5})},
      {"{type: ElasticTransform, alpha: 5, sigma: [1, 2]}",
       ElasticTransform({.alpha = {5, 5}, .sigma = {1, 2}})},
      {"{type: AutoAugment, policy: svhn}", AutoAugment(AutoAugmentPolicy::svhn)},
      {"{type: Normalize, mean: [0.5], std: 0.25}",
       Compose({ToDtype(DType::f32, true), Normalize({0.5}, {0.25})})},
      {"{type: RandomChoice, p: [1, 3], transforms: [{type: RandomInvert}, {type: RGB}]}",
       RandomChoice({RandomInvert(), RGB()}, {1, 3})},
  };
  for (const auto& [text, function] : kCases)
    for (const uint64_t seed : {1, 2, 3}) {
      manual_seed(seed);
      const Tensor image = (rand({3, 16, 20}) * 255).to(DType::u8);
      manual_seed(seed + 10);
      const Tensor got = made(text)(image);
      manual_seed(seed + 10);
      EXPECT_TRUE(equal(got, function(image))) << text;
    }
}

TEST(TransformTable, MistakesAreNamed) {
  const std::pair<const char*, const char*> kCases[] = {
      {"{type: RandomCorp, size: 8}",
       "there is no transform 'RandomCorp', did you mean 'RandomCrop'?"},
      {"{type: Resize}", "size: is missing"},
      {"{type: Resize, size: [1, 2, 3]}", "size: expected 1 or 2 numbers, got 3"},
      {"{type: Resize, size: 0}", "size: expected 1 or more pixels, got 0"},
      {"{type: RandomInvert, p: 2}", "p: expected a number from 0 to 1, got 2"},
      {"{type: Pad, padding: [1, 2, 3]}", "padding: expected 1 or 2 or 4 numbers, got 3"},
      {"{type: RandomOrder, transforms: [{type: RGB}, {type: Rgb}]}",
       "transforms.1.type: there is no transform 'Rgb', did you mean 'RGB'?"},
      {"{type: RandomOrder}", "transforms: is missing"},
      {"{type: RandomOrder, transforms: []}", "expected at least one"},
  };
  for (const auto& [text, want] : kCases) {
    const std::string what = error_of([&, t = text] { made(t); });
    EXPECT_NE(what.find(want), what.npos) << what;
  }
}

}  // namespace
}  // namespace tandem::data
