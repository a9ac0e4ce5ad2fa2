// SPDX-License-Identifier: Apache-2.0
#include "tandem/runs/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "tandem/base/error.h"
#include "tandem/base/file_faults_internal.h"

namespace tandem::runs {

AppendFile::AppendFile(const FilePath& path) : path_(path.str()) {
  do {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EINTR);
  TD_CHECK(fd_ >= 0, Io, "cannot open '{}' for writing: {}", path_,
           std::generic_category().message(errno));
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
