// SPDX-License-Identifier: Apache-2.0
// The private directory: checked before it is used; every file is written elsewhere, moved in whole
// and sealed with SHA-256. A file with several keys is one file with several names.
#include <dirent.h>
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
#include "tandem/base/file.h"
#include "tandem/base/sha256.h"

namespace tandem::detail {
namespace {

constexpr std::string_view kMark = "\ntandem compiled loops 1\n";
constexpr size_t kSealBytes = kMark.size() + 32;
constexpr size_t kMostBytes = size_t{64} << 20;  // of one file
constexpr time_t kStaleSeconds = 3600;
constexpr const char* kScratch = "work-";

std::string text_of(const char* name) {
  const char* v = std::getenv(name);
  return v ? v : "";
}

std::string users_directory() {
  if (std::string d = text_of("TANDEM_CACHE_DIR"); !d.empty()) return d;
  if (std::string d = text_of("XDG_CACHE_HOME"); !d.empty() && d[0] == '/') return d + "/tandem";
  if (std::string d = text_of("HOME"); !d.empty() && d[0] == '/') return d + "/.cache/tandem";
  return "";
}

// mkdir -p, accessible only to this user.
bool make_directories(const std::string& path) {
  for (size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST && errno != EISDIR && errno != EROFS) {
      return false;
    }
    if (at == std::string::npos) return true;
  }
}

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

bool write_all(const std::string& path, std::string_view content, int flags) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0700);
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

// A whole small file; empty on any error.
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

JitCache::JitCache(const std::string& directory, int64_t cap_bytes) : cap_(cap_bytes) {
  const std::string d = directory.empty() ? users_directory() : directory;
  if (d.empty()) {
    problem_ = "there is no HOME, XDG_CACHE_HOME or TANDEM_CACHE_DIR";
    return;
  }
  keeps_ = open(d);
  if (!keeps_) return;
  directory_ = d;
  remove_stale();
}

bool JitCache::open(const std::string& d) {
  struct stat s;
  const bool made = make_directories(d);
  const int error = errno;
  if (stat(d.c_str(), &s) != 0) {
    problem_ = fmt::format("{} cannot be made: {}", d, std::strerror(made ? errno : error));
  } else if (!S_ISDIR(s.st_mode)) {
    problem_ = fmt::format("{} is not a directory", d);
  } else if (s.st_uid != geteuid()) {
    problem_ = fmt::format("{} belongs to user {}, not to {}", d, s.st_uid, geteuid());
  } else if (s.st_mode & (S_IWGRP | S_IWOTH)) {
    problem_ = fmt::format("others may write to {} (mode {:o})", d, s.st_mode & 07777);
  } else if (access(d.c_str(), W_OK | X_OK) != 0) {
    problem_ = fmt::format("{} cannot be written: {}", d, std::strerror(errno));
  }
  return problem_.empty();
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
  for (const std::string& name : names_in(directory_)) {
    struct stat s;
    const std::string path = directory_ + "/" + name;
    if (name.rfind(kScratch, 0) != 0 || lstat(path.c_str(), &s) != 0) continue;
    if (S_ISDIR(s.st_mode) && now - s.st_mtime > kStaleSeconds) remove_tree(path);
  }
}

std::string JitCache::make_scratch() {
  std::string base = directory_;
  if (!keeps_) {
    base = text_of("TMPDIR");
    if (base.empty()) base = "/tmp";
    base += "/tandem";
  } else {
    base += "/";
  }
  std::string path = base + (keeps_ ? kScratch : "-jit-") + "XXXXXX";
  return mkdtemp(path.data()) ? path : "";
}

std::string JitCache::find(const std::string& key) {
  if (!keeps_) return "";
  const std::string path = directory_ + "/" + key + ".so";
  struct stat s;
  if (lstat(path.c_str(), &s) != 0) return "";
  const bool sane = S_ISREG(s.st_mode) && s.st_uid == geteuid() && !(s.st_mode & 022);
  const std::string content = sane ? read_small(path) : "";
  const bool whole = content.size() > kSealBytes;
  const std::string_view bytes =
      std::string_view(content).substr(0, whole ? content.size() - kSealBytes : content.size());
  if (!whole || content.compare(bytes.size(), kSealBytes, seal_of(bytes)) != 0) {
    unlink(path.c_str());
    return "";
  }
  // The modification time records the last use; a day's resolution is enough.
  if (time(nullptr) - s.st_mtime > 24 * 3600) utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
  return path;
}

std::string JitCache::keep(const std::string& file, const std::vector<std::string>& keys) {
  const std::string content = read_small(file);
  if (content.empty() || !write_all(file, seal_of(content), O_APPEND)) return "";
  chmod(file.c_str(), 0700);
  if (!keeps_) return file;
  for (const std::string& key : keys) {
    const std::string target = directory_ + "/" + key + ".so", name = file + "." + key;
    if (link(file.c_str(), name.c_str()) != 0 &&
        !write_all(name, content + seal_of(content), O_CREAT | O_EXCL)) {
      continue;
    }
    if (rename(name.c_str(), target.c_str()) != 0) unlink(name.c_str());
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
  for (const std::string& name : names_in(directory_)) {
    struct stat s;
    const std::string path = directory_ + "/" + name;
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
