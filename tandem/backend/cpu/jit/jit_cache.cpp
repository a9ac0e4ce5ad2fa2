// SPDX-License-Identifier: Apache-2.0
// The private directory: checked before it is used; every file is written elsewhere, moved in whole
// and sealed with SHA-256. A file with several keys is one file with several names.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "tandem/backend/cpu/jit/jit_internal.h"
#include "tandem/base/error.h"
#include "tandem/base/files/file.h"
#include "tandem/base/files/temporaries_internal.h"
#include "tandem/base/hash/sha256.h"

namespace tandem::detail {
namespace {

constexpr std::string_view kMark = "\ntandem compiled loops 1\n";
constexpr size_t kSealBytes = kMark.size() + 32;
constexpr size_t kMostBytes = size_t{64} << 20;  // of one file
constexpr time_t kStaleSeconds = 3600;
constexpr const char* kScratch = "work-";

bool ends_with(std::string_view s, std::string_view end) {
  return s.size() >= end.size() && s.substr(s.size() - end.size()) == end;
}

// Names in a directory; none if it cannot be read.
std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  DIR* d = opendir(directory.c_str());
  if (!d) return names;
  while (const dirent* e = readdir(d)) {
    const std::string name = e->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(d);
  return names;
}

bool write_all(int fd, std::string_view content) {
  if (fd < 0) return false;
  bool good = true;
  while (good && !content.empty()) {
    const ssize_t n = write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    good = n > 0;
    if (good) content.remove_prefix(static_cast<size_t>(n));
  }
  return (close(fd) == 0) & good;
}
// The file must not be there before.
bool write_new(const std::string& path, std::string_view content) {
  return write_all(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0700),
                   content);
}

// A whole small file of a scratch directory; empty on any error.
std::string read_small(const std::string& path) {
  try {
    return read_file(path, kMostBytes);
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

std::string seal_of(std::string_view bytes) {
  const auto hash = sha256(bytes);
  std::string s(kMark);
  s.append(reinterpret_cast<const char*>(hash.data()), hash.size());
  return s;
}

JitCache::JitCache(const std::string& directory, int64_t cap_bytes)
    : folder_(directory.empty() ? PrivateFolder::cache() : PrivateFolder(directory)),
      cap_(cap_bytes),
      noexec_(folder_.is_noexec()) {
  ignore_file_size_signal();
  if (keeps()) remove_stale();
}

void JitCache::remove_tree(const std::string& directory) {
  if (directory.empty()) return;
  for (const std::string& name : names_in(directory)) {
    const std::string path = directory + "/" + name;
    if (unlink(path.c_str()) != 0 && (errno == EISDIR || errno == EPERM)) remove_tree(path);
  }
  rmdir(directory.c_str());
}

// Removes what killed processes left behind.
void JitCache::remove_stale() {
  const time_t now = time(nullptr);
  for (const std::string& name : names_in(directory())) {
    struct stat s;
    const std::string path = directory() + "/" + name;
    if (name.rfind(kScratch, 0) != 0 || lstat(path.c_str(), &s) != 0) continue;
    if (S_ISDIR(s.st_mode) && now - s.st_mtime > kStaleSeconds) remove_tree(path);
  }
}

std::string JitCache::make_scratch() {
  // Where code is loaded from: the compiler's output lies there.
  if (keeps() && !noexec_) return folder_.make_folder(kScratch);
  const PrivateFolder made = PrivateFolder::temporary("jit", true);
  if (!made) scratch_problem_ = made.problem();
  return made.path();
}

std::string JitCache::find(const std::string& key) {
  if (!keeps()) return "";
  const std::string name = key + ".so", path = directory() + "/" + name;
  struct stat s;
  if (lstat(path.c_str(), &s) != 0) return "";
  std::string content;
  try {
    content = folder_.read(name, kMostBytes);
  } catch (const Error&) {  // no file of ours
  }
  const bool whole = content.size() > kSealBytes;
  const std::string_view bytes =
      std::string_view(content).substr(0, whole ? content.size() - kSealBytes : content.size());
  if (!whole || content.compare(bytes.size(), kSealBytes, seal_of(bytes)) != 0) {
    unlink(path.c_str());
    return "";
  }
  // The modification time records the last use; a day's resolution is enough.
  if (time(nullptr) - s.st_mtime > 24 * 3600)
    utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  return path;
}

void* JitCache::load(const std::string& path) {
  if (!noexec_ || path.rfind(directory() + "/", 0) != 0)
    return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  // From a copy where code may be loaded; what is mapped stays when its file is gone.
  const std::string scratch = make_scratch();
  if (scratch.empty()) return nullptr;
  const std::string copy = scratch + "/loops.so";
  void* library =
      write_new(copy, read_small(path)) ? dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  remove_tree(scratch);
  return library;
}

std::string JitCache::keep(const std::string& file, const std::vector<std::string>& keys) {
  const std::string content = read_small(file);
  if (content.empty() ||
      !write_all(::open(file.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC),
                 seal_of(content)))
    return "";
  chmod(file.c_str(), 0700);
  if (!keeps()) return file;
  for (const std::string& key : keys) {
    const std::string name = file + "." + key;
    if (!noexec_ && link(file.c_str(), name.c_str()) == 0) {
      if (rename(name.c_str(), (directory() + "/" + key + ".so").c_str()) == 0) continue;
      unlink(name.c_str());
    }
    try {  // on another file system, or on one without links
      folder_.write(key + ".so", content + seal_of(content));
    } catch (const Error&) {  // a full disk: the file is loaded and not kept
    }
  }
  shrink();
  return file;
}

// Over the cap: remove the oldest until four fifths remain.
void JitCache::shrink() {
  struct Entry {
    std::string path;
    timespec time;
    int64_t bytes;
  };
  std::vector<Entry> entries;
  int64_t total = 0;
  for (const std::string& name : names_in(directory())) {
    struct stat s;
    const std::string path = directory() + "/" + name;
    if (!ends_with(name, ".so") || lstat(path.c_str(), &s) != 0 || !S_ISREG(s.st_mode)) continue;
    const auto links = static_cast<int64_t>(std::max<nlink_t>(s.st_nlink, 1));
    entries.push_back({path, s.st_mtim, s.st_size / links + 256});
    total += entries.back().bytes;
  }
  if (total <= cap_) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.time.tv_sec != b.time.tv_sec ? a.time.tv_sec < b.time.tv_sec
                                          : a.time.tv_nsec < b.time.tv_nsec;
  });
  for (const Entry& e : entries) {
    if (total <= cap_ / 5 * 4) return;
    if (unlink(e.path.c_str()) == 0) total -= e.bytes;
  }
}

}  // namespace tandem::detail
