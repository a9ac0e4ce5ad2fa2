// SPDX-License-Identifier: Apache-2.0
// Weights that lie in a mapped file at addresses that their dtype does not allow (ONNX aligns
// nothing). An OnnxValue shows them and has no copy: inside a trace tensor() gives a constant of
// the trace that is copied where it is needed (ops/stored.h), elsewhere a copy, made the first
// time.
#pragma once

#include <map>

#include "tandem/base/file.h"
#include "tandem/interop/onnx_value.h"

namespace tandem {
struct Trace;
}
namespace tandem::interop {

/// The value of those bytes of `file`.
OnnxValue stored_onnx_value(const char* data, const Shape& shape, OnnxType type,
                            const Ref<MappedFile>& file);
/// Is it a tensor of such a value?
bool is_stored(const Tensor& t);

/// Keeps the constants that stand for stored values while a model is traced.
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

}  // namespace tandem::interop
