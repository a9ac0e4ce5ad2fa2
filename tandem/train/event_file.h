// SPDX-License-Identifier: Apache-2.0
// TensorBoard's event files: TFRecord frames (length, data, masked CRC-32C) around Event messages.
// A file that is cut stays readable up to the cut.
#pragma once

#include <string>
#include <string_view>

#include "tandem/tensor/tensor.h"
#include "tandem/train/append_file.h"

namespace tandem::train {

class TD_API EventFile {
 public:
  /// Begins `folder`/events.out.tfevents.<time>.<host>.<pid>.<n>. Throws Io.
  explicit EventFile(const FilePath& folder);
  void scalar(const std::string& tag, double value, int64_t step);
  /// Of any shape and numeric dtype; infinite and NaN elements are left out.
  void histogram(const std::string& tag, const Tensor& values, int64_t step);
  /// u8 or f32 in 0..1, [h, w] or [c, h, w] with 1, 3 or 4 channels.
  void image(const std::string& tag, const Tensor& image, int64_t step);
  /// Shown as Markdown.
  void text(const std::string& tag, std::string_view text, int64_t step);
  const std::string& path() const { return file_.path(); }

 private:
  void value(std::string_view value, int64_t step);
  void event(std::string_view fields, int64_t step);
  AppendFile file_;
};

}  // namespace tandem::train
