// SPDX-License-Identifier: Apache-2.0
// FileLock: one writer for what lies in a folder. The system holds the lock, not the file's
// content, so that it ends with its process however that ends, and pids that mean nothing outside
// their container are never compared.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tandem/base/files/file.h"

namespace tandem {

namespace detail {
struct HeldLock;
}

/// Who holds a lock, as its file says.
struct LockHolder {
  int64_t pid = 0;        ///< in the holder's own pid namespace; 0: it has not said so yet
  std::string host = "";  ///< of the holder; in a container its name
  double since = 0;       ///< seconds since 1970
  /// "process 4242 on host 'a', since 2026-01-31 12:00:00".
  TD_API std::string to_string() const;
};

/// Holds the file `path` while it lives, made where it is not there and removed at the end. The
/// lock is flock(2)'s: over NFS the server keeps it (Linux hands it on as a lock of bytes). The
/// thread that holds it may take it again; a child of fork() has no part in it. On a file system
/// without locks it holds nothing, which is logged once.
class TD_API FileLock {
 public:
  /// Throws Io naming the holder when another process or thread has it, and for a file that cannot
  /// be made. `what` is what the lock protects: "the run folder 'runs/a'".
  FileLock(const FilePath& path, const std::string& what);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  /// False on a file system without locks.
  bool held() const;
  /// Did nobody hold it before, not even this thread?
  bool is_first() const { return first_; }
  /// Who holds `path` now; nothing when nobody does, or when that cannot be known.
  static std::optional<LockHolder> holder(const FilePath& path);

 private:
  std::shared_ptr<detail::HeldLock> held_;
  bool first_ = true;
};

}  // namespace tandem
