// SPDX-License-Identifier: Apache-2.0
// Writes tar archives as pax(1) of POSIX has them. Equal entries give equal bytes: every entry
// belongs to user 0 and has the time 0.
#pragma once

#include <string>
#include <string_view>

#include "tandem/base/files/file.h"

namespace tandem::io {

class TD_API TarWriter {
 public:
  explicit TarWriter(const FilePath& path) : file_(path) {}
  /// `name` without a slash in front or at the end; its parents come before it.
  void folder(const std::string& name, int mode = 0755);
  void file(const std::string& name, std::string_view content, int mode = 0644);
  /// Writes the end of the archive and moves the file into place.
  void commit();

 private:
  void header(const std::string& name, char type, uint64_t size, int mode);
  void pad(uint64_t size);
  AtomicFile file_;
};

}  // namespace tandem::io
