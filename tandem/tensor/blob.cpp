// SPDX-License-Identifier: Apache-2.0
// Tensors over borrowed memory. A strided one is a view of a flat tensor over all its elements.
#include "tandem/tensor/blob.h"

namespace tandem {
namespace detail {
namespace {

struct Lease {
  void (*release)(void* state);
  void* state;
};

void end_lease(Storage* s) {
  std::unique_ptr<Lease> lease(static_cast<Lease*>(s->owner));
  lease->release(lease->state);
}

/// Elements from the first to the last of a strided layout, 0 for an empty one.
int64_t span_of(const Shape& shape, const Strides& strides, const char* name) {
  int64_t last = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    const int64_t n = shape[i].raw();
    if (n == 0) return 0;
    int64_t step;
    const bool wide = __builtin_mul_overflow(n - 1, strides[i], &step) ||
                      __builtin_add_overflow(last, step, &last);
    TD_CHECK(!wide && last < (int64_t{1} << 59), Memory,
             "{}: shape {} with these strides is more than this machine can address", name,
             shape.to_string());
  }
  return last + 1;
}

}  // namespace

Tensor lend(const void* data, const Shape& shape, const IntList* strides, DType dtype,
            void (*release)(void*), void* state, const char* name) {
  TD_CHECK(!shape.is_symbolic(), Shape, "{}: the shape must be numbers, got {}", name,
           shape.to_string());
  for (const Dim d : shape)
    TD_CHECK(d.raw() >= 0, Shape, "{}: sizes are not negative, got {}", name, shape.to_string());
  const int64_t n = shape.numel().value();
  TD_CHECK(data != nullptr || n == 0, Value, "{}: the data pointer is null, shape {}", name,
           shape.to_string());
  TD_CHECK(
      reinterpret_cast<uintptr_t>(data) % size_of(dtype) == 0, Value,
      "{}: the address is not a multiple of {}, the size of one {}\nCopy the data to memory that "
      "is aligned.",
      name, size_of(dtype), to_string(dtype));
  Strides s = contiguous_strides(shape);
  if (strides) {
    TD_CHECK(strides->rank() == shape.rank(), Shape, "{}: {} strides were given for shape {}", name,
             strides->rank(), shape.to_string());
    for (int i = 0; i < shape.rank(); ++i) {
      s[i] = (*strides)[i].value();
      TD_CHECK(s[i] >= 0, Shape,
               "{}: strides are not negative, got {}\nShow the memory in its own order and flip() "
               "the tensor.",
               name, strides->to_string());
    }
  }
  auto lease = release ? std::make_unique<Lease>(Lease{release, state}) : nullptr;
  // Never written: the storage is marked read-only, so every writer copies first.
  Ref<TensorImpl> flat = Ref<TensorImpl>::adopt(new_external(Shape(span_of(shape, s, name)), dtype,
                                                             const_cast<void*>(data),
                                                             /*writable=*/false, nullptr, nullptr));
  Tensor t(Ref<TensorImpl>::adopt(new_view(*flat, shape, s, const_cast<void*>(data), dtype)));
  if (lease) {  // the last step: nothing may throw once the storage owns the callback
    flat->storage->owner = lease.release();
    flat->storage->free_data = end_lease;
  }
  return t;
}

}  // namespace detail

Tensor from_blob(const void* data, Shape shape, IntList strides, DType dtype) {
  return detail::lend(data, shape, &strides, dtype, nullptr, nullptr, "from_blob");
}

}  // namespace tandem
