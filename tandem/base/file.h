// SPDX-License-Identifier: Apache-2.0
// Files: mapped for reading, read whole, and written so that a reader sees the old file or the new
// one and never a part. Every failure is an Io error with the path and the system's words.
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

/// A path as a parameter: from text, a std::filesystem::path or a plain pointer such as argv[1].
/// A null pointer is the empty path, which every function here refuses with an Io error.
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

/// A file mapped for reading, held with Ref<MappedFile>. Whoever shortens the file on disk while it
/// is mapped ends the process (SIGBUS); AtomicFile never does that.
class TD_API MappedFile : public RefCounted {
 public:
  explicit MappedFile(const FilePath& path);
  ~MappedFile() override;
  const unsigned char* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view view() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const unsigned char* data_ = nullptr;
  size_t size_ = 0;
};

/// The whole content of a file or pipe; throws Io beyond `limit` bytes.
TD_API std::string read_file(const FilePath& path, size_t limit = size_t{1} << 34);

/// True when something exists at `path`.
TD_API bool file_exists(const FilePath& path);

/// Writes beside the target (`<path>.tmp-<pid>-<n>`), then commit() syncs and renames. Without
/// commit(), or after any error, the temporary is removed and the target is as it was.
class TD_API AtomicFile {
 public:
  /// `expected_bytes`, if known, is reserved at once, so that a full disk is seen before any work.
  explicit AtomicFile(const FilePath& path, uint64_t expected_bytes = 0);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Bytes given to write() so far.
  uint64_t written() const { return written_; }
  /// Make the content durable and put it in the target's place. Once.
  void commit();

 private:
  void flush();
  void write_through(const char* data, size_t bytes);
  void discard() noexcept;
  [[noreturn]] void fail(const char* doing, int error);

  std::string target_, temporary_;
  int fd_ = -1;
  uint64_t expected_ = 0, written_ = 0;
  std::unique_ptr<char[]> buffer_;
  size_t buffered_ = 0;
};

/// AtomicFile for a text that is already there.
TD_API void write_file(const FilePath& path, std::string_view content);

}  // namespace tandem
