// SPDX-License-Identifier: Apache-2.0
// Datasets of images with more than a class: boxes from Pascal VOC's XML, masks next to images.
// Files are read on access; damaged ones throw Format naming the file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/data/damaged.h"
#include "tandem/data/sets/datasets.h"
#include "tandem/data/transforms/transforms.h"
#include "tandem/io/image.h"

namespace tandem::data {

struct VOCDetectionOptions {
  /// A list in ImageSets/Main ("train" for train.txt); empty: every annotation.
  std::string image_set = "";
  /// Names of the classes in order; empty: those that occur, sorted.
  std::vector<std::string> classes = {};
  bool keep_difficult = true;
  /// Skip annotations that cannot be read, replace an image that cannot be read by the next sample,
  /// and count both in damaged(); otherwise throw Format naming the file.
  bool skip_damaged = false;
  std::optional<Transform> transform = {};
};
/// An image and its boxes. Shapes differ from sample to sample.
struct Detection {
  Tensor image;   ///< u8 [3, h, w], or the transform's output
  Tensor boxes;   ///< f32 [n, 4]: x1, y1, x2, y2 in pixels from 0
  Tensor labels;  ///< i64 [n]
};
/// A folder of Annotations/*.xml, JPEGImages and ImageSets/Main. The constructor reads annotations.
class TD_API VOCDetection {
 public:
  static constexpr const char* kName = "VOCDetection";
  /// Throws Io; Format naming the file and the element; Value for a class that is not listed.
  explicit VOCDetection(const FilePath& folder, VOCDetectionOptions options = {});
  int64_t size() const { return static_cast<int64_t>(samples_.size()); }
  Detection get(int64_t i) const;
  const std::vector<std::string>& classes() const { return options_.classes; }
  const std::string& file(int64_t i) const { return samples_.at(static_cast<size_t>(i)).file; }
  /// How often a damaged file was skipped.
  int64_t damaged() const { return damaged_.count(); }

 private:
  struct Sample {
    std::string file;
    std::vector<float> boxes;
    std::vector<std::string> names;
  };
  Sample read(const std::string& folder, const std::string& id) const;
  Detection load(const Sample& s) const;
  VOCDetectionOptions options_;
  std::vector<Sample> samples_;
  Damaged damaged_;
};

struct MosaicDatasetOptions {
  MosaicOptions mosaic = {};
  std::optional<Transform> transform = {};  ///< applied to the canvas
};
namespace detail {
/// i and three randomly drawn samples of n.
TD_API std::array<int64_t, 4> mosaic_samples(int64_t i, int64_t n);
}  // namespace detail
/// Sample i of another dataset as a mosaic with three others, drawn again each time. Its samples
/// have `image`, `boxes` and `labels` (Detection, Vision), and so have these.
template <Dataset D>
class MosaicDataset {
 public:
  using Sample = std::decay_t<decltype(std::declval<const D&>().get(0))>;
  static constexpr const char* kName = "MosaicDataset";
  MosaicDataset(D dataset, Sizes size, MosaicDatasetOptions options = {})
      : dataset_(std::move(dataset)), size_(std::move(size)), options_(std::move(options)) {}
  int64_t size() const { return dataset_.size(); }
  Sample get(int64_t i) const {
    std::vector<Vision> four;
    for (const int64_t k : detail::mosaic_samples(i, size())) {
      const Sample s = dataset_.get(k);
      four.push_back({s.image, s.boxes, s.labels, {}});
    }
    Vision v = Mosaic(four, size_, options_.mosaic);
    if (options_.transform) v = (*options_.transform)(std::move(v));
    Sample out;
    out.image = v.image;
    out.boxes = v.boxes;
    out.labels = v.labels;
    return out;
  }

 private:
  D dataset_;
  Sizes size_;
  MosaicDatasetOptions options_;
};

struct ImageMaskOptions {
  std::string image = "image", mask = "label";  ///< folders with files of the same names
  io::ImageMode mode = io::ImageMode::gray;     ///< how images are read
  int64_t threshold = 128;  ///< mask values of at least this become 1; 0: values unchanged
  /// Replace a sample that cannot be read by the next one that can, and count it in damaged();
  /// otherwise throw Format naming the file.
  bool skip_damaged = false;
  std::optional<Transform> transform = {};
};
/// Images and masks: x u8 [c, h, w] (or the transform's output), y i64 [h, w].
class TD_API ImageMaskFolder {
 public:
  static constexpr const char* kName = "ImageMaskFolder";
  /// Throws Io; Value when an image has no mask or there are none.
  explicit ImageMaskFolder(const FilePath& folder, ImageMaskOptions options = {});
  int64_t size() const { return static_cast<int64_t>(files_.size()); }
  Example get(int64_t i) const;
  /// How often a damaged file was skipped.
  int64_t damaged() const { return damaged_.count(); }

 private:
  Example read(int64_t i) const;
  ImageMaskOptions options_;
  std::vector<std::pair<std::string, std::string>> files_;
  Damaged damaged_;
};

/// A citation graph of Planetoid with its fixed split (Yang et al., "Revisiting semi-supervised
/// learning with graph embeddings").
struct Planetoid {
  Tensor x;           ///< f32 [nodes, features]
  Tensor y;           ///< i64 [nodes]
  Tensor edge_index;  ///< i64 [2, edges]: both directions, sorted, no loops, no duplicates
  Tensor train_mask, val_mask, test_mask;  ///< bool [nodes]: 20 per class, the next 500, 1,000
  int64_t num_classes = 0;
};
/// Read ind.<name>.{x,y,tx,ty,allx,ally,graph,test.index}, Python pickles, as data: nothing they
/// name is imported or called. Throws Io; Format naming the file.
TD_API Planetoid load_planetoid(const FilePath& folder, const std::string& name = "cora");

}  // namespace tandem::data
