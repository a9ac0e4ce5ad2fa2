// SPDX-License-Identifier: Apache-2.0
// Tar archives, read where they lie: ustar with the long names of GNU and POSIX (pax). Other
// entries than files are passed over.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/file.h"

namespace tandem::io {

struct TarFileOptions {
  /// Take the entries before a damaged head or a cut end, and say so in damage(); else it throws.
  bool keep_whole = false;
};

class TD_API TarFile {
 public:
  struct Entry {
    std::string name;
    std::string_view bytes;  ///< they live as long as the archive
  };
  /// Maps the archive and reads its heads. Throws Io; Format naming file and byte for a wrong
  /// checksum, a size that does not fit, an end in the middle of an entry; for a compressed one.
  explicit TarFile(const FilePath& path, TarFileOptions options = {});
  const std::vector<Entry>& entries() const { return entries_; }
  const std::string& path() const { return file_->path(); }
  /// Why the archive's end could not be read; empty when all of it is whole.
  const std::string& damage() const { return damage_; }

 private:
  void read_heads();
  Ref<MappedFile> file_;
  std::vector<Entry> entries_;
  std::string damage_;
};

}  // namespace tandem::io
