// SPDX-License-Identifier: Apache-2.0
// The data set "voc_crops": what lies in the boxes of Pascal VOC's form, as images with a class.
#include <algorithm>
#include <cmath>

#include "tandem/data/sets/vision_datasets.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/components/source_fields_internal.h"

namespace tandem::recipe {
namespace {

using data::Example;

/// Crops of one size, u8 [3, size, size], all in memory.
struct Crops {
  static constexpr const char* kName = "voc_crops";
  std::vector<Tensor> images;
  std::vector<int64_t> labels;
  int64_t size() const { return static_cast<int64_t>(images.size()); }
  Example get(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    return {images[at].to(DType::f32) / 255.0, tensor(labels[at])};
  }
};

struct CropsSource {
  std::string root = {}, train = "train", val = "val", test = "test";
  std::vector<std::string> classes = {};
  AugmentOptions augment = {};
  BatchOptions batches = {};
  int64_t size = 64;
  bool skip_damaged = false;

  template <class V>
  void fields(V& v) {
    root_field(v, root, "folder in Pascal VOC's form; default: TANDEM_DATA's bccd");
    v("train", train, {.doc = "list of the training images, in ImageSets/Main"});
    v("val", val, {.doc = "list of the validation's; empty: none"});
    v("test", test, {.doc = "list of the test's; empty: none"});
    v("classes", classes, {.doc = "their names in order; none: those that occur, sorted"});
    v("size", size,
      {.doc = "side that the boxes' contents are brought to", .unit = "pixels", .at_least = 1});
    augment.fields(v);
    batches.fields(v);
    skip_field(v, skip_damaged);
  }
};

Tensor cropped(const data::Detection& d, int64_t box, int64_t size) {
  constexpr float kLeast = 1;
  const std::vector<float> b = d.boxes.select(0, box).to_vector<float>();
  const auto whole = [](float v, int64_t limit) {
    return std::clamp<int64_t>(static_cast<int64_t>(std::lround(v)), 0, limit);
  };
  const int64_t h = d.image.size(1), w = d.image.size(2);
  const int64_t left = whole(b[0], w - 1), top = whole(b[1], h - 1);
  const int64_t right = std::max(whole(std::max(b[2], b[0] + kLeast), w), left + 1),
                below = std::max(whole(std::max(b[3], b[1] + kLeast), h), top + 1);
  return data::resize_image(data::crop_image(d.image, top, left, below - top, right - left), size,
                            size);
}

Crops crops_of(const data::VOCDetection& files, int64_t size) {
  Crops out;
  for (int64_t i = 0; i < files.size(); ++i) {
    const data::Detection d = files.get(i);
    const std::vector<int64_t> labels = d.labels.to_vector<int64_t>();
    for (size_t k = 0; k < labels.size(); ++k) {
      out.images.push_back(cropped(d, static_cast<int64_t>(k), size));
      out.labels.push_back(labels[k]);
    }
  }
  return out;
}

RecipeData crops(const CropsSource& s, const Options& o, uint64_t seed) {
  const std::string root = root_of(o, s.root, "bccd");
  std::vector<std::string> classes = s.classes;
  std::vector<std::function<int64_t()>> damaged;
  const auto part = [&](const std::string& set) {
    const data::VOCDetection files(
        root, {.image_set = set, .classes = classes, .skip_damaged = s.skip_damaged});
    classes = files.classes();
    if (s.skip_damaged) damaged.push_back(damaged_in(files));
    return samples(crops_of(files, s.size), seed);
  };
  Rows rows{.train = part(s.train)};
  if (!s.val.empty()) rows.val = part(s.val);
  if (!s.test.empty()) rows.test = part(s.test);
  rows.damaged = std::move(damaged);
  RecipeData d = array_batches(s.batches, s.augment, seed, std::move(rows),
                               static_cast<int64_t>(classes.size()));
  d.facts.classes = classes;
  return d;
}

Preparation crop_images(const CropsSource& s, const Options&, const RunData& run) {
  return array_images(s.augment.chains, run);
}

}  // namespace

std::span<const DataRow> crop_sources() {
  static constexpr DataRow kRows[] = {
      prepared_row<CropsSource, crops, crop_images>(
          "voc_crops", "The contents of boxes in Pascal VOC's form, as images with a class.",
          "{type: voc_crops, root: boxes, size: 16, batch: 2}"),
  };
  return kRows;
}

}  // namespace tandem::recipe
