// SPDX-License-Identifier: Apache-2.0
// Files: mapped for reading, read whole, and written so that a reader sees the old file or the new
// one, never a mixture. Every failure is an Io error with the path and the system's message.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tandem/base/export.h"
#include "tandem/base/intrusive.h"

namespace tandem {

/// A path as a parameter: from a string, a std::filesystem::path or a plain pointer such as
/// argv[1]. A null pointer is the empty path, which every function here rejects with an Io error.
class FilePath {
 public:
  FilePath(const char* p) : text_(p ? p : "") {}
  FilePath(std::string p) : text_(std::move(p)) {}
  template <class P>
    requires requires(const P& p) {
      { p.native() } -> std::convertible_to<std::string>;
    }
  FilePath(const P& p) : text_(p.native()) {}
  const std::string& str() const { return text_; }
  const char* c_str() const { return text_.c_str(); }

 private:
  std::string text_;
};

/// A file mapped for reading, held by Ref<MappedFile>. If the file is shortened on disk while it is
/// mapped, the process dies (SIGBUS); AtomicFile never does that.
class TD_API MappedFile : public RefCounted {
 public:
  explicit MappedFile(const FilePath& path);
  ~MappedFile() override;
  const unsigned char* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view view() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::string& path() const { return path_; }

 private:
  friend class AtomicFile;
  MappedFile(std::string path, int fd, size_t size);
  void map(int fd);
  std::string path_;
  const unsigned char* data_ = nullptr;
  size_t size_ = 0;
};

/// The whole content of a file or pipe; throws Io if it exceeds `limit` bytes.
TD_API std::string read_file(const FilePath& path, size_t limit = size_t{1} << 34);

/// True when something exists at `path`.
TD_API bool file_exists(const FilePath& path);

/// Writes to a temporary next to the target (`<path>.tmp-<boot>-<pid>-<n>`); commit() then syncs
/// and renames it. Without commit(), or after an error, it is removed and the target is unchanged;
/// that of a process that was killed is removed by the next one that writes into the folder. A file
/// beyond the limit of sizes (ulimit -f) is an Io error: SIGXFSZ is ignored from the first one on.
class TD_API AtomicFile {
 public:
  /// `expected_bytes`, if known, is reserved at once: a full disk is detected before any work.
  explicit AtomicFile(const FilePath& path, uint64_t expected_bytes = 0);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Bytes given to write() so far.
  uint64_t written() const { return written_; }
  /// Make the content durable and replace the target with it. Call once.
  void commit();
  /// In place of commit(): map the content. The file gets no name, the target is unchanged, and the
  /// bytes are gone when nobody holds them any more.
  Ref<MappedFile> map();

 private:
  void open_temporary();
  void flush();
  void write_through(const char* data, size_t bytes);
  void discard() noexcept;
  [[noreturn]] void fail(const char* doing, int error);

  std::string target_, temporary_;
  int fd_ = -1;
  int owner_ = 0;  ///< the process that made the temporary file
  uint64_t expected_ = 0, written_ = 0;
  std::unique_ptr<char[]> buffer_;
  size_t buffered_ = 0;
};

/// Write `content` through an AtomicFile.
TD_API void write_file(const FilePath& path, std::string_view content);

}  // namespace tandem
