// SPDX-License-Identifier: Apache-2.0
// Damaged: what datasets of many files share for samples that cannot be read: throw, or take the
// next one that can and count.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "tandem/base/error.h"

namespace tandem::data {

/// A count that copies of a dataset share.
class Damaged {
 public:
  int64_t count() const { return count_->load(); }
  void add(int64_t n = 1) const { *count_ += n; }
  /// get(i); with `skip`, where that throws Format, get() of the next of `size` samples that does
  /// not (the first follows the last). Throws when none does.
  template <class Get>
  auto take(int64_t i, int64_t size, bool skip, Get get) const {
    for (int64_t tried = 0;; ++tried) {
      try {
        return get((i + tried) % size);
      } catch (const Error& e) {
        if (!skip || e.kind() != ErrorKind::Format) throw;
        add();
        if (tried + 1 == size) throw;
      }
    }
  }

 private:
  std::shared_ptr<std::atomic<int64_t>> count_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace tandem::data
