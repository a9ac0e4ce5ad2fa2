// SPDX-License-Identifier: Apache-2.0
// from_blob in full: tensors over external memory, with strides and with a function that releases
// the memory. It is never written through the tensor; the first writer copies.
#pragma once

#include <concepts>
#include <memory>
#include <utility>

#include "tandem/tensor/tensor.h"

namespace tandem {

namespace detail {
/// `release(state)` is called once, when the last tensor over the memory is gone; not when this
/// throws. Strides count elements and must not be negative; nullptr means row-major.
TD_API Tensor lend(const void* data, const Shape& shape, const IntList* strides, DType dtype,
                   void (*release)(void* state), void* state, const char* name);

template <class D>
struct BlobDeleter {
  D deleter;
  void* data;
  static void release(void* state) {
    std::unique_ptr<BlobDeleter> self(static_cast<BlobDeleter*>(state));
    self->deleter(self->data);
  }
};
template <class D>
Tensor lend_with(void* data, const Shape& shape, const IntList* strides, D deleter, DType dtype) {
  auto state = std::make_unique<BlobDeleter<D>>(BlobDeleter<D>{std::move(deleter), data});
  Tensor t = lend(data, shape, strides, dtype, &BlobDeleter<D>::release, state.get(), "from_blob");
  (void)state.release();  // now owned by the tensor
  return t;
}
}  // namespace detail

/// A float32 tensor over `data`, like from_blob(data, shape, dtype) in tensor/tensor.h.
inline Tensor from_blob(const void* data, Shape shape) {
  return from_blob(data, shape, DType::f32);
}

/// Element (i, j, ...) is at data + i * strides[0] + j * strides[1] + ..., counted in elements. A
/// stride may be 0 (one element repeated), not negative. Throws Shape for a list of the wrong
/// length or a negative stride, Value for a null pointer, Memory beyond 63 bits.
TD_API Tensor from_blob(const void* data, Shape shape, IntList strides, DType dtype = DType::f32);

/// `deleter(data)` is called once, when the last tensor over the memory is gone, on any thread; it
/// must not throw. When from_blob itself throws, it is not called.
template <std::invocable<void*> D>
Tensor from_blob(void* data, Shape shape, D deleter, DType dtype = DType::f32) {
  return detail::lend_with(data, shape, nullptr, std::move(deleter), dtype);
}
template <std::invocable<void*> D>
Tensor from_blob(void* data, Shape shape, IntList strides, D deleter, DType dtype = DType::f32) {
  return detail::lend_with(data, shape, &strides, std::move(deleter), dtype);
}

}  // namespace tandem
