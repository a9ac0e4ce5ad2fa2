// SPDX-License-Identifier: Apache-2.0
// Files of an export that may still fail.
#pragma once

#include <string>

namespace tandem::onnx {

/// A file that is about to be written, all or nothing. Unless keep() was called, what was there
/// before is there again when this ends: the file of that name, or none.
class WrittenFile {
 public:
  /// Throws Io where the file that is there cannot be kept: then nothing was changed. `may_link`:
  /// false: the file system has no second names, the old file is copied.
  explicit WrittenFile(std::string path, bool may_link = true);
  ~WrittenFile();
  WrittenFile(const WrittenFile&) = delete;
  WrittenFile& operator=(const WrittenFile&) = delete;
  void keep();

 private:
  std::string path_, before_;  ///< `before_`: where the old file is; empty: there was none
  bool existed_;
};

}  // namespace tandem::onnx
