// SPDX-License-Identifier: Apache-2.0
// Several processes, each with a device, that exchange arrays in the memory of their devices: what
// a backend with such a library offers (Backend::join_ranks).
#pragma once

#include <cstdint>
#include <string>

#include "tandem/tensor/device.h"
#include "tandem/tensor/dtype.h"

namespace tandem {

/// A call that all ranks make, in the same order. `in` and `out` are addresses of the device.
struct DeviceCall {
  enum class Kind : uint8_t { all_reduce, broadcast, all_gather, reduce_scatter };
  enum class Sum : uint8_t { sum, min, max };
  Kind kind = Kind::all_reduce;
  const void* in = nullptr;
  void* out = nullptr;
  int64_t count = 0;  ///< elements of the smaller side
  DType dtype = DType::f32;
  Sum sum = Sum::sum;
  int root = 0;  ///< of broadcast
};

class DeviceRanks {
 public:
  virtual ~DeviceRanks() = default;
  /// Does the library take this dtype?
  virtual bool takes(DType dtype) const = 0;
  /// Runs after what `stream` holds by now, beside what is put there later. The memory must stay
  /// until wait(). Throws Device.
  virtual void start(const DeviceCall& call, Stream stream) = 0;
  /// What is put into `stream` from here on runs after all calls that were started.
  virtual void wait(Stream stream) = 0;
};

/// What a device needs to join those of other processes.
struct RankPlace {
  int rank = 0, size = 1;
  /// share(group, bytes) gives rank 0's bytes to all; every rank calls it.
  void* group = nullptr;
  void (*share)(void* group, std::string& bytes) = nullptr;
};

}  // namespace tandem
