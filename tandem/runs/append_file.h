// SPDX-License-Identifier: Apache-2.0
// AppendFile: logs that grow line by line or record by record. Each append() is one write, so a
// killed process leaves whole records and at most one truncated record, at the end.
#pragma once

#include <string>
#include <string_view>

#include "tandem/base/files/file.h"

namespace tandem::runs {

class TD_API AppendFile {
 public:
  enum class Content : unsigned char {
    records,  ///< any bytes
    lines,    ///< a last line without its end, which a killed process left, is cut off
  };
  /// Makes the file when it is not there. Throws Io.
  explicit AppendFile(const FilePath& path, Content content = Content::records);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  /// Throws Io.
  void append(std::string_view bytes);
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_;
};

}  // namespace tandem::runs
