// SPDX-License-Identifier: Apache-2.0
// ByteAccount: how many bytes the requests of a server hold, over all connections and threads, and
// how many they may.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace tandem::serve {

class ByteAccount {
 public:
  explicit ByteAccount(size_t most) : most_(most) {}
  /// Counts `bytes` more; false where that would be too many: nothing is counted then.
  bool take(size_t bytes) {
    size_t before = held_.load(std::memory_order_relaxed);
    do {
      if (bytes > most_ || before > most_ - bytes) return false;
    } while (!held_.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
    return true;
  }
  void give(size_t bytes) { held_.fetch_sub(bytes, std::memory_order_relaxed); }
  /// What held `before` holds `now`, be it too much.
  void change(size_t before, size_t now) {
    held_.fetch_add(now - before, std::memory_order_relaxed);
  }
  bool full() const { return held_.load(std::memory_order_relaxed) > most_; }

 private:
  const size_t most_;
  std::atomic<size_t> held_{0};
};

/// Bytes that are counted while this lives.
class HeldBytes {
 public:
  HeldBytes() = default;
  ~HeldBytes() { drop(); }
  HeldBytes(HeldBytes&& other) noexcept
      : account_(std::move(other.account_)), bytes_(std::exchange(other.bytes_, 0)) {}
  HeldBytes& operator=(HeldBytes&& other) noexcept {
    if (this != &other) {
      drop();
      account_ = std::move(other.account_);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;
  /// Counts more. False where the account has no room; true where there is none (nullptr).
  bool add(const std::shared_ptr<ByteAccount>& account, size_t bytes) {
    if (!account) return true;
    if (!account->take(bytes)) return false;
    account_ = account;
    bytes_ += bytes;
    return true;
  }

 private:
  void drop() {
    if (account_) account_->give(bytes_);
    bytes_ = 0;
  }
  std::shared_ptr<ByteAccount> account_;
  size_t bytes_ = 0;
};

}  // namespace tandem::serve
