// SPDX-License-Identifier: Apache-2.0
// Weights in a mapped file at addresses unsuitable for their dtype (ONNX aligns nothing).
// An OnnxValue refers to them without a copy: inside a trace whose values are hidden tensor() gives
// a constant that is copied where it is needed (ops/stored.h), elsewhere a copy, made the first
// time.
#pragma once

#include <map>

#include "tandem/base/files/file.h"
#include "tandem/onnx/import/value.h"

namespace tandem {
struct Trace;
}
namespace tandem::onnx {

/// The value of those bytes of `file`.
OnnxValue stored_onnx_value(const char* data, const Shape& shape, OnnxType type,
                            const Ref<MappedFile>& file);
/// Whether it is the tensor of such a value.
bool is_stored(const Tensor& t);

/// Holds the constants for stored values while a model is traced.
class StoredScope {
 public:
  StoredScope();
  ~StoredScope();
  StoredScope(const StoredScope&) = delete;
  StoredScope& operator=(const StoredScope&) = delete;
  static const Tensor& tensor_of(const Tensor& stored);

 private:
  std::map<std::pair<const void*, const Trace*>, Tensor> traced_;
  StoredScope* before_;
};

}  // namespace tandem::onnx
