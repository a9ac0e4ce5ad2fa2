// SPDX-License-Identifier: Apache-2.0
// PrivateFolder: the one way to this project's caches and temporary files. A path that another user
// could have laid out (in /tmp, or where others may write) is checked before anything is read from
// it, written to it or loaded as code.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/files/file.h"

namespace tandem {

/// A folder that belongs to this user and that nobody else may write to; or why there is none.
class TD_API PrivateFolder {
 public:
  /// The user's cache: $TANDEM_CACHE_DIR, else $XDG_CACHE_HOME/tandem, else ~/.cache/tandem, else
  /// tandem-<user id> in temporary_root(). Made with mode 0700 where it is not there.
  static PrivateFolder cache();
  /// That folder, made where it is not there. A symbolic link is followed only where this user or
  /// root made it.
  explicit PrivateFolder(const std::string& path);
  /// A fresh one in $TMPDIR, else /tmp, "tandem-<use>-XXXXXX"; with `executable` the first of
  /// $TMPDIR, /tmp, /var/tmp, /dev/shm and $XDG_RUNTIME_DIR that files may be loaded as code from.
  static PrivateFolder temporary(const std::string& use, bool executable = false);

  /// May it be used?
  explicit operator bool() const { return problem_.empty(); }
  /// "" where there is none.
  const std::string& path() const { return path_; }
  /// Why it may not be used; "" where it may.
  const std::string& problem() const { return problem_; }
  /// Is it on a file system that code is not loaded from (noexec)?
  bool is_noexec() const;

  /// A file in it: O_NOFOLLOW, a regular one of this user's that others may not write, mode 0600
  /// when it is made. The descriptor, or -1 with errno (EPERM: it is not as it should be).
  int open_file(const std::string& name, int flags) const;
  /// The content of such a file. Throws Io with the folder's problem, for a file that is not as it
  /// should be, and for one of more than `limit` bytes.
  std::string read(const std::string& name, size_t limit = size_t{1} << 26) const;
  /// Writes the file whole or not at all; what lay there under the name, a link too, is replaced.
  /// Throws Io.
  void write(const std::string& name, std::string_view content) const;
  /// A fresh folder in it, "<prefix>XXXXXX"; "" where none can be made.
  std::string make_folder(const std::string& prefix) const;

 private:
  PrivateFolder() = default;
  void check_usable(const std::string& name) const;
  std::string path_, problem_;
};

/// A nameless file in $TMPDIR, else /tmp, that is gone when its descriptor is closed; -1 with errno
/// where none can be made.
TD_API int temporary_file();
/// $TMPDIR where that is an absolute path, else /tmp.
TD_API std::string temporary_root();

}  // namespace tandem
