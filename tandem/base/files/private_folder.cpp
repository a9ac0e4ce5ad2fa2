// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/files/private_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "tandem/base/error.h"
#include "tandem/base/files/temporaries_internal.h"

namespace tandem {
namespace {

std::string environment(const char* name) {
  const char* v = std::getenv(name);
  return v ? v : "";
}

std::string message_of(int error) { return std::generic_category().message(error); }

// mkdir -p; what is new only this user may enter. 0 or the error.
int make_private(const std::string& path) {
  for (size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST && errno != EISDIR && errno != EROFS)
      return errno;
    if (at == std::string::npos) return 0;
  }
}

// Somebody else's link leads where somebody else wants.
std::string problem_of_link(const std::string& path) {
  struct stat s {};
  if (::lstat(path.c_str(), &s) != 0 || !S_ISLNK(s.st_mode)) return "";
  if (s.st_uid == ::geteuid() || s.st_uid == 0) return "";
  return fmt::format("{} is a symbolic link of user {}", path, s.st_uid);
}

// Where everybody may write, a folder stays in its place only under the sticky bit.
std::string problem_of_parent(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : path.substr(0, slash);
  struct stat s {};
  if (::stat(parent.c_str(), &s) != 0 || !(s.st_mode & S_IWOTH) || (s.st_mode & S_ISVTX)) return "";
  return fmt::format("others may rename {}: {} has mode {:o}", path, parent, s.st_mode & 07777);
}

std::string problem_of(const std::string& path) {
  const int error = make_private(path);
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0)
    return fmt::format("{} cannot be made: {}", path, message_of(error ? error : errno));
  if (!S_ISDIR(s.st_mode)) return fmt::format("{} is not a directory", path);
  if (std::string link = problem_of_link(path); !link.empty()) return link;
  if (s.st_uid != ::geteuid())
    return fmt::format("{} belongs to user {}, not to {}", path, s.st_uid, ::geteuid());
  if (s.st_mode & (S_IWGRP | S_IWOTH))
    return fmt::format("others may write to {} (mode {:o})", path, s.st_mode & 07777);
  if (::access(path.c_str(), W_OK | X_OK) != 0)
    return fmt::format("{} cannot be written: {}", path, message_of(errno));
  return "";
}

bool noexec(const std::string& path) {
  struct statvfs s {};
  return ::statvfs(path.c_str(), &s) == 0 && (s.f_flag & ST_NOEXEC);
}

}  // namespace

std::string temporary_root() {
  std::string root = environment("TMPDIR");
  while (root.size() > 1 && root.back() == '/') root.pop_back();
  return root.empty() || root[0] != '/' ? "/tmp" : root;
}

PrivateFolder::PrivateFolder(const std::string& path) : path_(path), problem_(problem_of(path)) {
  if (!problem_.empty()) path_.clear();
}

PrivateFolder PrivateFolder::cache() {
  if (const std::string d = environment("TANDEM_CACHE_DIR"); !d.empty()) return PrivateFolder(d);
  if (const std::string d = environment("XDG_CACHE_HOME"); !d.empty() && d[0] == '/')
    return PrivateFolder(d + "/tandem");
  if (const std::string d = environment("HOME"); !d.empty() && d[0] == '/')
    return PrivateFolder(d + "/.cache/tandem");
  PrivateFolder f(fmt::format("{}/tandem-{}", temporary_root(), ::geteuid()));
  if (f) f.problem_ = problem_of_parent(f.path_);
  if (!f) f.path_.clear();
  return f;
}

PrivateFolder PrivateFolder::temporary(const std::string& use, bool executable) {
  std::vector<std::string> roots = {temporary_root()};
  if (executable) {
    roots.insert(roots.end(), {"/tmp", "/var/tmp", "/dev/shm"});
    if (const std::string d = environment("XDG_RUNTIME_DIR"); !d.empty() && d[0] == '/')
      roots.push_back(d);
  }
  PrivateFolder f;
  std::string tried;
  for (const std::string& root : roots) {
    tried += (tried.empty() ? "" : ", ") + root;
    if (executable && noexec(root)) continue;
    std::string path = fmt::format("{}/tandem-{}-XXXXXX", root, use);
    if (!::mkdtemp(path.data())) continue;
    f.path_ = path;
    return f;
  }
  f.problem_ = fmt::format("no temporary folder can be made in {}{}", tried,
                           executable ? ", or code may not be loaded from there (noexec)" : "");
  return f;
}

bool PrivateFolder::is_noexec() const { return !path_.empty() && noexec(path_); }

int PrivateFolder::open_file(const std::string& name, int flags) const {
  if (path_.empty() || name.empty() || name.find('/') != name.npos) {
    errno = EPERM;
    return -1;
  }
  const int fd =
      ::open((path_ + "/" + name).c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
  struct stat s {};
  if (fd < 0) return -1;
  if (::fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == ::geteuid() &&
      !(s.st_mode & (S_IWGRP | S_IWOTH)))
    return fd;
  ::close(fd);
  errno = EPERM;
  return -1;
}

void PrivateFolder::check_usable(const std::string& name) const {
  TD_CHECK(problem_.empty(), Io,
           "'{}' has no place: {}\nSet TANDEM_CACHE_DIR to a folder of your own.", name, problem_);
}

std::string PrivateFolder::read(const std::string& name, size_t limit) const {
  check_usable(name);
  const int fd = open_file(name, O_RDONLY);
  TD_CHECK(fd >= 0, Io, "cannot open '{}/{}': {}", path_, name,
           errno == EPERM   ? "it is not a file of this user's alone"
           : errno == ELOOP ? "it is a symbolic link"
                            : message_of(errno));
  std::string content;
  for (;;) {
    const size_t used = content.size();
    content.resize(used + 65536);
    const ssize_t n = ::read(fd, content.data() + used, 65536);
    const int error = n < 0 ? errno : 0;
    content.resize(used + static_cast<size_t>(n > 0 ? n : 0));
    if (error == EINTR) continue;
    if (n > 0 && content.size() <= limit) continue;
    ::close(fd);
    TD_CHECK(n >= 0, Io, "cannot read '{}/{}': {}", path_, name, message_of(error));
    TD_CHECK(content.size() <= limit, Io, "'{}/{}' is larger than the {} bytes allowed here", path_,
             name, limit);
    return content;
  }
}

void PrivateFolder::write(const std::string& name, std::string_view content) const {
  check_usable(name);
  const std::string target = path_ + "/" + name;
  struct stat s {};
  // AtomicFile would write to what a link points to.
  if (::lstat(target.c_str(), &s) == 0 && S_ISLNK(s.st_mode)) ::unlink(target.c_str());
  write_file(target, content);
  ::chmod(target.c_str(), 0600);
}

std::string PrivateFolder::make_folder(const std::string& prefix) const {
  if (path_.empty()) return "";
  std::string made = path_ + "/" + prefix + "XXXXXX";
  return ::mkdtemp(made.data()) ? made : "";
}

int temporary_file() {
  std::string path = temporary_root() + "/tandem-XXXXXX";
  const int fd = ::mkostemp(path.data(), O_CLOEXEC);  // O_EXCL, mode 0600
  if (fd >= 0) ::unlink(path.c_str());
  return fd;
}

}  // namespace tandem
