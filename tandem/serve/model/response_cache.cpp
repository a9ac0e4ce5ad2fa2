// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/model/response_cache.h"

#include <cstring>

#include "tandem/base/clock.h"
#include "tandem/base/hash/hash.h"
#include "tandem/ops/ops.h"

namespace tandem::serve {
namespace {

constexpr size_t kOverhead = 512;  // of an entry, besides its tensors' bytes

size_t bytes_of_tensor(const Tensor& t) {
  return static_cast<size_t>(t.numel()) * size_of(t.dtype());
}
std::vector<Tensor> in_order(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> out;
  for (const Tensor& t : tensors) out.push_back(t.contiguous());
  return out;
}

uint64_t key_of_inputs(const std::vector<Tensor>& inputs) {
  uint64_t key = kHashSeed;
  for (const Tensor& t : inputs) {
    key = hash_combine(key, static_cast<uint64_t>(t.dtype()));
    for (const int64_t n : t.sizes()) key = hash_combine(key, static_cast<uint64_t>(n));
    if (t.numel() > 0) key = hash_bytes(t.data_ptr(), bytes_of_tensor(t), key);
  }
  return key;
}

bool equal_bytes(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].dtype() != b[i].dtype() || !(a[i].shape() == b[i].shape()) ||
        (a[i].numel() > 0 &&
         std::memcmp(a[i].data_ptr(), b[i].data_ptr(), bytes_of_tensor(a[i])) != 0))
      return false;
  return true;
}

}  // namespace

std::optional<std::vector<Tensor>> ResponseCache::find(const std::vector<Tensor>& inputs) {
  const auto begin = Clock::now();
  const std::vector<Tensor> x = in_order(inputs);
  const uint64_t key = key_of_inputs(x);
  const std::lock_guard hold(lock_);
  const auto at = by_key_.find(key);
  if (at == by_key_.end() || !equal_bytes(at->second->inputs, x)) {
    misses_.add(seconds_since(begin));
    return std::nullopt;
  }
  entries_.splice(entries_.begin(), entries_, at->second);
  hits_.add(seconds_since(begin));
  return at->second->outputs;
}

void ResponseCache::drop(std::list<Entry>::iterator at) {
  bytes_.fetch_sub(at->bytes, std::memory_order_relaxed);
  by_key_.erase(at->key);
  entries_.erase(at);
}

void ResponseCache::put(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
  Entry e;
  e.inputs = in_order(inputs);
  e.key = key_of_inputs(e.inputs);
  e.bytes = kOverhead;
  for (const Tensor& t : inputs) e.bytes += bytes_of_tensor(t);
  for (const Tensor& t : outputs) e.bytes += bytes_of_tensor(t);
  if (e.bytes > most_) return;
  // A view of a batch would keep all of it.
  for (const Tensor& t : outputs) e.outputs.push_back(t.clone());
  const std::lock_guard hold(lock_);
  if (const auto at = by_key_.find(e.key); at != by_key_.end()) drop(at->second);
  while (bytes() + e.bytes > most_) {
    drop(std::prev(entries_.end()));
    evicted_.fetch_add(1, std::memory_order_relaxed);
  }
  bytes_.fetch_add(e.bytes, std::memory_order_relaxed);
  entries_.push_front(std::move(e));
  by_key_[entries_.front().key] = entries_.begin();
}

}  // namespace tandem::serve
