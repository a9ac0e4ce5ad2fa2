// SPDX-License-Identifier: Apache-2.0
// Tar archives, read in place: ustar with the long names of GNU and POSIX (pax). Entries other than
// files are skipped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/files/file.h"

namespace tandem::io {

struct TarFileOptions {
  /// Keep the entries before a damaged header or cut end, reporting it in damage(); else throw.
  bool keep_whole = false;
};

class TD_API TarFile {
 public:
  struct Entry {
    std::string name;
    std::string_view bytes;  ///< valid as long as the archive lives
  };
  /// Maps the archive and reads its headers. Throws Io; Format naming file and byte for a wrong
  /// checksum, an impossible size or an entry that is truncated; and for a compressed archive.
  explicit TarFile(const FilePath& path, TarFileOptions options = {});
  const std::vector<Entry>& entries() const { return entries_; }
  const std::string& path() const { return file_->path(); }
  /// Why the end of the archive could not be read; empty when it is intact.
  const std::string& damage() const { return damage_; }

 private:
  void read_heads();
  Ref<MappedFile> file_;
  std::vector<Entry> entries_;
  std::string damage_;
};

}  // namespace tandem::io
