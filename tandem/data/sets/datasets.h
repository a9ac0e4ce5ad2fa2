// SPDX-License-Identifier: Apache-2.0
// Datasets: tensors in memory, CSV tables, MNIST's IDX files and the embedded digits. All are
// handles: a copy shares the data.
#pragma once

#include <span>

#include "tandem/base/files/file.h"
#include "tandem/data/aggregate.h"
#include "tandem/data/loader.h"

namespace tandem::data {

/// One labelled sample or a batch of them.
struct Example {
  Tensor x, y;
};

/// Rows of tensors that share their first dimension.
class TD_API TensorDataset {
 public:
  static constexpr const char* kName = "TensorDataset";
  /// x [n, ...] and y [n, ...]; throws Shape when their first sizes differ.
  TensorDataset(Tensor x, Tensor y);
  int64_t size() const { return x_.size(0); }
  /// Throws Index outside 0..size()-1.
  Example get(int64_t i) const;
  /// The rows `rows`, stacked with one copy.
  Example get_many(std::span<const int64_t> rows) const;
  const Tensor& x() const { return x_; }
  const Tensor& y() const { return y_; }

 private:
  Tensor x_, y_;
};

struct MNISTOptions {
  bool train = true;  ///< train-images/labels, else t10k-images/labels
};

/// MNIST (and files of the same form) from a folder of IDX files, `.gz` or plain: x f32 [1, 28, 28]
/// in 0..1, y i64 0-d. Throws Io for a missing folder or file (nullptr too), Format for a damaged
/// one.
class TD_API MNIST {
 public:
  static constexpr const char* kName = "MNIST";
  explicit MNIST(const FilePath& folder, MNISTOptions options = {});
  int64_t size() const { return images_.size(0); }
  Example get(int64_t i) const;
  /// The rows `rows`, stacked with one copy.
  Example get_many(std::span<const int64_t> rows) const;
  /// All images u8 [n, 28, 28] and labels i64 [n].
  const Tensor& images() const { return images_; }
  const Tensor& labels() const { return labels_; }

 private:
  Tensor images_, labels_;
};

struct CIFAROptions {
  bool train = true;
};

/// CIFAR-10 from the folder of its binary version (data_batch_1.bin .. data_batch_5.bin,
/// test_batch.bin): x f32 [3, 32, 32] in 0..1, y i64 0-d. Throws Io for a missing file, Format with
/// file and record for a damaged one.
class TD_API CIFAR10 {
 public:
  static constexpr const char* kName = "CIFAR10";
  explicit CIFAR10(const FilePath& folder, CIFAROptions options = {});
  int64_t size() const { return labels_.size(0); }
  Example get(int64_t i) const;
  /// The rows `rows`, stacked with one copy.
  Example get_many(std::span<const int64_t> rows) const;
  /// All images u8 [n, 3, 32, 32] and labels i64 [n].
  const Tensor& images() const { return images_; }
  const Tensor& labels() const { return labels_; }

 protected:
  CIFAR10() = default;
  Tensor images_, labels_;
};

/// CIFAR-100 from train.bin or test.bin of its binary version; y is the fine label.
class TD_API CIFAR100 : public CIFAR10 {
 public:
  static constexpr const char* kName = "CIFAR100";
  explicit CIFAR100(const FilePath& folder, CIFAROptions options = {});
  /// The coarse labels (20 classes), i64 [n].
  const Tensor& coarse_labels() const { return coarse_; }

 private:
  Tensor coarse_;
};

struct DigitsOptions {
  bool train = true;
  int fold = 0;   ///< row i is a test row if i % folds == fold
  int folds = 5;  ///< 0: all rows, regardless of `train`
};

/// The 1,797 UCI optical digits embedded in the library: x f32 [1, 8, 8] in 0..1, y i64 0-d.
/// Source: E. Alpaydin, C. Kaynak, UCI Machine Learning Repository, CC BY 4.0.
class TD_API Digits {
 public:
  static constexpr const char* kName = "Digits";
  explicit Digits(DigitsOptions options = {});
  int64_t size() const { return y_.size(0); }
  Example get(int64_t i) const;
  /// The rows `rows`, stacked with one copy.
  Example get_many(std::span<const int64_t> rows) const;
  /// x [n, 1, 8, 8], y [n].
  const Tensor& x() const { return x_; }
  const Tensor& y() const { return y_; }

 private:
  Tensor x_, y_;
};

struct CSVOptions {
  bool header = true;
  char delimiter = ',';
  int64_t target = -1;  ///< column of y; negative counts from the end
  DType target_dtype = DType::i64;
};

/// A numeric CSV table (plain or gzip): x f32 [columns - 1], y 0-d. Throws Io, Format (with line
/// and column), Index for the target.
class TD_API CSVDataset {
 public:
  static constexpr const char* kName = "CSVDataset";
  explicit CSVDataset(const FilePath& path, CSVOptions options = {});
  int64_t size() const { return y_.size(0); }
  Example get(int64_t i) const;
  /// The rows `rows`, stacked with one copy.
  Example get_many(std::span<const int64_t> rows) const;
  const Tensor& x() const { return x_; }
  const Tensor& y() const { return y_; }

 private:
  Tensor x_, y_;
};

}  // namespace tandem::data
