// SPDX-License-Identifier: Apache-2.0
// Objects of /dev/shm that clients have registered, so that tensors need not cross a socket:
// Triton's extension for system shared memory. They are read with pread and written with pwrite,
// not through a mapping: a client may cut an object off at any time, which makes a read short, and
// would end the process at a mapping's lost page. What was read once is not read again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::serve {

/// A part of an object that a client has given a name. Who holds it may use it, registered or not.
class SharedRegion {
 public:
  /// Opens the object `key` of /dev/shm. Throws Refusal for a key that is not a plain name, for
  /// what cannot be opened, is no regular file, or ends before `offset` + `bytes`.
  SharedRegion(std::string name, std::string key, uint64_t offset, uint64_t bytes);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  const std::string& name() const { return name_; }
  const std::string& key() const { return key_; }
  uint64_t offset() const { return offset_; }
  uint64_t bytes() const { return bytes_; }
  /// Copies from and to the region, from byte `at` of it on, which lies within it. Throws Refusal
  /// where the object has been cut off.
  void read(uint64_t at, char* to, size_t bytes) const;
  void write(uint64_t at, std::string_view bytes) const;

 private:
  std::string name_, key_;
  uint64_t offset_, bytes_;
  int fd_ = -1;
};
using SharedRegionPtr = std::shared_ptr<const SharedRegion>;

/// Where a request says that a tensor lies: its parameters shared_memory_region,
/// shared_memory_byte_size and shared_memory_offset.
struct SharedAsk {
  std::string region;
  std::optional<int64_t> bytes;
  int64_t offset = 0;
};
/// The same, found.
struct SharedRange {
  SharedRegionPtr region = nullptr;
  uint64_t at = 0;
  size_t bytes = 0;
};

/// The regions that are registered, for any thread.
class SharedMemory {
 public:
  static constexpr size_t kMostRegions = 256;  ///< each has a file descriptor
  /// Without `allowed` everything throws Refusal 403.
  explicit SharedMemory(bool allowed) : allowed_(allowed) {}
  bool allowed() const { return allowed_; }
  /// Throws Refusal, also for a name that is registered already.
  void add(const std::string& name, const std::string& key, uint64_t offset, uint64_t bytes);
  /// Forgets a region, or all of them for ""; a name that is not registered is passed over, as in
  /// Triton. Requests that use it keep it.
  void remove(const std::string& name);
  /// One region, or all of them for "". Throws Refusal for a name that is not registered.
  std::vector<SharedRegionPtr> list(const std::string& name) const;
  /// Throws Refusal, beginning with `what`, for what does not lie in a registered region.
  SharedRange range(const SharedAsk& ask, const std::string& what) const;

 private:
  void check_allowed() const;
  const bool allowed_;
  mutable std::mutex lock_;
  std::map<std::string, SharedRegionPtr, std::less<>> regions_;
};

}  // namespace tandem::serve
