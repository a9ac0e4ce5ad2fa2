// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/files/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files/file_faults_internal.h"
#include "tandem/base/files/folder.h"
#include "tandem/base/files/mapped_pages.h"
#include "tandem/base/files/temporaries_internal.h"
#include "tandem/base/nearest.h"

namespace tandem {

std::atomic<detail::FileFaults*> detail::g_file_faults{nullptr};

namespace {

using detail::file_bytes;
using detail::file_fault;
using detail::FileOp;

constexpr size_t kBuffer = 256 << 10;

std::string words(int error) { return std::generic_category().message(error); }

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// The nearest name in the folder, or where the path begins to lead nowhere.
TD_COLD std::string hint_for_missing(const std::string& path) {
  const std::string folder = folder_of(path), name = path.substr(path.rfind('/') + 1);
  std::string start;
  if (path[0] != '/')
    if (char* here = ::getcwd(nullptr, 0)) {
      start = std::string(" The path is relative to '") + here + "'.";
      std::free(here);
    }
  if (::access(folder.c_str(), F_OK) != 0)
    return "There is no folder '" + folder + "': check the path." + start;
  try {
    const std::string nearest = nearest_word(name, list_folder(folder));
    if (!nearest.empty()) return "Did you mean '" + nearest + "'?" + start;
  } catch (const Error&) {  // a folder that may not be read
  }
  return "Its folder has no name like it: check the path." + start;
}

[[noreturn]] TD_COLD void fail_to(const char* doing, const std::string& path, int error) {
  TD_FAIL(Io, "cannot {} '{}': {}", doing, path, words(error));
}

void check_given(const std::string& path) {
  TD_CHECK(!path.empty(), Io, "no path was given (it is empty or null)");
  TD_CHECK(path.find('\0') == std::string::npos, Io, "the path '{}' holds a zero byte",
           path.c_str());
}

/// A descriptor that closes itself.
struct Descriptor {
  int fd;
  explicit Descriptor(int fd) : fd(fd) {}
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

int open_for_reading(const std::string& path, struct stat* info) {
  check_given(path);
  if (int e = file_fault(FileOp::open, path)) fail_to("open", path, e);
  int fd;
  do {
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0 && errno == ENOENT)
    TD_FAIL(Io, "cannot open '{}': {}\n{}", path, words(ENOENT), hint_for_missing(path));
  if (fd < 0) fail_to("open", path, errno);
  if (::fstat(fd, info) != 0 || S_ISDIR(info->st_mode)) {
    const int error = S_ISDIR(info->st_mode) ? EISDIR : errno;
    ::close(fd);
    fail_to("open", path, error);
  }
  return fd;
}

}  // namespace

namespace {
struct Mapping {
  size_t size = 0;
  bool passed = false;  // named by passed_mapped() since its pages were last released
};
// All live mappings, by start address.
struct Mappings {
  std::mutex lock;
  std::map<uintptr_t, Mapping> all;
  size_t passed = 0;  // bytes
  using Iterator = std::map<uintptr_t, Mapping>::iterator;
  /// The mapping that contains all of [at, at + bytes), or the end.
  Iterator find(uintptr_t at, size_t bytes) {
    const auto next = all.upper_bound(at);
    if (next == all.begin()) return all.end();
    const auto it = std::prev(next);
    return at + bytes <= it->first + it->second.size ? it : all.end();
  }
};
Mappings& mappings() {
  static auto* m = new Mappings;
  return *m;
}
}  // namespace

MappedFile::MappedFile(const FilePath& path) : path_(path.str()) {
  struct stat info {};
  const Descriptor file(open_for_reading(path_, &info));
  TD_CHECK(S_ISREG(info.st_mode), Io, "cannot map '{}': it is not a regular file", path_);
  size_ = file_bytes(FileOp::read, path_, static_cast<size_t>(info.st_size));
  map(file.fd);
}

MappedFile::MappedFile(std::string path, int fd, size_t size)
    : path_(std::move(path)), size_(size) {
  map(fd);
}

void MappedFile::map(int fd) {
  if (size_ == 0) return;
  void* p = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  if (p == MAP_FAILED) fail_to("map", path_, errno);
  data_ = static_cast<const unsigned char*>(p);
  std::lock_guard hold(mappings().lock);
  mappings().all[reinterpret_cast<uintptr_t>(p)] = {.size = size_};
}

MappedFile::~MappedFile() {
  if (!data_) return;
  {
    std::lock_guard hold(mappings().lock);
    mappings().all.erase(reinterpret_cast<uintptr_t>(data_));
  }
  ::munmap(const_cast<unsigned char*>(data_), size_);
}

void release_mapped(const void* p, size_t bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<uintptr_t>(p);
  std::lock_guard hold(mappings().lock);  // keeps the file mapped meanwhile
  if (mappings().find(at, bytes) == mappings().all.end()) return;
  // Includes pages shared with neighbouring ranges: they are read again if need be.
  const uintptr_t first = at / page * page, last = (at + bytes + page - 1) / page * page;
  ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

void passed_mapped(const void* p, size_t bytes) {
  // The system maps up to 16 pages around a page that is touched.
  constexpr uintptr_t kAround = 64 << 10;
  const auto at = reinterpret_cast<uintptr_t>(p);
  const uintptr_t chunk = at / kAround, end = (at + bytes) / kAround;
  thread_local uintptr_t last = 0;
  if (last == end && chunk == end) return;
  last = end;
  Mappings& m = mappings();
  std::lock_guard hold(m.lock);
  const auto it = m.find(at, bytes);
  if (it == m.all.end()) return;
  it->second.passed = true;
  m.passed += (end - chunk + 1) * kAround;
  if (m.passed < kPassedBytes) return;
  m.passed = 0;
  for (auto& [begin, mapping] : m.all)
    if (std::exchange(mapping.passed, false))
      ::madvise(reinterpret_cast<void*>(begin), mapping.size, MADV_DONTNEED);
}

std::string read_file(const FilePath& path, size_t limit) {
  struct stat info {};
  const Descriptor file(open_for_reading(path.str(), &info));
  std::string content;
  auto check_size = [&](uint64_t size) {
    TD_CHECK(size <= limit, Io, "'{}' is larger than the {} bytes that are allowed here",
             path.str(), limit);
  };
  if (S_ISREG(info.st_mode)) {
    check_size(static_cast<uint64_t>(info.st_size));
    content.reserve(static_cast<size_t>(info.st_size) + 1);
  }
  size_t used = 0;
  for (;;) {
    // Read one byte more than the file has: this detects the end without growing the string.
    content.resize(std::max(content.capacity(), used + 4096));
    if (int e = file_fault(FileOp::read, path.str())) fail_to("read", path.str(), e);
    const size_t wanted = file_bytes(FileOp::read, path.str(), content.size() - used);
    const ssize_t n = ::read(file.fd, content.data() + used, wanted);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_to("read", path.str(), errno);
    used += static_cast<size_t>(n);
    check_size(used);
    if (n == 0) break;
    if (used == content.size()) content.resize(used + used / 2);
  }
  content.resize(used);
  return content;
}

bool file_exists(const FilePath& path) {
  struct stat info {};
  return !path.str().empty() && ::stat(path.c_str(), &info) == 0;
}

AtomicFile::AtomicFile(const FilePath& path, uint64_t expected_bytes)
    : target_(path.str()), expected_(expected_bytes) {
  check_given(target_);
  struct stat info {};
  const bool exists = ::stat(target_.c_str(), &info) == 0;
  if (exists) {
    if (S_ISDIR(info.st_mode)) fail("write", EISDIR);
    // A rename would replace a device or pipe by a plain file.
    TD_CHECK(S_ISREG(info.st_mode), Io, "cannot write '{}': it is not a regular file", target_);
    char resolved[PATH_MAX];  // a symbolic link stays; the file it points to is replaced
    if (::realpath(target_.c_str(), resolved)) target_ = resolved;
  }
  buffer_ = std::make_unique<char[]>(kBuffer);
  detail::ignore_file_size_signal();
  detail::sweep_files_once(folder_of(target_));
  open_temporary();
  if (exists && ::fchmod(fd_, info.st_mode & 07777) != 0) fail("write", errno);
  if (expected_ == 0) return;
  struct statvfs disk {};
  if (::fstatvfs(fd_, &disk) == 0 && expected_ / disk.f_frsize > disk.f_bavail)
    fail("write", ENOSPC);
  // Not every file system can reserve space; the writes themselves then report a full disk.
  if (::fallocate(fd_, 0, 0, static_cast<off_t>(expected_)) != 0 &&
      (errno == ENOSPC || errno == EFBIG || errno == EDQUOT))
    fail("write", errno);
}

// With a lock, which says to other processes that somebody writes it.
void AtomicFile::open_temporary() {
  owner_ = ::getpid();
  for (;;) {
    temporary_ = detail::temporary_name(target_);
    fd_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && (errno == EEXIST || errno == EINTR)) continue;
    if (fd_ < 0) {
      temporary_.clear();
      fail("write", errno);
    }
    struct stat info {};
    if (detail::try_lock(fd_) != detail::Locked::held && ::fstat(fd_, &info) == 0 &&
        info.st_nlink > 0)
      return;
    discard();  // swept before it was locked
  }
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  // A forked child that ends has a copy of this object, but the file is the parent's.
  if (!temporary_.empty() && owner_ == ::getpid()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void AtomicFile::fail(const char* doing, int error) {
  discard();
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    TD_FAIL(Io, "cannot {} '{}': {} ({} bytes were wanted). Nothing was changed", doing, target_,
            words(error), std::max(expected_, written_));
  TD_FAIL(Io, "cannot {} '{}': {}. Nothing was changed", doing, target_, words(error));
}

void AtomicFile::write(const void* data, size_t bytes) {
  TD_CHECK(fd_ >= 0, Io, "'{}' is already closed for writing", target_);
  written_ += bytes;
  const char* p = static_cast<const char*>(data);
  if (buffered_ + bytes > kBuffer) flush();
  if (bytes >= kBuffer) {
    write_through(p, bytes);
    return;
  }
  if (bytes > 0) std::memcpy(buffer_.get() + buffered_, p, bytes);
  buffered_ += bytes;
}

void AtomicFile::flush() {
  write_through(buffer_.get(), buffered_);
  buffered_ = 0;
}

void AtomicFile::write_through(const char* data, size_t bytes) {
  while (bytes > 0) {
    if (int e = file_fault(FileOp::write, target_)) fail("write", e);
    const size_t some = file_bytes(FileOp::write, target_, std::min(bytes, size_t{1} << 30));
    const ssize_t n = ::write(fd_, data, some);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("write", n < 0 ? errno : EIO);
    data += n;
    bytes -= static_cast<size_t>(n);
  }
}

Ref<MappedFile> AtomicFile::map() {
  TD_CHECK(fd_ >= 0, Io, "'{}' is already closed for writing", target_);
  flush();
  // Some file systems say only here that there was no room.
  if (int e = file_fault(FileOp::sync, target_)) fail("write", e);
  if (::fsync(fd_) != 0) fail("write", errno);
  Ref<MappedFile> mapped =
      Ref<MappedFile>::adopt(new MappedFile(target_, fd_, static_cast<size_t>(written_)));
  discard();
  return mapped;
}

void AtomicFile::commit() {
  TD_CHECK(fd_ >= 0, Io, "'{}' is already closed for writing", target_);
  flush();
  if (expected_ > written_ && ::ftruncate(fd_, static_cast<off_t>(written_)) != 0)
    fail("write", errno);
  if (int e = file_fault(FileOp::sync, target_)) fail("write", e);
  if (::fsync(fd_) != 0) fail("write", errno);
  if (int e = file_fault(FileOp::rename, target_)) fail("replace", e);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("replace", errno);
  temporary_.clear();
  ::close(std::exchange(fd_, -1));  // with it the lock ends; all is on disk since fsync
  const std::string folder = folder_of(target_);
  const Descriptor dir(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // The new name is in place; a folder that cannot be synced at all (EINVAL) is not an error.
  if (dir.fd >= 0 && ::fsync(dir.fd) != 0 && errno != EINVAL && errno != ENOTSUP)
    TD_FAIL(Io, "'{}' is written, but its folder could not be synced: {}", target_, words(errno));
}

void write_file(const FilePath& path, std::string_view content) {
  AtomicFile file(path, content.size());
  file.write(content);
  file.commit();
}

}  // namespace tandem
