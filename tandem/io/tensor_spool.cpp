// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/tensor_spool.h"

#include "tandem/base/error.h"
#include "tandem/io/elements_internal.h"
#include "tandem/tensor/mapped_tensor.h"

namespace tandem::io {

void TensorSpool::add(const std::string& name, const Tensor& value) {
  constexpr uint64_t kAlign = 64;
  constexpr char kZeros[kAlign] = {};
  TD_CHECK(value.defined(), Value, "the tensor '{}' was never given a value", name);
  file_.write(kZeros, (kAlign - file_.written() % kAlign) % kAlign);
  places_.push_back({name, file_.written(), value.shape(), value.dtype()});
  write_elements(file_, value);
}

StateDict TensorSpool::finish() {
  const Ref<MappedFile> file = file_.map();
  StateDict out;
  for (const Place& p : places_)
    out[p.name] =
        p.shape.numel().value() == 0
            ? Tensor(Ref<detail::TensorImpl>::adopt(detail::new_tensor(p.shape, p.dtype, cpu)))
            : detail::mapped_tensor(file, file->data() + p.begin, p.shape, p.dtype);
  return out;
}

}  // namespace tandem::io
