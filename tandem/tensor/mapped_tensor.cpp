// SPDX-License-Identifier: Apache-2.0
#include "tandem/tensor/mapped_tensor.h"

#include "tandem/tensor/tensor_impl.h"

namespace tandem::detail {

Tensor mapped_tensor(Ref<MappedFile> file, const void* data, const Shape& shape, DType dtype) {
  Tensor t(Ref<TensorImpl>::adopt(new_external(
      shape, dtype, const_cast<void*>(data), /*writable=*/false,
      [](Storage* s) { static_cast<MappedFile*>(s->owner)->drop_ref(); }, file.get())));
  (void)file.release();  // now owned by the storage
  return t;
}

}  // namespace tandem::detail
