// SPDX-License-Identifier: Apache-2.0
// NpyDataset: rows of NumPy arrays, from one .npz file or from .npy files in a folder.
#pragma once

#include <string>

#include "tandem/data/sets/datasets.h"

namespace tandem::data {

struct NpyOptions {
  std::string x = "x", y = "y";  ///< arrays of the .npz file, or files x.npy and y.npy
  bool channels_last = false;    ///< images are [n, h, w, c], as in Keras
};

/// Sample i is row i of both arrays. x: u8 is taken as images, [n, h, w] or [n, c, h, w], and
/// becomes f32 0..1 [c, h, w]; other integers become i64, floats f32. y: i64 or f32; columns [n,
/// 1] become 0-d. Arrays keep the file's type (mapped where possible); rows are converted on
/// access.
class TD_API NpyDataset {
 public:
  static constexpr const char* kName = "NpyDataset";
  /// Throws Io, Format; Value naming the existing arrays; Shape when lengths differ.
  explicit NpyDataset(const FilePath& path, NpyOptions options = {});
  int64_t size() const { return rows_.size(); }
  Example get(int64_t i) const;
  /// The rows `rows`, stacked.
  Example get_many(std::span<const int64_t> rows) const;
  /// The arrays as stored in the file.
  const Tensor& x() const { return rows_.x(); }
  const Tensor& y() const { return rows_.y(); }

 private:
  Example converted(Example e, int batch) const;
  NpyOptions options_;
  TensorDataset rows_;
};

}  // namespace tandem::data
