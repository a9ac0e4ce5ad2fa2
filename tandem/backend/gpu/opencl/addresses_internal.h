// SPDX-License-Identifier: Apache-2.0
// Addresses for buffers, which have none in OpenCL 1.2: each buffer gets a range of numbers that is
// never given out again, and a number is found as buffer and offset.
#pragma once

#include <map>
#include <vector>

#include "tandem/backend/gpu/driver.h"
#include "tandem/backend/gpu/opencl/abi_internal.h"

namespace tandem::gpu {

class Addresses {
 public:
  struct Place {
    cl::Buffer buffer = nullptr;
    size_t offset = 0;
  };

  Address add(cl::Buffer buffer, size_t bytes);
  /// The buffer that began there, taken out; nullptr where none did.
  cl::Buffer remove(Address at, size_t& bytes);
  /// bad_argument unless one buffer holds all bytes; `what` begins the text. 0 bytes are nowhere.
  Status find(Address at, size_t bytes, const char* what, Place& place) const;
  std::vector<cl::Buffer> buffers() const;

 private:
  struct Entry {
    cl::Buffer buffer;
    size_t bytes;
  };
  Address next_ = Address{1} << 40;
  std::map<Address, Entry> entries_;
};

}  // namespace tandem::gpu
