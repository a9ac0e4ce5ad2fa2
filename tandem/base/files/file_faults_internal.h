// SPDX-License-Identifier: Apache-2.0
// The hook by which tests make files fail: every system call in file.cpp and folder.cpp consults it
// first. Without a FileFaults it costs one load of a pointer.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

namespace tandem::detail {

enum class FileOp { open, read, write, sync, rename, remove };

class FileFaults {
 public:
  virtual ~FileFaults() = default;
  /// The errno with which the call fails; 0 lets it proceed.
  virtual int error(FileOp op, const std::string& path) = 0;
  /// How many of the `wanted` bytes a read returns or a write takes.
  virtual size_t bytes(FileOp, const std::string& /*path*/, size_t wanted) { return wanted; }
};

/// nullptr: none.
extern std::atomic<FileFaults*> g_file_faults;

inline int file_fault(FileOp op, const std::string& path) {
  FileFaults* f = g_file_faults.load(std::memory_order_acquire);
  return f ? f->error(op, path) : 0;
}
inline size_t file_bytes(FileOp op, const std::string& path, size_t wanted) {
  FileFaults* f = g_file_faults.load(std::memory_order_acquire);
  return f ? f->bytes(op, path, wanted) : wanted;
}

}  // namespace tandem::detail
