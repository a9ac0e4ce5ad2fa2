// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/files/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/files/file_faults_internal.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using detail::FileOp;

void check(const std::error_code& error, const char* doing, const std::string& path) {
  TD_CHECK(!error, Io, "cannot {} '{}': {}", doing, path, error.message());
}

std::error_code sync_folder(const std::string& path) {
  if (int e = detail::file_fault(FileOp::sync, path)) return {e, std::generic_category()};
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return {errno, std::generic_category()};
  // A file system that cannot sync folders at all says so; there is nothing left to do then.
  const int error = ::fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP ? errno : 0;
  ::close(fd);
  return {error, std::generic_category()};
}

}  // namespace

void make_folders(const FilePath& path) {
  std::error_code error;
  if (int e = detail::file_fault(FileOp::open, path.str())) error = {e, std::generic_category()};
  if (!error) fs::create_directories(path.str(), error);
  if (!error && !fs::is_directory(path.str(), error) && !error)
    error = std::make_error_code(std::errc::not_a_directory);
  check(error, "make the folder", path.str());
}

std::vector<std::string> list_folder(const FilePath& path) {
  std::error_code error;
  std::vector<std::string> names;
  if (int e = detail::file_fault(FileOp::read, path.str())) error = {e, std::generic_category()};
  if (!error)
    for (fs::directory_iterator it(path.str(), error), end; !error && it != end;
         it.increment(error))
      names.push_back(it->path().filename().string());
  check(error, "list", path.str());
  std::sort(names.begin(), names.end());
  return names;
}

void rename_durably(const FilePath& from, const FilePath& to) {
  struct stat info {};
  TD_CHECK(::lstat(to.c_str(), &info) != 0, Io, "cannot rename '{}' to '{}': it exists", from.str(),
           to.str());
  if (fs::is_directory(from.str())) check(sync_folder(from.str()), "sync", from.str());
  std::error_code error;
  if (int e = detail::file_fault(FileOp::rename, to.str())) error = {e, std::generic_category()};
  if (!error && ::rename(from.c_str(), to.c_str()) != 0) error = {errno, std::generic_category()};
  check(error, "rename to", to.str());
  const std::string around = fs::path(to.str()).parent_path().string();
  check(sync_folder(around.empty() ? "." : around), "sync the folder of", to.str());
}

void remove_folder(const FilePath& path) {
  std::error_code error;
  if (int e = detail::file_fault(FileOp::remove, path.str())) error = {e, std::generic_category()};
  if (!error) fs::remove_all(path.str(), error);
  check(error, "remove", path.str());
}

}  // namespace tandem
