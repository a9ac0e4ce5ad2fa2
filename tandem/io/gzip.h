// SPDX-License-Identifier: Apache-2.0
// Reads files that may be gzip: InputFile gives the bytes either way, a piece at a time, so the
// reader decides how much memory a file may cost. gzip() and gunzip() work on strings.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tandem/base/files/file.h"

namespace tandem::io {

/// A file open for reading from front to back; gzip (recognised by its first two bytes, several
/// members allowed) is inflated on the fly and its checksums are verified.
class TD_API InputFile {
 public:
  /// Throws Io when it cannot be opened.
  explicit InputFile(const FilePath& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  /// Up to `bytes` bytes; fewer only at the end. Throws Format when the gzip data is damaged or
  /// ends early.
  size_t read(void* to, size_t bytes);
  /// Everything that is left; throws Format if it exceeds `limit` bytes or the open Budget.
  std::string read_rest(size_t limit);

  bool compressed() const { return inflate_ != nullptr; }
  /// Bytes on disk.
  uint64_t size() const { return file_->size(); }
  /// An upper bound on the bytes that read() can still give, from the size on disk (deflate's ratio
  /// is at most 1032 : 1). Check it before allocating for a size that a file claims.
  uint64_t most_bytes() const;
  const std::string& path() const { return file_->path(); }

 private:
  struct Inflate;
  Ref<MappedFile> file_;
  size_t at_ = 0;
  std::unique_ptr<Inflate> inflate_;
};

/// `text` as one gzip member. Equal text gives equal bytes (no time stamp, no name).
TD_API std::string gzip(std::string_view text, int level = 6);
/// Inflate gzip data; throws Format when it is damaged or gives more than `limit` bytes.
TD_API std::string gunzip(std::string_view data, size_t limit);

}  // namespace tandem::io
