// SPDX-License-Identifier: Apache-2.0
// Datasets: tensors in memory, CSV tables, MNIST's IDX files and the embedded digits. All are
// handles: copying one shares the data.
#pragma once

#include "tandem/base/file.h"
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
  /// x [n, ...] and y [n, ...]; throws Shape when their first sizes differ.
  TensorDataset(Tensor x, Tensor y);
  int64_t size() const { return x_.size(0); }
  /// Throws Index outside 0..size()-1.
  Example get(int64_t i) const;
  const Tensor& x() const { return x_; }
  const Tensor& y() const { return y_; }

 private:
  Tensor x_, y_;
};

struct MNISTOptions {
  bool train = true;  ///< train-images/labels, else t10k-images/labels
};

/// MNIST (and files of its form) from a folder of IDX files, `.gz` or plain:
/// x f32 [1, 28, 28] in 0..1, y i64 0-d. Throws Io for a missing folder or file (nullptr too),
/// Format for a damaged one.
class TD_API MNIST {
 public:
  explicit MNIST(const FilePath& folder, MNISTOptions options = {});
  int64_t size() const { return images_.size(0); }
  Example get(int64_t i) const;
  /// All images u8 [n, 28, 28] and labels i64 [n].
  const Tensor& images() const { return images_; }
  const Tensor& labels() const { return labels_; }

 private:
  Tensor images_, labels_;
};

struct DigitsOptions {
  bool train = true;
  int fold = 0;   ///< row i is test in fold i % folds
  int folds = 5;  ///< 0: all rows, whatever `train` says
};

/// The 1,797 UCI optical digits that the library carries: x f32 [1, 8, 8] in 0..1, y i64 0-d.
/// Source: E. Alpaydin, C. Kaynak, UCI Machine Learning Repository, CC BY 4.0.
class TD_API Digits {
 public:
  explicit Digits(DigitsOptions options = {});
  int64_t size() const { return y_.size(0); }
  Example get(int64_t i) const;
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
  explicit CSVDataset(const FilePath& path, CSVOptions options = {});
  int64_t size() const { return y_.size(0); }
  Example get(int64_t i) const;
  const Tensor& x() const { return x_; }
  const Tensor& y() const { return y_; }

 private:
  Tensor x_, y_;
};

}  // namespace tandem::data
