// SPDX-License-Identifier: Apache-2.0
// The happens-before checker: which operations of other streams an operation may rely on, and a
// report when it touches bytes that one it may not rely on has written, or is about to overwrite.
//
// Every stream has a vector clock: the number of the newest operation of each stream that is surely
// done before its next one. An event is a copy of a clock, a wait takes the maximum, and what the
// host has waited for holds for everything that it queues later. So a missing wait is found in
// each run, whether or not the streams collide this time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tandem::gpu {

struct Access {
  uint64_t begin = 0, end = 0;  ///< addresses
  bool write = false;
};

class HappensBefore {
 public:
  /// By number of the stream; absent ones are 0.
  using Clock = std::vector<uint64_t>;

  /// A number for a new stream.
  int add_stream(const std::string& name);
  /// The next operation of a stream. "" or which two operations lack a wait; then it counts as not
  /// done.
  std::string operation(int stream, const std::string& name, std::span<const Access> accesses);
  Clock record(int stream) const { return clocks_[static_cast<size_t>(stream)]; }
  void wait(int stream, const Clock& event) { join(clocks_[static_cast<size_t>(stream)], event); }
  /// The host has waited for an event, a stream or all of them.
  void host_waits(const Clock& event) { join(host_, event); }
  void host_waits(int stream) { join(host_, clocks_[static_cast<size_t>(stream)]); }
  void host_waits();
  /// What lies there is no longer the same memory.
  void forget(uint64_t begin, uint64_t end);

 private:
  struct Mark {
    int stream = -1;
    uint64_t tick = 0;
    std::shared_ptr<const std::string> name;
  };
  // Bytes with one history: the last write, and the reads since.
  struct Cell {
    uint64_t end = 0;
    Mark write;
    std::vector<Mark> reads;
  };
  using Cells = std::map<uint64_t, Cell>;

  static void join(Clock& clock, const Clock& other);
  bool is_done(const Clock& clock, const Mark& mark) const;
  std::string conflict(const Clock& clock, const Access& access, const std::string& who) const;
  void split(uint64_t at);
  void touch(const Access& access, const Mark& mark);

  std::vector<Clock> clocks_;
  std::vector<std::string> names_;
  Clock host_;
  Cells cells_;
};

}  // namespace tandem::gpu
