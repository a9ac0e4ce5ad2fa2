// SPDX-License-Identifier: Apache-2.0
// FolderWatch: waits until something changes in folders. The kernel says so (inotify); where it
// cannot, as on network file systems, it is found by looking again after a while.
#pragma once

#include <atomic>
#include <set>
#include <string>
#include <vector>

namespace tandem::serve {

class FolderWatch {
 public:
  FolderWatch();
  ~FolderWatch();
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;

  /// Folders that are watched from now on. True where one was not before: what came into it until
  /// now was not told.
  bool add(const std::vector<std::string>& folders);
  /// Does the kernel tell of changes in all of them?
  bool told() const { return notify_ >= 0 && !missed_; }
  /// Waits for a change, or `seconds`, or stop().
  void wait_for_change(double seconds);
  /// Waits for `seconds`, or stop(); what changes meanwhile is passed over.
  void pause(double seconds);
  void stop() noexcept;
  bool stopped() const { return stopped_.load(); }

 private:
  void wait(double seconds, bool for_change);
  void drain() const;
  int notify_ = -1, wake_ = -1;
  bool missed_ = false;
  std::set<int> known_;  ///< as the kernel numbers them, each once
  std::atomic<bool> stopped_{false};
};

}  // namespace tandem::serve
