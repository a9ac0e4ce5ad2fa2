// SPDX-License-Identifier: Apache-2.0
// Segments, cut into blocks. A segment has a home stream: its free blocks are used again there
// without a wait, except for the events that other users of the block left behind.
#include "tandem/backend/gpu/pool.h"

#include <algorithm>

#include "tandem/backend/gpu/pool_internal.h"
#include "tandem/base/bytes_in_words.h"
#include "tandem/base/error.h"

namespace tandem::gpu {
namespace {

constexpr int64_t kMiB = 1 << 20;
// Blocks of up to kMostSmall come from segments of their own, so that small ones do not cut up
// large ones.
constexpr int64_t kUnit = 512, kMostSmall = kMiB, kSmallSegment = 2 * kMiB,
                  kLargeSegment = 20 * kMiB, kMostShared = 10 * kMiB;

int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

bool is_small(int64_t bytes) { return bytes <= kMostSmall; }

int64_t segment_bytes(int64_t bytes) {
  if (is_small(bytes)) return kSmallSegment;
  return bytes < kMostShared ? kLargeSegment : rounded_up(bytes, 2 * kMiB);
}

}  // namespace

Pool::Pool(Context& context, std::string device)
    : state_(std::make_unique<State>(context, std::move(device))) {}

Pool::~Pool() {
  for (const auto& [at, segment] : state_->segments) (void)state_->context.release(at);
  for (EventRef e : state_->all_events) (void)state_->context.destroy_event(e);
}

Address Pool::allocate(size_t bytes, StreamRef stream, const char* holder) {
  TD_CHECK(bytes <= size_t{1} << 60, Memory, "{} bytes cannot be asked for", bytes);
  const int64_t wanted = rounded_up(std::max(static_cast<int64_t>(bytes), int64_t{1}), kUnit);
  State& s = *state_;
  std::lock_guard hold(s.lock);
  s.finish_releases();
  ++s.stats.allocations;
  Address at = s.find(stream, stream, wanted);
  if (!at) at = s.find(nullptr, stream, wanted);
  Status status;
  if (!at) status = s.grow(stream, wanted, at);
  if (status.code() == Code::out_of_memory) {
    at = s.take_over(stream, wanted);
    if (!at && s.empty_cache() > 0) {
      ++s.stats.retries;
      status = s.grow(stream, wanted, at);
    }
  }
  if (!at) {
    if (status.code() == Code::out_of_memory) {
      ++s.stats.out_of_memory;
      TD_FAIL(Memory, "{}", s.out_of_memory_text(wanted, holder));
    }
    status.check();
  }
  s.use(at, wanted, stream, holder);
  return at;
}

void Pool::release(Address at) {
  State& s = *state_;
  std::lock_guard hold(s.lock);
  const auto it = s.blocks.find(at);
  TD_ASSERT(it != s.blocks.end() && it->second.used);
  s.stats.allocated -= it->second.bytes;
  --s.stats.blocks;
  it->second.used = false;
  s.releasing.push_back(at);
  s.finish_releases();
}

void Pool::add_stream(Address at, StreamRef stream) {
  State& s = *state_;
  std::lock_guard hold(s.lock);
  const auto it = s.blocks.find(at);
  TD_ASSERT(it != s.blocks.end() && it->second.used);
  std::vector<StreamRef>& users = it->second.users;
  if (std::find(users.begin(), users.end(), stream) == users.end()) users.push_back(stream);
}

void Pool::forget_stream(StreamRef stream) {
  State& s = *state_;
  std::lock_guard hold(s.lock);
  s.finish_releases();
  s.context.synchronize_stream(stream).check();
  for (auto& [at, segment] : s.segments) {
    if (segment.home == stream) segment.home = nullptr;
  }
  for (const bool small : {false, true}) {
    const auto it = s.ready.find({stream, small});
    if (it == s.ready.end()) continue;
    s.ready[{nullptr, small}].insert(it->second.begin(), it->second.end());
    s.ready.erase({stream, small});
  }
  for (auto& [at, block] : s.blocks) {
    block.users.erase(std::remove(block.users.begin(), block.users.end(), stream),
                      block.users.end());
  }
}

int64_t Pool::empty_cache() {
  std::lock_guard hold(state_->lock);
  state_->finish_releases();
  return state_->empty_cache();
}

PoolStats Pool::stats() const {
  std::lock_guard hold(state_->lock);
  PoolStats stats = state_->stats;
  stats.largest_free = state_->largest_free();
  stats.segments = static_cast<int64_t>(state_->segments.size());
  return stats;
}

void Pool::reset_peaks() {
  std::lock_guard hold(state_->lock);
  state_->stats.max_allocated = state_->stats.allocated;
  state_->stats.max_reserved = state_->stats.reserved;
}

std::vector<std::pair<std::string, int64_t>> Pool::holders() const {
  std::lock_guard hold(state_->lock);
  return state_->holders();
}

// ---- State

bool Pool::State::small(const Block& block) const { return segments.at(block.segment).small; }

Pool::State::Ready& Pool::State::list_of(const Block& block) {
  const Segment& segment = segments.at(block.segment);
  return ready[{segment.home, segment.small}];
}

// A block of `from`'s that fits, taken off its list and made safe for `stream`; 0 if there is none
// or the waits cannot be queued.
Address Pool::State::find(StreamRef from, StreamRef stream, int64_t wanted) {
  const auto list = ready.find({from, is_small(wanted)});
  if (list == ready.end()) return 0;
  const auto it = list->second.lower_bound({wanted, 0});
  if (it == list->second.end()) return 0;
  const Address at = it->second;
  Block& block = blocks.at(at);
  for (EventRef e : block.pending) {
    if (!context.wait(stream, e).ok()) return 0;
  }
  list->second.erase(it);
  return at;
}

// From any other stream, behind what that has queued so far.
Address Pool::State::take_over(StreamRef stream, int64_t wanted) {
  for (auto& [key, list] : ready) {
    const StreamRef from = key.first;
    if (from == stream || !from || key.second != is_small(wanted)) continue;
    if (list.lower_bound({wanted, 0}) == list.end()) continue;
    EventRef e = nullptr;
    if (!take_event(e).ok()) continue;
    std::vector<EventRef> one{e};
    const bool good = context.record(e, from).ok() && context.wait(stream, e).ok();
    give_events(one);
    const Address at = good ? find(from, stream, wanted) : 0;
    if (!at) continue;
    ++stats.from_other_streams;
    return at;
  }
  return 0;
}

// A new segment, all of it one block that is on no list.
Status Pool::State::grow(StreamRef stream, int64_t wanted, Address& at) {
  int64_t bytes = segment_bytes(wanted);
  Status status = context.allocate(static_cast<size_t>(bytes), at);
  if (status.code() == Code::out_of_memory && wanted < bytes) {
    bytes = wanted;  // without anything to spare
    status = context.allocate(static_cast<size_t>(bytes), at);
  }
  if (!status.ok()) {
    at = 0;
    return status;
  }
  segments[at] = {bytes, stream, is_small(wanted)};
  blocks[at] = {bytes, at};
  stats.reserved += bytes;
  stats.max_reserved = std::max(stats.max_reserved, stats.reserved);
  return {};
}

// A block that is on no list is in use from now on; what is left over is ready.
void Pool::State::use(Address at, int64_t wanted, StreamRef stream, const char* holder) {
  Block& block = blocks.at(at);
  const int64_t rest = block.bytes - wanted;
  if (rest >= (small(block) ? kUnit : kMostSmall)) {
    Block& behind = blocks[at + static_cast<Address>(wanted)];
    behind = {rest, block.segment};
    // Who takes the rest has not waited, unless it is the same stream.
    if (stream != segments.at(block.segment).home) behind.pending = std::move(block.pending);
    block.bytes = wanted;
    list_of(behind).insert({rest, at + static_cast<Address>(wanted)});
  }
  give_events(block.pending);
  block.used = true;
  block.holder = holder;
  block.users = {stream};
  stats.allocated += block.bytes;
  stats.max_allocated = std::max(stats.max_allocated, stats.allocated);
  ++stats.blocks;
}

// Marks in every stream that used the block and is not at home there. If one cannot be set (an
// error of the device), the block stays where it is, and the next call tries again.
bool Pool::State::mark_users(Block& block) {
  const StreamRef home = segments.at(block.segment).home;
  while (!block.users.empty()) {
    const StreamRef user = block.users.back();
    if (user != home) {
      EventRef e = nullptr;
      if (!take_event(e).ok()) return false;
      block.pending.push_back(e);
      if (!context.record(e, user).ok()) {
        block.pending.pop_back();
        free_events.push_back(e);
        return false;
      }
    }
    block.users.pop_back();
  }
  return true;
}

void Pool::State::finish_releases() {
  std::vector<Address> later;
  for (const Address at : releasing) {
    if (mark_users(blocks.at(at)))
      merge(at);
    else
      later.push_back(at);
  }
  releasing = std::move(later);
}

// Put a free block on its list, as one with free neighbours of its segment.
void Pool::State::merge(Address at) {
  auto it = blocks.find(at);
  auto take_in = [&](std::map<Address, Block>::iterator next) {  // behind it
    it->second.bytes += next->second.bytes;
    it->second.pending.insert(it->second.pending.end(), next->second.pending.begin(),
                              next->second.pending.end());
    blocks.erase(next);
  };
  auto is_ready = [&](const std::pair<const Address, Block>& b) {
    return b.second.segment == it->second.segment && !b.second.used &&
           list_of(b.second).count({b.second.bytes, b.first}) != 0;
  };
  const auto next = std::next(it);
  if (next != blocks.end() && is_ready(*next)) {
    list_of(next->second).erase({next->second.bytes, next->first});
    take_in(next);
  }
  if (it != blocks.begin() && is_ready(*std::prev(it))) {
    const auto self = it;
    it = std::prev(it);
    list_of(it->second).erase({it->second.bytes, it->first});
    take_in(self);
  }
  list_of(it->second).insert({it->second.bytes, it->first});
}

int64_t Pool::State::empty_cache() {
  int64_t freed = 0;
  for (auto it = segments.begin(); it != segments.end();) {
    const Address at = it->first;
    Block& block = blocks.at(at);
    Ready& list = list_of(block);
    const bool whole = block.bytes == it->second.bytes && list.count({block.bytes, at}) != 0;
    if (!whole || !context.release(at).ok()) {
      ++it;
      continue;
    }
    freed += block.bytes;
    list.erase({block.bytes, at});
    give_events(block.pending);
    blocks.erase(at);
    it = segments.erase(it);
  }
  stats.reserved -= freed;
  return freed;
}

Status Pool::State::take_event(EventRef& event) {
  if (free_events.empty()) {
    TD_GPU_TRY(context.create_event(event));
    all_events.push_back(event);
    return {};
  }
  event = free_events.back();
  free_events.pop_back();
  return {};
}

void Pool::State::give_events(std::vector<EventRef>& events) {
  free_events.insert(free_events.end(), events.begin(), events.end());
  events.clear();
}

int64_t Pool::State::largest_free() const {
  int64_t largest = 0;
  for (const auto& [key, list] : ready) {
    if (!list.empty()) largest = std::max(largest, list.rbegin()->first);
  }
  return largest;
}

std::vector<std::pair<std::string, int64_t>> Pool::State::holders() const {
  std::map<std::string, int64_t> by_name;
  for (const auto& [at, block] : blocks) {
    if (block.used) by_name[block.holder ? block.holder : "(no name)"] += block.bytes;
  }
  std::vector<std::pair<std::string, int64_t>> all(by_name.begin(), by_name.end());
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return all;
}

std::string Pool::State::out_of_memory_text(int64_t wanted, const char* holder) const {
  constexpr size_t kMostHolders = 5;
  int64_t free = 0, total = 0;
  std::string text = fmt::format("out of memory on {}: {} wanted for {}", device,
                                 bytes_in_words(wanted), holder ? holder : "(no name)");
  if (context.memory(free, total).ok()) {
    text += fmt::format(", {} of {} are free", bytes_in_words(free), bytes_in_words(total));
  }
  const int64_t ready_bytes = stats.reserved - stats.allocated;
  text +=
      fmt::format(". This process uses {} in {} blocks and keeps {} ready, in pieces of at most {}",
                  bytes_in_words(stats.allocated), stats.blocks, bytes_in_words(ready_bytes),
                  bytes_in_words(largest_free()));
  const auto all = holders();
  for (size_t i = 0; i < all.size() && i < kMostHolders; ++i) {
    text += fmt::format("{}{} {}", i == 0 ? ". Largest holders: " : ", ", all[i].first,
                        bytes_in_words(all[i].second));
  }
  return text + (ready_bytes >= wanted
                     ? "\nWhat is ready is in pieces: make the large blocks first"
                     : "\nUse a smaller batch, or let go of tensors that are no longer needed");
}

}  // namespace tandem::gpu
