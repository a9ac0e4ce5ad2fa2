// SPDX-License-Identifier: Apache-2.0
#include "tandem/data/sets/image_folder.h"

#include <algorithm>
#include <filesystem>

#include "tandem/base/ascii.h"
#include "tandem/data/transforms/image_ops.h"
#include "tandem/graph/context.h"
#include "tandem/ops/ops.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

bool is_image(const fs::path& path) {
  const std::string end = ascii_lower(path.extension().string());
  for (const char* known : {".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".jp2"})
    if (end == known) return true;
  return false;
}

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> all;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    all.push_back(it->path());
  TD_CHECK(!error, Io, "cannot list '{}': {}", folder.string(), error.message());
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

ImageFolder::ImageFolder(const FilePath& folder, ImageFolderOptions options)
    : options_(std::move(options)) {
  TD_CHECK(options_.size.empty() || options_.size.size() == 2, Value,
           "ImageFolder: size expects [height, width], got {} numbers", options_.size.size());
  for (const fs::path& entry : sorted_entries(folder.str())) {
    if (!fs::is_directory(entry)) continue;
    const size_t before = files_.size();
    for (const fs::path& file : sorted_entries(entry))
      if (is_image(file)) files_.emplace_back(file.string(), static_cast<int64_t>(classes_.size()));
    TD_CHECK(files_.size() > before, Value,
             "ImageFolder: there is no .jpg, .jpeg, .png, .webp, .tif, .tiff or .jp2 in '{}'",
             entry.string());
    classes_.push_back(entry.filename().string());
  }
  TD_CHECK(!classes_.empty(), Value,
           "ImageFolder: '{}' has no folders\nIt expects one folder per class.", folder.str());
}

Tensor ImageFolder::decode_pixels(std::string_view bytes, const ImageFolderOptions& options,
                                  const std::string& name) {
  NoGradGuard no_grad;
  io::ReadImageOptions read{.mode = options.mode};
  // A JPEG may be decoded smaller, but not below twice the requested size: the resize that follows
  // hides the difference (Pillow's thumbnail() does the same, reducing_gap=2).
  if (!options.size.empty()) {
    read.min_height = 2 * options.size[0];
    read.min_width = 2 * options.size[1];
  }
  Tensor x = io::decode_image(bytes, read, name);
  if (!options.size.empty()) x = resize_image(x, options.size[0], options.size[1]);
  return x;
}

Tensor ImageFolder::decode_image(std::string_view bytes, const ImageFolderOptions& options,
                                 const std::string& name) {
  NoGradGuard no_grad;
  return to_dtype_image(decode_pixels(bytes, options, name), DType::f32, true);
}

Example ImageFolder::read(int64_t i) const {
  const auto& [file, label] = files_[static_cast<size_t>(i)];
  return {decode_image(make_ref<MappedFile>(file)->view(), options_, file), tensor(label)};
}

Example ImageFolder::get(int64_t i) const {
  TD_CHECK(i >= 0 && i < size(), Index, "sample {} of a dataset of {}", i, size());
  NoGradGuard no_grad;
  return damaged_.take(i, size(), options_.skip_damaged, [this](int64_t k) { return read(k); });
}

}  // namespace tandem::data
