// SPDX-License-Identifier: Apache-2.0
// The memory of a fake device: blocks of the host's memory between guard bytes, with a limit.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "tandem/backend/gpu/driver.h"

namespace tandem::gpu {

class FakeMemory {
 public:
  explicit FakeMemory(int64_t limit) : limit_(limit) {}
  ~FakeMemory();
  FakeMemory(const FakeMemory&) = delete;
  FakeMemory& operator=(const FakeMemory&) = delete;

  /// Filled with 0xff: NaN in every floating type. out_of_memory beyond the limit.
  Status allocate(size_t bytes, Address& at);
  /// `end` is where the block ended; `damage` says whether something was written beside it, or "".
  Status release(Address at, uint64_t& end, std::string& damage);
  /// bad_argument unless a block holds all bytes from `at`; `what` begins the text.
  Status check_range(Address at, size_t bytes, const std::string& what) const;
  /// "" or which block was written beside. The guards are whole again.
  std::string check_guards();
  int64_t used() const;
  int64_t count() const;

 private:
  struct Block {
    size_t bytes = 0;
    uint8_t* guarded = nullptr;  // where the front guard begins
  };
  using Blocks = std::map<Address, Block>;
  std::string check_block(Address at, const Block& block) const;

  mutable std::mutex lock_;
  const int64_t limit_;
  int64_t used_ = 0;
  Blocks blocks_;
};

}  // namespace tandem::gpu
