// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstring>
#include <new>

#include "tandem/backend/gpu/fake/memory_internal.h"

namespace tandem::gpu {
namespace {

constexpr size_t kGuardBytes = 256;  // on each side; also the alignment of blocks
constexpr uint8_t kGuard = 0xa5;
constexpr std::align_val_t kBlockAlignment{256};

// The first byte that is not as it was, or -1.
int64_t first_changed(const uint8_t* guard) {
  for (size_t i = 0; i < kGuardBytes; ++i) {
    if (guard[i] != kGuard) return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace

FakeMemory::~FakeMemory() {
  for (const auto& [at, block] : blocks_) ::operator delete(block.guarded, kBlockAlignment);
}

Status FakeMemory::allocate(size_t bytes, Address& at) {
  std::lock_guard hold(lock_);
  void* p = nullptr;
  if (bytes <= static_cast<size_t>(limit_ - used_)) {
    p = ::operator new(bytes + 2 * kGuardBytes, kBlockAlignment, std::nothrow);
  }
  if (!p) {
    return {Code::out_of_memory,
            fmt::format("{} bytes asked for, {} of {} are free", bytes, limit_ - used_, limit_)};
  }
  auto* guarded = static_cast<uint8_t*>(p);
  std::memset(guarded, kGuard, kGuardBytes);
  std::memset(guarded + kGuardBytes, 0xff, bytes);
  std::memset(guarded + kGuardBytes + bytes, kGuard, kGuardBytes);
  at = reinterpret_cast<Address>(guarded + kGuardBytes);
  blocks_[at] = {bytes, guarded};
  used_ += static_cast<int64_t>(bytes);
  return {};
}

std::string FakeMemory::check_block(Address at, const Block& block) const {
  const int64_t before = first_changed(block.guarded);
  const int64_t behind = first_changed(block.guarded + kGuardBytes + block.bytes);
  if (before < 0 && behind < 0) return "";
  if (behind >= 0) {
    return fmt::format("byte {} past the end of a block of {} bytes (at {:#x}) was written", behind,
                       block.bytes, at);
  }
  return fmt::format("byte {} before the start of a block of {} bytes (at {:#x}) was written",
                     static_cast<int64_t>(kGuardBytes) - before, block.bytes, at);
}

Status FakeMemory::release(Address at, uint64_t& end, std::string& damage) {
  std::lock_guard hold(lock_);
  const auto it = blocks_.find(at);
  if (it == blocks_.end()) {
    return {Code::bad_argument, fmt::format("release: no allocation begins at {:#x}", at)};
  }
  const Block block = it->second;
  damage = check_block(at, block);
  blocks_.erase(it);
  used_ -= static_cast<int64_t>(block.bytes);
  ::operator delete(block.guarded, kBlockAlignment);
  end = at + block.bytes;
  return {};
}

Status FakeMemory::check_range(Address at, size_t bytes, const std::string& what) const {
  std::lock_guard hold(lock_);
  auto it = blocks_.upper_bound(at);
  if (it != blocks_.begin()) {
    --it;
    const Address end = it->first + it->second.bytes;
    if (at < end && bytes <= end - at) return {};
    if (at < end) {
      return {Code::bad_argument,
              fmt::format("{}: {} bytes from {:#x} reach {} bytes beyond a block of {}", what,
                          bytes, at, bytes - (end - at), it->second.bytes)};
    }
  }
  return {Code::bad_argument, fmt::format("{}: no allocation holds {:#x}", what, at)};
}

std::string FakeMemory::check_guards() {
  std::lock_guard hold(lock_);
  std::string damage;
  for (const auto& [at, block] : blocks_) {
    const std::string here = check_block(at, block);
    if (here.empty()) continue;
    if (damage.empty()) damage = here;
    std::memset(block.guarded, kGuard, kGuardBytes);
    std::memset(block.guarded + kGuardBytes + block.bytes, kGuard, kGuardBytes);
  }
  return damage;
}

int64_t FakeMemory::used() const {
  std::lock_guard hold(lock_);
  return used_;
}
int64_t FakeMemory::count() const {
  std::lock_guard hold(lock_);
  return static_cast<int64_t>(blocks_.size());
}

}  // namespace tandem::gpu
