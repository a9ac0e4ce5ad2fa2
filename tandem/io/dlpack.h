// SPDX-License-Identifier: Apache-2.0
// DLPack: zero-copy exchange of tensors with other libraries in the same process (NumPy, PyTorch,
// JAX, CuPy ...). The structs are the C ABI of DLPack 0.8 (DLManagedTensor) and 1.x
// (DLManagedTensorVersioned), after https://dmlc.github.io/dlpack/latest/c_api.html.
#pragma once

#include <cstdint>
#include <cstring>

#include "tandem/tensor/tensor.h"

namespace tandem::io {

struct DLPackVersion {
  uint32_t major, minor;
};
enum DLDeviceType : int32_t { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLCUDAManaged = 13 };
struct DLDevice {
  int32_t device_type;  ///< a DLDeviceType, or one this header does not name
  int32_t device_id;
};
enum DLDataTypeCode : uint8_t { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6 };
struct DLDataType {
  uint8_t code;  ///< a DLDataTypeCode, or one this header does not name
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  ///< in elements; null: row-major
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
inline constexpr uint64_t kDLPackReadOnly = 1, kDLPackIsCopied = 2;
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};

/// A tensor over `managed`'s memory, which is released by its deleter when the last tensor that
/// uses it is gone. The tensor never writes to the memory; while it lives, nobody else should.
/// Takes CPU memory (pinned too) of the ten dtypes, one lane, up to eight dimensions, non-negative
/// strides. When it throws (Device, DType, Shape, Value, Unsupported), `managed` still belongs to
/// the caller: its deleter was not called.
TD_API Tensor from_dlpack(DLManagedTensor* managed);
TD_API Tensor from_dlpack(DLManagedTensorVersioned* managed);
/// The same for a bare struct: `release(state)` releases the memory.
TD_API Tensor from_dlpack(const DLTensor& tensor, void (*release)(void* state), void* state);
/// Throws Unsupported for structs of another major version, which may be laid out differently.
TD_API void check_dlpack_version(DLPackVersion version);
/// The same for the structs declared by another copy of dlpack.h.
template <class Managed>
  requires requires(Managed* m) {
    m->dl_tensor.byte_offset;
    m->manager_ctx;
    m->deleter(m);
  }
Tensor from_dlpack(Managed* managed) {
  TD_CHECK(managed, Value, "from_dlpack: the pointer is null");
  if constexpr (requires { managed->version.major; })
    check_dlpack_version({managed->version.major, managed->version.minor});
  static_assert(sizeof(managed->dl_tensor) == sizeof(DLTensor));
  DLTensor tensor;
  std::memcpy(&tensor, &managed->dl_tensor, sizeof tensor);
  auto release = [](void* state) {
    auto* m = static_cast<Managed*>(state);
    if (m->deleter) m->deleter(m);
  };
  return from_dlpack(tensor, release, managed);
}

struct ToDLPackOptions {
  bool copy = false;  ///< export a copy, which the consumer may write
};
/// Export `x` to another library, which must call the deleter once. Without a copy the consumer
/// must not write: to_dlpack_versioned says so (kDLPackReadOnly), the older struct cannot. A value
/// that is passed by std::move and that nobody else holds may be written without a copy. Throws
/// Value for a tensor that is part of a gradient (pass detach()), Unsupported inside a trace.
TD_API DLManagedTensorVersioned* to_dlpack_versioned(Tensor x, ToDLPackOptions options = {});
TD_API DLManagedTensor* to_dlpack(Tensor x, ToDLPackOptions options = {});

}  // namespace tandem::io
