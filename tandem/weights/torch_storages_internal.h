// SPDX-License-Identifier: Apache-2.0
// The bytes behind the tensors of a PyTorch file, and the types of their elements. Used by
// torch_read.cpp.
#pragma once

#include <map>
#include <memory>

#include "tandem/base/files/file.h"
#include "tandem/io/pickle/pickle.h"
#include "tandem/tensor/dtype.h"

namespace tandem::weights {

constexpr int kMostTorchDepth = 64;

/// How the elements of a storage lie there, and what they become.
struct StoredType {
  std::string_view name;  ///< of the storage type or of the dtype
  DType dtype;            ///< what they become
  size_t bytes;           ///< of an element there
  /// Of what Tandem lacks: an element from there. Null: they are as they are, or `complex`.
  void (*convert)(const char* from, void* to) = nullptr;
  bool complex = false;  ///< pairs: a last dimension of 2
  /// Integers that stand for other numbers; with _rebuild_qtensor they become these.
  bool quantized = false;
};
/// Null for a name that is none of them.
const StoredType* stored_type(std::string_view name);

/// "FloatStorage" of "torch FloatStorage".
inline std::string_view short_name(const io::PickleNode& global) {
  return std::string_view(global.text).substr(global.text.find(' ') + 1);
}

/// Bytes of storages by key: members of a zip file, or sections after the pickles of an old file.
class TorchStorages {
 public:
  virtual ~TorchStorages() = default;
  /// The bytes of `key`. Throws Format when it is not there.
  virtual std::string_view find(const std::string& key) = 0;
  virtual const io::PickleNode& root() const = 0;
  virtual const Ref<MappedFile>& file() const = 0;
};
/// Opens a file of torch.save. Throws Io, or Format for one of another kind.
std::unique_ptr<TorchStorages> open_torch_storages(const FilePath& path);

}  // namespace tandem::weights
