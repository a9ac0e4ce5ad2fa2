// SPDX-License-Identifier: Apache-2.0
// PartFeeder: a request of many parts, such as 2,048 texts, starts a few at a time, and the next
// when one has ended, so that it does not fill a model's queue by itself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>

namespace tandem::serve {

/// Parts that one request may have in a queue of this length.
constexpr size_t parts_at_once(size_t queue) {
  constexpr size_t kMost = 64, kShare = 4;
  return std::clamp<size_t>(queue / kShare, 1, kMost);
}

class PartFeeder {
 public:
  /// `start` begins part i, on the thread that calls begin() or ended(); a part may end, on any
  /// thread, before it returns. It must not throw.
  PartFeeder(size_t parts, size_t at_once, std::function<void(size_t)> start)
      : parts_(parts), at_once_(at_once), start_(std::move(start)) {}
  void begin() { more(at_once_); }
  /// A part has ended: the next one begins.
  void ended() { more(1); }
  /// No further part begins.
  void stop() {
    const std::lock_guard hold(lock_);
    next_ = parts_;
  }

 private:
  // Parts that end at once do not call each other: the first call starts all of them.
  void more(size_t n) {
    std::unique_lock hold(lock_);
    wanted_ += n;
    if (starting_) return;
    starting_ = true;
    for (; wanted_ > 0 && next_ < parts_; --wanted_) {
      const size_t i = next_++;
      hold.unlock();
      start_(i);
      hold.lock();
    }
    starting_ = false;
  }
  const size_t parts_, at_once_;
  const std::function<void(size_t)> start_;
  std::mutex lock_;
  size_t next_ = 0, wanted_ = 0;
  bool starting_ = false;
};

}  // namespace tandem::serve
