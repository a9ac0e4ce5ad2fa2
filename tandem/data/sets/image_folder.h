// SPDX-License-Identifier: Apache-2.0
// ImageFolder: one folder per class, with JPEG, PNG, WebP, TIFF and JPEG 2000 files. The classes
// are the sorted names of the folders; the files of a class are sorted too: the order is that of
// torchvision.
#pragma once

#include <string>
#include <vector>

#include "tandem/data/damaged.h"
#include "tandem/data/sets/datasets.h"
#include "tandem/io/image.h"

namespace tandem::data {

struct ImageFolderOptions {
  io::ImageMode mode = io::ImageMode::rgb;
  /// Resize every image to [height, width]; empty keeps sizes.
  std::vector<int64_t> size = {};
  /// Replace a file that cannot be decoded by the next one that can, and count it; otherwise throw
  /// Format naming the file.
  bool skip_damaged = false;
};

/// Samples: x f32 [c, h, w] in 0..1, y i64 0-d. Throws Io for a missing folder, Value when there
/// are no classes or no images.
class TD_API ImageFolder {
 public:
  static constexpr const char* kName = "ImageFolder";
  explicit ImageFolder(const FilePath& folder, ImageFolderOptions options = {});
  int64_t size() const { return static_cast<int64_t>(files_.size()); }
  Example get(int64_t i) const;
  const std::vector<std::string>& classes() const { return classes_; }
  const std::string& file(int64_t i) const { return files_.at(static_cast<size_t>(i)).first; }
  /// An image as samples have it, of the bytes of a file; `name` stands in messages. And its
  /// pixels, u8 [c, h, w], before they become 0..1.
  static Tensor decode_pixels(std::string_view bytes, const ImageFolderOptions& options,
                              const std::string& name);
  static Tensor decode_image(std::string_view bytes, const ImageFolderOptions& options,
                             const std::string& name);
  /// How often get() skipped a damaged file.
  int64_t damaged() const { return damaged_.count(); }

 private:
  ImageFolderOptions options_;
  std::vector<std::string> classes_;
  std::vector<std::pair<std::string, int64_t>> files_;
  Example read(int64_t i) const;
  Damaged damaged_;
};

}  // namespace tandem::data
