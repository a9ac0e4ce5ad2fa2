// SPDX-License-Identifier: Apache-2.0
// What a Pool keeps. Every function wants the lock to be held.
#pragma once

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tandem/backend/gpu/pool.h"

namespace tandem::gpu {

struct Pool::State {
  State(Context& c, std::string name) : context(c), device(std::move(name)) {}

  struct Segment {
    int64_t bytes = 0;
    StreamRef home = nullptr;  ///< nullptr: no stream uses it
    bool small = false;
  };
  /// In use, on its segment's list of ready ones, or in `releasing`.
  struct Block {
    int64_t bytes = 0;
    Address segment = 0;
    bool used = false;
    const char* holder = nullptr;
    std::vector<StreamRef> users;   ///< streams with work on it
    std::vector<EventRef> pending;  ///< to be waited for before it is used again
  };
  using Ready = std::set<std::pair<int64_t, Address>>;  // by size

  bool small(const Block& block) const;
  Ready& list_of(const Block& block);
  Address find(StreamRef from, StreamRef stream, int64_t wanted);
  Address take_over(StreamRef stream, int64_t wanted);
  Status grow(StreamRef stream, int64_t wanted, Address& at);
  void use(Address at, int64_t wanted, StreamRef stream, const char* holder);
  bool mark_users(Block& block);
  void finish_releases();
  void merge(Address at);
  int64_t empty_cache();
  Status take_event(EventRef& event);
  void give_events(std::vector<EventRef>& events);
  int64_t largest_free() const;
  std::vector<std::pair<std::string, int64_t>> holders() const;
  std::string out_of_memory_text(int64_t wanted, const char* holder) const;

  mutable std::mutex lock;
  Context& context;
  const std::string device;
  std::map<Address, Segment> segments;
  std::map<Address, Block> blocks;
  std::map<std::pair<StreamRef, bool>, Ready> ready;  // by home stream and size class
  std::vector<Address> releasing;
  std::vector<EventRef> free_events, all_events;
  PoolStats stats;
};

}  // namespace tandem::gpu
