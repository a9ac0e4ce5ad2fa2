// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/gpu/opencl/addresses_internal.h"

#include <fmt/format.h>

namespace tandem::gpu {

Address Addresses::add(cl::Buffer buffer, size_t bytes) {
  constexpr size_t kStep = 4096;  // no two buffers touch
  const Address at = next_;
  entries_[at] = {buffer, bytes};
  next_ += (bytes / kStep + 2) * kStep;
  return at;
}

cl::Buffer Addresses::remove(Address at, size_t& bytes) {
  const auto it = entries_.find(at);
  if (it == entries_.end()) return nullptr;
  const Entry e = it->second;
  entries_.erase(it);
  bytes = e.bytes;
  return e.buffer;
}

Status Addresses::find(Address at, size_t bytes, const char* what, Place& place) const {
  place = {};
  if (bytes == 0) return {};
  auto it = entries_.upper_bound(at);
  if (it != entries_.begin()) {
    --it;
    const size_t offset = at - it->first;
    if (offset < it->second.bytes && bytes <= it->second.bytes - offset) {
      place = {it->second.buffer, offset};
      return {};
    }
  }
  return {Code::bad_argument,
          fmt::format("{}: no allocation holds {} bytes from {:#x}", what, bytes, at)};
}

std::vector<cl::Buffer> Addresses::buffers() const {
  std::vector<cl::Buffer> all;
  for (const auto& [at, entry] : entries_) all.push_back(entry.buffer);
  return all;
}

}  // namespace tandem::gpu
