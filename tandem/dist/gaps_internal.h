// SPDX-License-Identifier: Apache-2.0
// What lies between pieces of a flat array.
#pragma once

#include <cstdint>
#include <utility>

namespace tandem::distributed {

/// Pieces come in order of their places; `zeros(begin, elements)` is called for what none covers.
template <class Zeros>
class Gaps {
 public:
  explicit Gaps(Zeros zeros) : zeros_(std::move(zeros)) {}
  void piece(int64_t begin, int64_t elements) {
    until(begin);
    filled_ = begin + elements;
  }
  /// No piece comes any more; the array ends there.
  void until(int64_t end) {
    if (end > filled_) zeros_(filled_, end - filled_);
  }

 private:
  Zeros zeros_;
  int64_t filled_ = 0;
};

}  // namespace tandem::distributed
