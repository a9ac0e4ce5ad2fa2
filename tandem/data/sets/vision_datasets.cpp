// SPDX-License-Identifier: Apache-2.0
#include "tandem/data/sets/vision_datasets.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/data/boxes_internal.h"
#include "tandem/graph/context.h"
#include "tandem/ops/ops.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> sorted_files(const std::string& folder, std::string_view extension) {
  std::error_code error;
  std::vector<std::string> out;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (extension.empty() || it->path().extension() == extension)
      out.push_back(it->path().filename().string());
  TD_CHECK(!error, Io, "cannot list '{}': {}", folder, error.message());
  std::sort(out.begin(), out.end());
  return out;
}

// The text between <tag> and </tag> from `at` on; moves `at` past it. Where this is used, VOC's
// files have neither attributes nor nested equal tags.
bool element(std::string_view text, std::string_view tag, size_t& at, std::string_view& inside) {
  const std::string open = fmt::format("<{}>", tag), close = fmt::format("</{}>", tag);
  const size_t begin = text.find(open, at);
  if (begin == std::string_view::npos) return false;
  const size_t from = begin + open.size(), end = text.find(close, from);
  if (end == std::string_view::npos) return false;
  inside = text.substr(from, end - from);
  at = end + close.size();
  return true;
}
std::string_view one(std::string_view text, std::string_view tag, const std::string& file) {
  size_t at = 0;
  std::string_view inside;
  TD_CHECK(element(text, tag, at, inside), Format, "'{}': there is no <{}>", file, tag);
  const size_t a = inside.find_first_not_of(" \t\r\n"), b = inside.find_last_not_of(" \t\r\n");
  return a == std::string_view::npos ? std::string_view() : inside.substr(a, b - a + 1);
}
float coordinate(std::string_view box, std::string_view tag, const std::string& file) {
  const std::string_view text = one(box, tag, file);
  double v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  TD_CHECK(error == std::errc() && end == text.data() + text.size() && std::isfinite(v), Format,
           "'{}': <{}> is not a number", file, tag);
  return static_cast<float>(v);
}

}  // namespace

VOCDetection::Sample VOCDetection::read(const std::string& folder, const std::string& id) const {
  const std::string file = folder + "/Annotations/" + id + ".xml";
  const std::string text = read_file(file, size_t{1} << 24);
  TD_CHECK(text.find("<annotation") != std::string::npos &&
               text.find("</annotation>") != std::string::npos,
           Format, "'{}' is not a complete <annotation>", file);
  Sample s;
  s.file = folder + "/JPEGImages/" + id + ".jpg";
  size_t at = 0;
  std::string_view object;
  while (element(text, "object", at, object)) {
    size_t inner = 0;
    std::string_view difficult;
    if (!options_.keep_difficult && element(object, "difficult", inner, difficult) &&
        difficult == "1")
      continue;
    const std::string_view box = one(object, "bndbox", file);
    const float x1 = coordinate(box, "xmin", file), y1 = coordinate(box, "ymin", file);
    const float x2 = coordinate(box, "xmax", file), y2 = coordinate(box, "ymax", file);
    TD_CHECK(x1 <= x2 && y1 <= y2, Format, "'{}': a box ends before it starts ({}, {}, {}, {})",
             file, x1, y1, x2, y2);
    s.boxes.insert(s.boxes.end(), {x1, y1, x2, y2});
    s.names.emplace_back(one(object, "name", file));
  }
  return s;
}

VOCDetection::VOCDetection(const FilePath& folder, VOCDetectionOptions options)
    : options_(std::move(options)) {
  std::vector<std::string> ids;
  if (options_.image_set.empty()) {
    for (const std::string& f : sorted_files(folder.str() + "/Annotations", ".xml"))
      ids.push_back(f.substr(0, f.size() - 4));
  } else {
    const std::string list = folder.str() + "/ImageSets/Main/" + options_.image_set + ".txt";
    std::string text = read_file(list, size_t{1} << 26) + "\n";
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      std::string id = text.substr(at, end - at);
      id.resize(std::min(id.find_first_of(" \t\r"), id.size()));
      TD_CHECK(id.find('/') == std::string::npos, Format, "'{}': '{}' is not a file name", list,
               id);
      if (!id.empty()) ids.push_back(id);
      at = end + 1;
    }
  }
  for (const std::string& id : ids) {
    try {
      samples_.push_back(read(folder.str(), id));
    } catch (const Error& e) {
      if (!options_.skip_damaged || e.kind() != ErrorKind::Format) throw;
      damaged_.add();
    }
  }
  TD_CHECK(!samples_.empty(), Value, "VOCDetection: there are no annotations in '{}'",
           folder.str());
  std::vector<std::string>& classes = options_.classes;
  if (classes.empty()) {
    for (const Sample& s : samples_) classes.insert(classes.end(), s.names.begin(), s.names.end());
    std::sort(classes.begin(), classes.end());
    classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  }
  for (const Sample& s : samples_)
    for (const std::string& name : s.names)
      TD_CHECK(std::find(classes.begin(), classes.end(), name) != classes.end(), Value,
               "'{}': class '{}' is not among those given", s.file, name);
}

Detection VOCDetection::get(int64_t i) const {
  TD_CHECK(i >= 0 && i < size(), Index, "sample {} of a dataset of {}", i, size());
  NoGradGuard no_grad;
  return damaged_.take(i, size(), options_.skip_damaged,
                       [this](int64_t k) { return load(samples_[static_cast<size_t>(k)]); });
}

Detection VOCDetection::load(const Sample& s) const {
  std::vector<int64_t> labels;
  for (const std::string& name : s.names)
    labels.push_back(std::find(options_.classes.begin(), options_.classes.end(), name) -
                     options_.classes.begin());
  Vision v{io::read_image(s.file), boxes_of(s.boxes), tensor(labels), {}};
  if (options_.transform) v = (*options_.transform)(std::move(v));
  return {v.image, v.boxes, v.labels};
}

ImageMaskFolder::ImageMaskFolder(const FilePath& folder, ImageMaskOptions options)
    : options_(std::move(options)) {
  const std::string images = folder.str() + "/" + options_.image;
  const std::string masks = folder.str() + "/" + options_.mask;
  for (const std::string& f : sorted_files(images, "")) {
    TD_CHECK(file_exists(masks + "/" + f), Value, "'{}/{}' has no mask in '{}'", images, f, masks);
    files_.emplace_back(images + "/" + f, masks + "/" + f);
  }
  TD_CHECK(!files_.empty(), Value, "ImageMaskFolder: there are no images in '{}'", images);
}

Example ImageMaskFolder::get(int64_t i) const {
  TD_CHECK(i >= 0 && i < size(), Index, "sample {} of a dataset of {}", i, size());
  NoGradGuard no_grad;
  return damaged_.take(i, size(), options_.skip_damaged, [this](int64_t k) { return read(k); });
}

Example ImageMaskFolder::read(int64_t i) const {
  const auto& [image, mask] = files_[static_cast<size_t>(i)];
  Vision v{io::read_image(image, {.mode = options_.mode}),
           {},
           {},
           io::read_image(mask, {.mode = io::ImageMode::gray})};
  TD_CHECK(v.image.size(1) == v.mask.size(1) && v.image.size(2) == v.mask.size(2), Format,
           "'{}' is {}, its mask {}", image, v.image.shape().to_string(),
           v.mask.shape().to_string());
  if (options_.transform) v = (*options_.transform)(std::move(v));
  Tensor y = v.mask.squeeze(0).to(DType::i64);
  if (options_.threshold > 0) y = (y >= options_.threshold).to(DType::i64);
  return {v.image, y};
}

}  // namespace tandem::data
