// SPDX-License-Identifier: Apache-2.0
#include "tandem/onnx/export/written_file_internal.h"

#include <unistd.h>

#include <cstdio>

#include "tandem/base/files/file.h"

namespace tandem::onnx {

// The old file keeps its bytes under a second name while a new one takes the first: nobody finds
// the first one missing.
WrittenFile::WrittenFile(std::string path) : path_(std::move(path)), existed_(file_exists(path_)) {
  if (!existed_) return;
  const std::string name = path_ + ".before-" + std::to_string(::getpid());
  if (::link(path_.c_str(), name.c_str()) == 0) before_ = name;
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
