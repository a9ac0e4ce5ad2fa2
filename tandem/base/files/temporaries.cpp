// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files/folder.h"
#include "tandem/base/files/temporaries_internal.h"
#include "tandem/base/hash/hash.h"
#include "tandem/base/log.h"

namespace tandem::detail {
namespace {

constexpr const char* kMark = ".tmp-";
/// From when on a file counts as left behind, in seconds: without locks, and of another boot.
constexpr time_t kOldWithoutLocks = 24 * 3600, kOldOfOtherBoot = 3600;

// The names in a folder; none where it cannot be read.
std::vector<std::string> names_of(const std::string& folder) {
  std::vector<std::string> names;
  DIR* d = ::opendir(folder.c_str());
  if (!d) return names;
  while (const dirent* e = ::readdir(d))
    if (is_temporary(e->d_name)) names.emplace_back(e->d_name);
  ::closedir(d);
  return names;
}

bool of_this_boot(std::string_view name) {
  return name.substr(name.rfind(kMark) + 5).starts_with(boot_mark());
}

bool older_than(const struct stat& s, time_t seconds) {
  return std::time(nullptr) - s.st_mtime > seconds;
}

// Not held by anybody any more. The descriptor's lock, if it is had, ends with the descriptor.
bool left_behind(int fd, std::string_view name, const struct stat& s) {
  switch (try_lock(fd)) {
    case Locked::held:
      return false;
    case Locked::unsupported:
      return older_than(s, kOldWithoutLocks);
    case Locked::got:
      return of_this_boot(name) || older_than(s, kOldOfOtherBoot);
  }
  return false;
}

}  // namespace

Locked try_lock(int fd, bool shared) {
  int result;
  do {
    result = ::flock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result == 0) return Locked::got;
  return errno == EWOULDBLOCK ? Locked::held : Locked::unsupported;
}

const std::string& boot_mark() {
  static const std::string mark = [] {
    try {
      return fmt::format(
          "{:08x}",
          static_cast<uint32_t>(hash_string(read_file("/proc/sys/kernel/random/boot_id", 4096))));
    } catch (const Error&) {
      return std::string("00000000");
    }
  }();
  return mark;
}

std::string temporary_name(const std::string& target) {
  static std::atomic<unsigned> counter{0};
  return fmt::format("{}{}{}-{}-{}", target, kMark, boot_mark(), ::getpid(), counter++);
}

bool is_temporary(std::string_view name) {
  const size_t at = name.rfind(kMark);
  if (at == name.npos || at == 0) return false;
  const std::string_view rest = name.substr(at + 5);
  return rest.size() >= 12 && rest[8] == '-' &&
         rest.substr(0, 8).find_first_not_of("0123456789abcdef") == rest.npos &&
         rest.substr(9).find_first_not_of("0123456789-") == rest.npos;
}

void sweep_files_once(const std::string& folder) {
  struct stat s {};
  if (::stat(folder.c_str(), &s) != 0) return;
  static std::mutex lock;
  using Folder = std::tuple<dev_t, ino_t, std::string>;  // a number alone is given again
  static std::set<Folder>* const seen = new std::set<Folder>;
  {
    const std::lock_guard hold(lock);
    if (!seen->emplace(s.st_dev, s.st_ino, folder).second) return;
  }
  for (const std::string& name : names_of(folder)) {
    const std::string path = folder + "/" + name;
    // For writing: NFS gives exclusive locks to no others.
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    if (::fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == ::geteuid() &&
        left_behind(fd, name, s))
      ::unlink(path.c_str());
    ::close(fd);
  }
}

void sweep_all(const std::string& folder, bool sure) {
  for (const std::string& name : names_of(folder)) {
    const std::string path = folder + "/" + name;
    struct stat s {};
    if (::lstat(path.c_str(), &s) != 0) continue;
    if (!sure ? !older_than(s, kOldWithoutLocks)
              : !of_this_boot(name) && !older_than(s, kOldOfOtherBoot))
      continue;
    try {
      remove_folder(path);
    } catch (const Error& e) {
      log_warning("{}", e.what());
    }
  }
}

void ignore_file_size_signal() {
  struct sigaction now {};
  if (::sigaction(SIGXFSZ, nullptr, &now) == 0 && now.sa_handler == SIG_DFL)
    ::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace tandem::detail
