// SPDX-License-Identifier: Apache-2.0
// Tensors put aside in a file, so that they take no memory until somebody reads them.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/files/file.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::io {

/// Each tensor is written as it is added; at the end all of them come back, mapped. The file has no
/// name when it is finished, and its bytes are gone when nobody holds a tensor any more.
class TD_API TensorSpool {
 public:
  /// The file lies in this folder. Throws Io.
  explicit TensorSpool(const FilePath& folder) : file_(folder.str() + "/values") {}
  /// Throws Io for a disk that is full, Value for an undefined tensor.
  void add(const std::string& name, const Tensor& value);
  /// What was added, in that order; nothing can be added after it.
  StateDict finish();

 private:
  struct Place {
    std::string name;
    uint64_t begin;
    Shape shape;
    DType dtype;
  };
  AtomicFile file_;
  std::vector<Place> places_;
};

}  // namespace tandem::io
