// SPDX-License-Identifier: Apache-2.0
#include "tandem/runs/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "tandem/base/error.h"
#include "tandem/base/files/file_faults_internal.h"
#include "tandem/base/files/temporaries_internal.h"

namespace tandem::runs {

namespace {

// The bytes of whole lines at the begin of a file.
off_t whole_lines(int fd, off_t size) {
  char last[4096];
  while (size > 0) {
    const auto n = static_cast<size_t>(std::min<off_t>(size, sizeof last));
    if (::pread(fd, last, n, size - static_cast<off_t>(n)) != static_cast<ssize_t>(n)) return size;
    for (size_t k = n; k > 0; --k)
      if (last[k - 1] == '\n') return size - static_cast<off_t>(n - k);
    size -= static_cast<off_t>(n);
  }
  return 0;
}

}  // namespace

AppendFile::AppendFile(const FilePath& path, Content content) : path_(path.str()) {
  detail::ignore_file_size_signal();
  const int access = content == Content::lines ? O_RDWR : O_WRONLY;
  do {
    fd_ = ::open(path_.c_str(), access | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EINTR);
  TD_CHECK(fd_ >= 0, Io, "cannot open '{}' for writing: {}", path_,
           std::generic_category().message(errno));
  struct stat s {};
  if (content != Content::lines || ::fstat(fd_, &s) != 0 || !S_ISREG(s.st_mode)) return;
  const off_t whole = whole_lines(fd_, s.st_size);
  if (whole < s.st_size && ::ftruncate(fd_, whole) != 0) {
    const int error = errno;
    ::close(fd_);
    TD_FAIL(Io, "cannot write '{}': {}", path_, std::generic_category().message(error));
  }
}

AppendFile::~AppendFile() { ::close(fd_); }

void AppendFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const int fault = detail::file_fault(detail::FileOp::write, path_);
    const ssize_t n = fault ? -1 : ::write(fd_, bytes.data(), bytes.size());
    const int error = fault ? fault : errno;
    if (n < 0 && error == EINTR) continue;
    TD_CHECK(n > 0, Io, "cannot write '{}': {}", path_, std::generic_category().message(error));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace tandem::runs
