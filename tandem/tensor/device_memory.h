// SPDX-License-Identifier: Apache-2.0
// The memory of devices that the host may not touch: one table of functions per kind, registered
// with the backend (graph/backend.h). Every byte that crosses between host and device goes through
// copy_bytes(), every read of a value through host_value().
#pragma once

#include <string>

#include "tandem/tensor/allocator.h"
#include "tandem/tensor/tensor.h"

namespace tandem {

/// What a device's memory can do. Work is ordered by the stream that is given: a block that is
/// freed, and a source that is overwritten, may still be read by work queued before. All pointers
/// but `host` lie on device `index`; sizes are in bytes and never 0.
struct DeviceMemory {
  const char* name = "";  ///< "cuda"; devices are "cuda:0", "cuda:1" ...
  int devices = 0;        ///< how many there are; with `count` the most that there may be
  /// Aligned to 64 bytes. Throws Memory.
  void* (*allocate)(size_t bytes, int index, Stream stream) = nullptr;
  void (*deallocate)(void* p, size_t bytes, int index, Stream stream) noexcept = nullptr;
  /// Host to device. `host` may change when it returns.
  void (*copy_in)(void* to, const void* host, size_t bytes, int index, Stream stream) = nullptr;
  /// Device to host: waits for the work queued before, and the bytes are there when it returns.
  void (*copy_out)(void* host, const void* from, size_t bytes, int index, Stream stream) = nullptr;
  /// Within the device.
  void (*copy)(void* to, const void* from, size_t bytes, int index, Stream stream) = nullptr;
  /// Every byte becomes `value`.
  void (*fill)(void* to, uint8_t value, size_t bytes, int index, Stream stream) = nullptr;
  /// Wait for all work of the device.
  void (*synchronize)(int index) = nullptr;
  /// How many devices there are, and in `why` the reason where there are none: for drivers that are
  /// opened late, by the first question. Asked once.
  int (*count)(std::string& why) = nullptr;
};

/// Make a kind of device known. Throws Value where a function is missing or the name is taken by
/// another table; the same name again replaces nothing and gives the same kind.
TD_API DeviceKind register_device_memory(const DeviceMemory& memory);
/// The table of a device; throws Unsupported, with the driver's reason, for one that this process
/// does not have, or the host.
TD_API const DeviceMemory& device_memory(Device device);

/// Wait until all work of the device is done; errors that its kernels reported are thrown. Nothing
/// for the host.
TD_API void synchronize(Device device);

/// The queue into which this thread's ops on the device go.
TD_API Stream current_stream(Device device);
/// Another queue while it lives.
class TD_API StreamGuard {
 public:
  StreamGuard(Device device, Stream stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Device device_;
  Stream old_;
};

/// Bytes of tensors and arenas on a device (allocator.h has the host's).
TD_API AllocatorStats allocator_stats(Device device);

namespace detail {
/// A block on any device; of the host as allocate(bytes).
TD_API void* allocate(size_t bytes, Device device);
TD_API void deallocate(void* p, size_t bytes, Device device) noexcept;
/// Copy between any two places, by way of the host where the devices differ. What lies on the host
/// is there when it returns.
TD_API void copy_bytes(void* to, Device to_device, const void* from, Device from_device,
                       size_t bytes);

/// Bytes from the first to the last element.
TD_API size_t span_bytes(const TensorImpl& t);
/// A tensor on the host with the same values, shape and strides; off the tape.
TD_API Ref<TensorImpl> host_copy(const TensorImpl& t);
/// `t` itself where the host may read it, else a host_copy: the one way to look at values.
inline Tensor host_value(const Tensor& t) {
  if (!t.defined() || !t.impl()->has(kOnDevice) || t.is_symbolic()) return t;
  return Tensor(host_copy(*t.impl()));
}

/// The op whose results this thread allocates on a device, for texts about its memory; may be null.
TD_API const char*& allocating_op();

/// Called with the device after bytes came from it to the host and after synchronize(): throws what
/// kernels have reported.
TD_API void set_device_read_hook(void (*hook)(Device));
}  // namespace detail

}  // namespace tandem
