// SPDX-License-Identifier: Apache-2.0
// What a launch hands to a kernel: addresses and numbers, copied into one small object without
// allocation.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tandem/base/export.h"

namespace tandem::gpu {

/// A place in a device's memory. A number, because the host may not follow it, and because an
/// OpenCL device has none of its own (opencl/addresses_internal.h); 0 is not a place. Sums are
/// places of the same allocation.
using Address = uint64_t;

/// Blocks of a launch, or threads of a block.
struct Extent {
  uint32_t x = 1, y = 1, z = 1;
  int64_t count() const { return int64_t{x} * y * z; }
};

class TD_API Arguments {
 public:
  static constexpr int kMost = 64;

  /// An address, and how many bytes from there the kernel may touch: real devices do not ask, the
  /// fake one checks it against allocations and other streams. Throws Value beyond kMost.
  Arguments& address(Address at, size_t bytes);
  /// A number of the parameter's type.
  template <class T>
  Arguments& value(T v) {
    static_assert(std::is_arithmetic_v<T> && sizeof(T) <= sizeof(uint64_t));
    Slot& s = add();
    std::memcpy(&s.bits, &v, sizeof v);
    s.bytes = sizeof v;
    return *this;
  }

  int count() const { return count_; }
  bool is_address(int i) const { return slots_[static_cast<size_t>(i)].is_address; }
  Address address_of(int i) const { return slots_[static_cast<size_t>(i)].bits; }
  /// Bytes that the kernel may touch, or of the number.
  size_t bytes(int i) const { return slots_[static_cast<size_t>(i)].bytes; }
  /// Where the address or the number lies, for drivers that want a pointer.
  const void* data(int i) const { return &slots_[static_cast<size_t>(i)].bits; }

 private:
  struct Slot {
    uint64_t bits = 0;
    size_t bytes = 0;
    bool is_address = false;
  };
  Slot& add();

  std::array<Slot, kMost> slots_;
  int count_ = 0;
};

}  // namespace tandem::gpu
