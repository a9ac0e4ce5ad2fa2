// SPDX-License-Identifier: Apache-2.0
#include "tandem/onnx/export/written_file_internal.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/files/file.h"

namespace tandem::onnx {
namespace {

/// Copies a file to a name that nothing has yet; false, with the reason: it was not copied.
bool copy_to_new(const std::string& from, const std::string& to, std::error_code& error) {
  if (std::filesystem::copy_file(from, to, error)) return true;
  if (error != std::errc::file_exists) ::unlink(to.c_str());
  return false;
}

/// The old file under another name: a second one of it, else a copy.
std::string kept_aside(const std::string& path, bool may_link) {
  constexpr int kMostNames = 100;  // those of a process that was killed are still there
  std::error_code error;
  for (int k = 0; k < kMostNames; ++k) {
    const std::string name =
        fmt::format("{}.before-{}{}", path, ::getpid(), k == 0 ? "" : fmt::format("-{}", k));
    if (may_link && ::link(path.c_str(), name.c_str()) == 0) return name;
    if (may_link && errno == EEXIST) {
      error = std::error_code(EEXIST, std::generic_category());
      continue;
    }
    if (copy_to_new(path, name, error)) return name;
    if (error != std::errc::file_exists) break;
  }
  TD_FAIL(Io,
          "cannot write '{}': the file that is there cannot be kept meanwhile: {}. Nothing was "
          "changed\nMake room in its folder, remove old '{}.before-*', or write another file.",
          path, error.message(), path);
}

}  // namespace

// The old file keeps its bytes under a second name while a new one takes the first: nobody finds
// the first one missing. Of a symbolic link the file that it points to is replaced.
WrittenFile::WrittenFile(std::string path, bool may_link)
    : path_(std::move(path)), existed_(file_exists(path_)) {
  struct stat info {};
  // Folders and devices are not replaced.
  if (!existed_ || ::stat(path_.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  char resolved[PATH_MAX];
  if (::realpath(path_.c_str(), resolved)) path_ = resolved;
  before_ = kept_aside(path_, may_link);
}

WrittenFile::~WrittenFile() {
  if (path_.empty()) return;
  if (!before_.empty())
    std::rename(before_.c_str(), path_.c_str());
  else if (!existed_)
    ::unlink(path_.c_str());
}

void WrittenFile::keep() {
  if (!before_.empty()) ::unlink(before_.c_str());
  path_.clear();
}

}  // namespace tandem::onnx
