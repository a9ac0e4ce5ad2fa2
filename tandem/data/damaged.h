// SPDX-License-Identifier: Apache-2.0
// Damaged: the policy of datasets with many files for samples that cannot be read: throw, or take
// the next readable one and count.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "tandem/base/error.h"

namespace tandem::data {

/// A count shared by the copies of a dataset.
class Damaged {
 public:
  int64_t count() const { return count_->load(); }
  void add(int64_t n = 1) const { *count_ += n; }
  /// get(i); with `skip`, if that throws Format, get() of the next of `size` samples that does not
  /// (wrapping around). Throws when none succeeds.
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
