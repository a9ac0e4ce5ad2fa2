// SPDX-License-Identifier: Apache-2.0
// Files of an export that may still fail.
#pragma once

#include <string>

namespace tandem::onnx {

/// A file that is about to be written, all or nothing. Unless keep() was called, what was there
/// before is there again when this ends: the file of that name, or none.
class WrittenFile {
 public:
  explicit WrittenFile(std::string path);
  ~WrittenFile();
  WrittenFile(const WrittenFile&) = delete;
  WrittenFile& operator=(const WrittenFile&) = delete;
  void keep();

 private:
  std::string path_, before_;  ///< `before_`: another name of the old file; empty: there was none
  bool existed_;
};

}  // namespace tandem::onnx
