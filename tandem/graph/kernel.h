// SPDX-License-Identifier: Apache-2.0
// What a backend provides for an op. Kernels get raw arrays whose outputs are already allocated;
// they never allocate tensors. Value errors (bad index or label) are reported through the error
// word, never by reading out of bounds: loads are clamped.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "tandem/tensor/device.h"
#include "tandem/tensor/scalar.h"
#include "tandem/tensor/shape.h"

namespace tandem {

struct OpDef;

/// One operand of a kernel: bytes with dtype, shape and strides (in elements), or a scalar
/// (data == nullptr and is_scalar), or absent (data == nullptr).
struct Array {
  void* data = nullptr;
  const int64_t* shape = nullptr;
  const int64_t* strides = nullptr;
  int64_t numel = 0;
  DType dtype = DType::f32;
  uint8_t rank = 0;
  bool contiguous = false;
  bool is_scalar = false;
  Scalar scalar;

  bool present() const { return data != nullptr || is_scalar || shape != nullptr; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

/// Where a kernel that runs on the host reports a value error: the first code wins. 0 is none.
/// Kernels of other devices report into a word in their own memory (graph/backend.h).
struct ErrorWord {
  std::atomic<int32_t> code{0};
  std::atomic<int64_t> value{0};
  void report(int32_t c, int64_t v) {
    int32_t none = 0;
    if (code.compare_exchange_strong(none, c)) value.store(v);
  }
};

/// Key of a random op: the draw of element e is philox(seed, {offset, draw, e}).
struct RngKey {
  uint64_t seed = 0;
  uint32_t offset = 0;
};

/// A prepared call: primitive, packed sizes, whatever is worth caching. Immutable, shared.
struct Plan {
  virtual ~Plan() = default;
  size_t workspace = 0;  ///< scratch bytes that run() needs
};

struct KernelCall {
  const OpDef& op;
  const void* attrs = nullptr;
  const Array* in = nullptr;
  int n_in = 0;
  Array* out = nullptr;
  int n_out = 0;
  ErrorWord* error = nullptr;
  RngKey rng{};
  /// Where the device keeps a seed and an offset (i64 each) that `rng` is counted from, in calls
  /// that are recorded; nullptr: `rng` is all.
  const void* rng_from = nullptr;
  const Plan* plan = nullptr;
  void* scratch = nullptr;  ///< of the device that runs it
  Device device{};          ///< where the operands lie
  uint32_t ticket = 0;      ///< names this call in the device's error word; 0: it cannot report
  Stream stream{};          ///< the device's queue; what `in` and `out` point to ends with run()

  template <class A>
  const A& get_attrs() const {
    return *static_cast<const A*>(attrs);
  }
};

/// A backend's implementation of an op. Only `run` is required.
struct Kernel {
  /// Whether it supports this call (data pointers may be null here). Default: always.
  bool (*supports)(const KernelCall&) = nullptr;
  /// The strides it prefers for output i; false: row-major. Default: row-major.
  bool (*layout)(const KernelCall&, int output, Strides& strides) = nullptr;
  /// Make the Plan of such a call; eager caches it in a table keyed by op, attrs, specs, threads
  /// and DeterministicGuard.
  std::shared_ptr<const Plan> (*prepare)(const KernelCall&) = nullptr;
  void (*run)(const KernelCall&) = nullptr;
  /// It computes in f32 and takes floats of every type where its row gives f32, and writes them
  /// likewise, rounded as a cast would: compiled programs leave out the casts around it.
  bool converts = false;
  /// With 16-bit operands it gives what the row's f32 kernel gives for copies of them, rounded, and
  /// is no faster: compiled programs call that one, with casts of their own.
  bool widens = false;
};

/// Register a kernel of `op` for a device kind; the newest wins, older ones are tried when
/// `supports` returns false. Call before other threads use the op.
TD_API void register_kernel(DeviceKind device, const OpDef& op, const Kernel& kernel);

}  // namespace tandem
