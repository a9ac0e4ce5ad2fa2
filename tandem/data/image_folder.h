// SPDX-License-Identifier: Apache-2.0
// ImageFolder: one folder per class, JPEG, PNG, WebP, TIFF and JPEG 2000 files in it. The classes
// are the sorted names of the folders, the files of a class are sorted too: the order is that of
// torchvision.
#pragma once

#include <string>
#include <vector>

#include "tandem/data/damaged.h"
#include "tandem/data/datasets.h"
#include "tandem/io/image.h"

namespace tandem::data {

struct ImageFolderOptions {
  io::ImageMode mode = io::ImageMode::rgb;
  /// Every picture is brought to this size [height, width]; empty leaves them as they are.
  std::vector<int64_t> size = {};
  /// A file that cannot be decoded is replaced by the next one that can, and counted; else it
  /// throws Format naming the file.
  bool skip_damaged = false;
};

/// Samples: x f32 [c, h, w] in 0..1, y i64 0-d. Throws Io for a missing folder, Value when there
/// are no classes or no pictures.
class TD_API ImageFolder {
 public:
  static constexpr const char* kName = "ImageFolder";
  explicit ImageFolder(const FilePath& folder, ImageFolderOptions options = {});
  int64_t size() const { return static_cast<int64_t>(files_.size()); }
  Example get(int64_t i) const;
  const std::vector<std::string>& classes() const { return classes_; }
  const std::string& file(int64_t i) const { return files_.at(static_cast<size_t>(i)).first; }
  /// The picture of one file as samples have it.
  static Tensor read_picture(const FilePath& file, const ImageFolderOptions& options);
  /// How often get() met a damaged file and took another.
  int64_t damaged() const { return damaged_.count(); }

 private:
  ImageFolderOptions options_;
  std::vector<std::string> classes_;
  std::vector<std::pair<std::string, int64_t>> files_;
  Example read(int64_t i) const;
  Damaged damaged_;
};

}  // namespace tandem::data
