// SPDX-License-Identifier: Apache-2.0
#include "tandem/data/sets/datasets.h"

#include <array>
#include <cstring>

#include "tandem/graph/context.h"
#include "tandem/io/csv.h"
#include "tandem/io/gzip.h"
#include "tandem/io/idx.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::data {

const unsigned char* digits_bytes();
size_t digits_size();

namespace {

Example row(const Tensor& x, const Tensor& y, int64_t i) {
  TD_CHECK(i >= 0 && i < y.size(0), Index, "sample {} of a dataset of {}", i, y.size(0));
  return {select(x, 0, i), select(y, 0, i)};
}

// `folder/name` or `folder/name.gz`, whichever exists.
std::string find_file(const std::string& folder, const std::string& name) {
  for (const std::string& path : {folder + "/" + name, folder + "/" + name + ".gz"})
    if (file_exists(path)) return path;
  TD_FAIL(Io, "MNIST: there is no {} or {}.gz in '{}'\nGive the folder of the four IDX files.",
          name, name, folder);
}

// Pixels in 0..1, without recording.
Tensor scaled(const Tensor& u8, double by) {
  NoGradGuard no_grad;
  return u8.to(DType::f32) / by;
}

// Rows of a contiguous tensor as one new tensor; adjacent rows are a view.
Tensor gather(const Tensor& x, std::span<const int64_t> rows) {
  bool run = !rows.empty();
  for (size_t k = 0; k < rows.size(); ++k) {
    TD_CHECK(rows[k] >= 0 && rows[k] < x.size(0), Index, "sample {} of a dataset of {}", rows[k],
             x.size(0));
    run = run && rows[k] == rows[0] + static_cast<int64_t>(k);
  }
  if (run) return narrow(x, 0, rows[0], static_cast<int64_t>(rows.size()));
  Shape shape = x.shape();
  shape[0] = static_cast<int64_t>(rows.size());
  Tensor out = empty(shape, x.dtype());
  const size_t bytes = static_cast<size_t>(x.numel() / x.size(0)) * size_of(x.dtype());
  auto* to = static_cast<char*>(out.impl()->data);
  const auto* from = static_cast<const char*>(x.impl()->data);
  for (int64_t i : rows) {
    std::memcpy(to, from + static_cast<size_t>(i) * bytes, bytes);
    to += bytes;
  }
  return out;
}

// Rows of u8 pixels as f32 in 0..1, in one pass; `shape` is a row's shape.
Tensor gather_scaled(const Tensor& u8, std::span<const int64_t> rows, Shape shape) {
  shape.insert(0, static_cast<int64_t>(rows.size()));
  Tensor out = empty(shape, DType::f32);
  const int64_t n = u8.numel() / u8.size(0);
  static const std::array<float, 256> levels = [] {
    std::array<float, 256> t{};
    for (size_t v = 0; v < t.size(); ++v) t[v] = static_cast<float>(v) / 255.0f;
    return t;
  }();
  auto* to = static_cast<float*>(out.impl()->data);
  const auto* pixels = static_cast<const unsigned char*>(u8.impl()->data);
  for (int64_t i : rows) {
    TD_CHECK(i >= 0 && i < u8.size(0), Index, "sample {} of a dataset of {}", i, u8.size(0));
    const unsigned char* from = pixels + i * n;
    for (int64_t k = 0; k < n; ++k) to[k] = levels[from[k]];
    to += n;
  }
  return out;
}

// Records of `labels` label bytes and 3,072 pixels, appended.
void read_cifar(const std::string& path, size_t labels, int64_t classes,
                std::vector<unsigned char>& images, std::vector<std::vector<int64_t>>& y) {
  io::InputFile file(path);
  std::vector<unsigned char> record(labels + 3072);
  for (int64_t i = 0;; ++i) {
    const size_t got = file.read(record.data(), record.size());
    if (got == 0) {
      TD_CHECK(i > 0, Format, "'{}' is empty", path);
      return;
    }
    TD_CHECK(got == record.size(), Format, "'{}' is truncated: record {} has {} bytes of {}", path,
             i, got, record.size());
    TD_CHECK(record[labels - 1] < classes, Format, "'{}': record {} has label {} of {} classes",
             path, i, record[labels - 1], classes);
    for (size_t k = 0; k < labels; ++k) y[k].push_back(record[k]);
    images.insert(images.end(), record.begin() + static_cast<ptrdiff_t>(labels), record.end());
  }
}

Tensor cifar_images(const std::vector<unsigned char>& pixels) {
  return tensor(pixels, {static_cast<int64_t>(pixels.size() / 3072), 3, 32, 32});
}

}  // namespace

CIFAR10::CIFAR10(const FilePath& folder, CIFAROptions o) {
  std::vector<unsigned char> images;
  std::vector<std::vector<int64_t>> y(1);
  if (o.train) {
    for (int k = 1; k <= 5; ++k)
      read_cifar(fmt::format("{}/data_batch_{}.bin", folder.str(), k), 1, 10, images, y);
  } else {
    read_cifar(folder.str() + "/test_batch.bin", 1, 10, images, y);
  }
  images_ = cifar_images(images);
  labels_ = tensor(y[0]);
}

CIFAR100::CIFAR100(const FilePath& folder, CIFAROptions o) {
  std::vector<unsigned char> images;
  std::vector<std::vector<int64_t>> y(2);
  read_cifar(folder.str() + (o.train ? "/train.bin" : "/test.bin"), 2, 100, images, y);
  images_ = cifar_images(images);
  coarse_ = tensor(y[0]);
  labels_ = tensor(y[1]);
}

Example CIFAR10::get(int64_t i) const {
  Example e = row(images_, labels_, i);
  return {scaled(e.x, 255.0), e.y};
}
Example CIFAR10::get_many(std::span<const int64_t> rows) const {
  return {gather_scaled(images_, rows, {3, 32, 32}), gather(labels_, rows)};
}

TensorDataset::TensorDataset(Tensor x, Tensor y) : x_(std::move(x)), y_(std::move(y)) {
  TD_CHECK(
      x_.defined() && y_.defined() && x_.dim() > 0 && y_.dim() > 0 && x_.size(0) == y_.size(0),
      Shape,
      "TensorDataset expects x and y with one first size, got {} and {}\nEach row of x has one of "
      "y: narrow() the longer one, or check how they were read.",
      x_.defined() ? x_.shape().to_string() : "none",
      y_.defined() ? y_.shape().to_string() : "none");
  x_ = contiguous(x_);
  y_ = contiguous(y_);
}
Example TensorDataset::get_many(std::span<const int64_t> rows) const {
  return {gather(x_, rows), gather(y_, rows)};
}

Example TensorDataset::get(int64_t i) const { return row(x_, y_, i); }

MNIST::MNIST(const FilePath& folder, MNISTOptions o) {
  TD_CHECK(!folder.str().empty(), Io, "MNIST got no folder\nGive the folder of the IDX files.");
  TD_CHECK(file_exists(folder), Io, "MNIST: there is no folder '{}'", folder.str());
  std::string prefix = o.train ? "train" : "t10k";
  std::string images = find_file(folder.str(), prefix + "-images-idx3-ubyte");
  std::string labels = find_file(folder.str(), prefix + "-labels-idx1-ubyte");
  images_ = io::load_idx(images);
  labels_ = io::load_idx(labels);
  TD_CHECK(images_.dtype() == DType::u8 && images_.dim() == 3, Format,
           "'{}' expects u8 [n, h, w], it is {} {}", images, to_string(images_.dtype()),
           images_.shape().to_string());
  TD_CHECK(labels_.dtype() == DType::u8 && labels_.dim() == 1, Format,
           "'{}' expects u8 [{}], it is {} {}", labels, images_.size(0), to_string(labels_.dtype()),
           labels_.shape().to_string());
  TD_CHECK(labels_.size(0) == images_.size(0), Format,
           "'{}' holds {} labels and '{}' {} images: they do not match", labels, labels_.size(0),
           images, images_.size(0));
  labels_ = labels_.to(DType::i64);
}

Example MNIST::get(int64_t i) const {
  Example e = row(images_, labels_, i);
  return {unsqueeze(scaled(e.x, 255.0), 0), e.y};
}

Example MNIST::get_many(std::span<const int64_t> rows) const {
  const Shape image{1, images_.size(1), images_.size(2)};
  return {gather_scaled(images_, rows, image), gather(labels_, rows)};
}

Digits::Digits(DigitsOptions o) {
  TD_CHECK(o.folds == 0 || (o.folds > 1 && o.fold >= 0 && o.fold < o.folds), Value,
           "Digits: fold {} of {}", o.fold, o.folds);
  std::string_view packed(reinterpret_cast<const char*>(digits_bytes()), digits_size());
  io::Csv csv = io::Csv::parse(io::gunzip(packed, size_t{1} << 24), {.header = false}, "digits");
  NoGradGuard no_grad;
  Tensor x = csv.table(0, 64, DType::f32) / 16.0;
  Tensor y = csv.column(size_t{64}, DType::i64);
  if (o.folds > 0) {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < y.size(0); ++i)
      if ((i % o.folds == o.fold) != o.train) rows.push_back(i);
    Tensor index = tensor(rows);
    x = index_select(x, 0, index);
    y = index_select(y, 0, index);
  }
  x_ = contiguous(reshape(x, {x.size(0), 1, 8, 8}));
  y_ = y;
}

Example Digits::get(int64_t i) const { return row(x_, y_, i); }

Example Digits::get_many(std::span<const int64_t> rows) const {
  return {gather(x_, rows), gather(y_, rows)};
}

CSVDataset::CSVDataset(const FilePath& path, CSVOptions o) {
  io::Csv csv = io::Csv::read(path, {.delimiter = o.delimiter, .header = o.header});
  auto columns = static_cast<int64_t>(csv.columns());
  int64_t target = o.target < 0 ? o.target + columns : o.target;
  TD_CHECK(target >= 0 && target < columns, Index, "'{}': target column {} of {}", path.str(),
           o.target, columns);
  TD_CHECK(columns > 1, Format, "'{}' has one column, x and y expect two", path.str());
  y_ = csv.column(static_cast<size_t>(target), o.target_dtype);
  std::vector<Tensor> parts;
  if (target > 0) parts.push_back(csv.table(0, static_cast<size_t>(target), DType::f32));
  if (target + 1 < columns)
    parts.push_back(csv.table(static_cast<size_t>(target + 1),
                              static_cast<size_t>(columns - target - 1), DType::f32));
  x_ = contiguous(parts.size() == 1 ? parts[0] : cat(parts, 1));
}

Example CSVDataset::get(int64_t i) const { return row(x_, y_, i); }

Example CSVDataset::get_many(std::span<const int64_t> rows) const {
  return {gather(x_, rows), gather(y_, rows)};
}

}  // namespace tandem::data
