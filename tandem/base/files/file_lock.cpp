// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/files/file_lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files/temporaries_internal.h"
#include "tandem/base/log.h"

namespace tandem {

using detail::Locked;
using detail::try_lock;

struct detail::HeldLock {
  int fd = -1;
  std::string path;  ///< absolute
  std::thread::id thread;
  ~HeldLock();
};

namespace {

using detail::HeldLock;

using Inode = std::pair<dev_t, ino_t>;

/// A lock that another process is just looking at, or that is ending, is free again by then.
constexpr int kTries = 6;
constexpr timespec kPause{0, 20'000'000};

// What this process holds. Never destroyed: locks may end after it.
struct HeldLocks {
  std::mutex mutex;
  struct Entry {
    HeldLock* lock;  ///< whose end waits for `mutex` and takes it out of here
    std::weak_ptr<HeldLock> shared;
  };
  std::map<Inode, Entry> all;
};
HeldLocks& held_locks() {
  static HeldLocks* const locks = [] {
    // A child has the descriptors too, and with them the lock beyond its parent's end: it lets go.
    pthread_atfork([] { held_locks().mutex.lock(); }, [] { held_locks().mutex.unlock(); },
                   [] {
                     for (auto& [inode, entry] : held_locks().all)
                       ::close(std::exchange(entry.lock->fd, -1));
                     held_locks().all.clear();
                     held_locks().mutex.unlock();
                   });
    return new HeldLocks;
  }();
  return *locks;
}

/// A descriptor that is closed unless it is handed on.
struct Opened {
  mutable int fd;
  explicit Opened(int fd) : fd(fd) {}
  Opened(const Opened&) = delete;
  ~Opened() {
    if (fd >= 0) ::close(fd);
  }
  int release() const { return std::exchange(fd, -1); }
};

std::string words_for(int error) { return std::generic_category().message(error); }

bool is_file_of(int fd, const std::string& path, struct stat& s) {
  struct stat named {};
  return ::fstat(fd, &s) == 0 && ::stat(path.c_str(), &named) == 0 && s.st_dev == named.st_dev &&
         s.st_ino == named.st_ino;
}

void say_who(int fd) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const std::string text = fmt::format("pid {}\nhost {}\nsince {}\n", ::getpid(), host,
                                       static_cast<int64_t>(std::time(nullptr)));
  // A holder without a name is one all the same: nothing is wrong with a full disk here.
  if (::ftruncate(fd, 0) == 0 && ::pwrite(fd, text.data(), text.size(), 0) < 0) return;
}

LockHolder read_who(int fd) {
  LockHolder who;
  char text[512] = "", host[256] = "";
  const ssize_t n = ::pread(fd, text, sizeof text - 1, 0);
  long long pid = 0, since = 0;
  if (n > 0 && std::sscanf(text, "pid %lld host %255s since %lld", &pid, host, &since) == 3)
    who = {pid, host, static_cast<double>(since)};
  return who;
}

}  // namespace

detail::HeldLock::~HeldLock() {
  HeldLocks& locks = held_locks();
  const std::lock_guard hold(locks.mutex);
  if (fd < 0) return;
  struct stat s {};
  if (is_file_of(fd, path, s)) ::unlink(path.c_str());  // nobody else can hold it now
  locks.all.erase({s.st_dev, s.st_ino});
  ::close(fd);
}

std::string LockHolder::to_string() const {
  if (pid == 0) return "another process";
  char text[32] = "";
  const auto at = static_cast<std::time_t>(since);
  std::tm local{};
  ::localtime_r(&at, &local);
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return fmt::format("process {} on host '{}', since {}", pid, host, text);
}

namespace {

// What this thread holds of that file already; throws Io where another thread does.
std::shared_ptr<HeldLock> shared_lock(const HeldLocks& locks, const struct stat& s,
                                      const std::string& what) {
  const auto it = locks.all.find({s.st_dev, s.st_ino});
  if (it == locks.all.end()) return {};
  if (it->second.lock->thread == std::this_thread::get_id()) return it->second.shared.lock();
  TD_FAIL(Io, "{} is in use by another thread of this process\nUse another folder, or wait.", what);
}

void say_without_locks(const std::string& path) {
  static const bool told = [&] {
    log_warning("the file system of '{}' has no locks: two writers are not noticed", path);
    return true;
  }();
  (void)told;
}

}  // namespace

FileLock::FileLock(const FilePath& path, const std::string& what) {
  HeldLocks& locks = held_locks();
  for (int failed = 0;;) {
    std::unique_lock hold(locks.mutex);
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    TD_CHECK(fd >= 0, Io, "cannot lock {}: '{}': {}", what, path.str(), words_for(errno));
    const Opened opened{fd};
    struct stat s {};
    const bool named = is_file_of(fd, path.str(), s);
    if ((held_ = shared_lock(locks, s, what))) {
      first_ = false;
      return;
    }
    const Locked got = try_lock(fd);
    if (got == Locked::unsupported) {
      say_without_locks(path.str());
      return;
    }
    if (got == Locked::held) {
      TD_CHECK(++failed < kTries, Io,
               "{} is in use by {}\nWait until it ends or stop it; or use another folder.", what,
               read_who(fd).to_string());
      hold.unlock();
      ::nanosleep(&kPause, nullptr);
      continue;
    }
    if (!named || !is_file_of(fd, path.str(), s)) continue;  // its last holder just removed it
    say_who(fd);
    char full[PATH_MAX];
    held_ = std::make_shared<HeldLock>();
    held_->fd = opened.release();
    held_->path = ::realpath(path.c_str(), full) ? full : path.str();
    held_->thread = std::this_thread::get_id();
    locks.all[{s.st_dev, s.st_ino}] = {held_.get(), held_};
    return;
  }
}

FileLock::~FileLock() = default;

bool FileLock::held() const { return held_ && held_->fd >= 0; }

std::optional<LockHolder> FileLock::holder(const FilePath& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return {};
  std::optional<LockHolder> who;
  if (try_lock(fd, true) == Locked::held) who = read_who(fd);
  ::close(fd);
  return who;
}

}  // namespace tandem
