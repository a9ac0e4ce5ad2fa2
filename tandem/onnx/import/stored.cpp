// SPDX-License-Identifier: Apache-2.0
#include "tandem/onnx/import/stored_internal.h"

#include <mutex>

#include "tandem/graph/trace.h"
#include "tandem/ops/stored.h"
#include "tandem/tensor/mapped_tensor.h"

namespace tandem::onnx {
namespace {

// What the storage of such a tensor holds. Only the functions here look at its data.
struct Stored {
  Ref<MappedFile> file;
  Tensor bytes;
  Spec spec;
  std::once_flag once;
  Tensor copy;
};
void free_stored(tandem::detail::Storage* s) { delete static_cast<Stored*>(s->owner); }
Stored& stored_of(const Tensor& t) { return *static_cast<Stored*>(t.impl()->storage->owner); }

thread_local StoredScope* t_scope = nullptr;

}  // namespace

OnnxValue stored_onnx_value(const char* data, const Shape& shape, OnnxType type,
                            const Ref<MappedFile>& file) {
  auto* s = new Stored;
  s->file = file;
  s->spec = Spec(info_of(type).carrier, shape);
  const int64_t bytes = shape.numel().value() * static_cast<int64_t>(size_of(s->spec.dtype));
  s->bytes = tandem::detail::mapped_tensor(file, data, Shape(bytes), DType::u8);
  return OnnxValue(Tensor(Ref<tandem::detail::TensorImpl>::adopt(
                       tandem::detail::new_external(shape, s->spec.dtype, const_cast<char*>(data),
                                                    /*writable=*/false, free_stored, s))),
                   type);
}

bool is_stored(const Tensor& t) {
  return t.defined() && !t.is_symbolic() && t.impl()->storage->free_data == free_stored;
}

StoredScope::StoredScope() : before_(std::exchange(t_scope, this)) {}
StoredScope::~StoredScope() { t_scope = before_; }

const Tensor& StoredScope::tensor_of(const Tensor& t) {
  Stored& s = stored_of(t);
  if (t_scope && values_hidden()) {
    Tensor& at = t_scope->traced_[{&s, context().trace}];
    if (!at.defined()) at = stored_constant(s.bytes, s.spec);
    return at;
  }
  std::call_once(s.once, [&] { s.copy = StoredBox(s.bytes, s.spec).get(); });
  return s.copy;
}

}  // namespace tandem::onnx
