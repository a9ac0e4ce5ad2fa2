// SPDX-License-Identifier: Apache-2.0
// ResponseCache: the outputs of one version of a model for inputs that it has seen. Found by the
// inputs' bytes, which are kept and compared, so that no two requests share an answer by chance.
// All outputs are kept: which of them a request asks for does not matter. The least recently used
// answers make room.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tandem/serve/histogram.h"
#include "tandem/tensor/tensor.h"

namespace tandem::serve {

class TD_API ResponseCache {
 public:
  explicit ResponseCache(size_t bytes) : most_(bytes) {}
  ResponseCache(const ResponseCache&) = delete;
  ResponseCache& operator=(const ResponseCache&) = delete;

  /// The outputs for such inputs; counts a hit or a miss.
  std::optional<std::vector<Tensor>> find(const std::vector<Tensor>& inputs);
  /// Keeps a copy, unless it is larger than the cache.
  void put(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs);

  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t evicted() const { return evicted_.load(std::memory_order_relaxed); }
  /// How often, and how long it took to look.
  const Histogram& hits() const { return hits_; }
  const Histogram& misses() const { return misses_; }

 private:
  struct Entry {
    uint64_t key = 0;
    size_t bytes = 0;
    std::vector<Tensor> inputs, outputs;
  };
  void drop(std::list<Entry>::iterator at);
  size_t most_;
  std::atomic<size_t> bytes_{0};
  std::atomic<uint64_t> evicted_{0};
  Histogram hits_, misses_;
  std::mutex lock_;
  std::list<Entry> entries_;  ///< the one used last is in front
  std::unordered_map<uint64_t, std::list<Entry>::iterator> by_key_;
};

}  // namespace tandem::serve
