// SPDX-License-Identifier: Apache-2.0
#include "tandem/grad/grad_watch.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>

#include "tandem/grad/grad_watch_internal.h"

namespace tandem {
namespace {

struct WatchTable {
  std::mutex lock;
  std::atomic<size_t> size{0};
  std::unordered_map<const GradSlot*, GradWatcher*> of;
};
WatchTable& table() {
  static WatchTable& t = *new WatchTable;  // watchers may be destroyed after static objects
  return t;
}

}  // namespace

bool any_watched() { return table().size.load(std::memory_order_acquire) > 0; }

GradWatcher* watcher_of(const GradSlot& slot) {
  WatchTable& t = table();
  std::lock_guard hold(t.lock);
  const auto at = t.of.find(&slot);
  return at == t.of.end() ? nullptr : at->second;
}

void watch_gradients(std::span<GradSlot* const> slots, GradWatcher& watcher) {
  WatchTable& t = table();
  std::lock_guard hold(t.lock);
  for (const GradSlot* s : slots)
    TD_CHECK(!t.of.count(s), Value,
             "a parameter's gradient is watched already: is the net in two DataParallel at once?");
  for (const GradSlot* s : slots) t.of[s] = &watcher;
  t.size = t.of.size();
}

void unwatch_gradients(const GradWatcher& watcher) noexcept {
  WatchTable& t = table();
  std::lock_guard hold(t.lock);
  std::erase_if(t.of, [&](const auto& entry) { return entry.second == &watcher; });
  t.size = t.of.size();
}

WatchedWalk::WatchedWalk(std::vector<WatchedLeaf> leaves, bool create_graph) {
  std::unordered_map<GradWatcher*, std::vector<GradSlot*>> reached;
  std::vector<GradWatcher*> order;
  for (WatchedLeaf& l : leaves) {  // in order of the walk
    GradWatcher* w = watcher_of(*l.slot);
    if (!reached.count(w)) order.push_back(w);
    reached[w].push_back(l.slot);
    leaves_.push_back({std::move(l), w});
  }
  std::sort(leaves_.begin(), leaves_.end(),
            [](const Leaf& a, const Leaf& b) { return a.leaf.slot < b.leaf.slot; });
  for (GradWatcher* w : order) {
    w->walk_begins(reached[w], create_graph);
    begun_.push_back(w);
  }
}

WatchedWalk::~WatchedWalk() {
  for (GradWatcher* w : begun_) try {
      w->walk_ends(true);
    } catch (...) {  // the walk's own error is on its way
    }
}

WatchedWalk::Leaf* WatchedWalk::find(const GradSlot& slot) {
  const auto at =
      std::lower_bound(leaves_.begin(), leaves_.end(), &slot,
                       [](const Leaf& l, const GradSlot* s) { return l.leaf.slot < s; });
  return at != leaves_.end() && at->leaf.slot == &slot ? &*at : nullptr;
}

const WatchedLeaf* WatchedWalk::count_down(const GradSlot& slot) {
  Leaf* l = find(slot);
  return l && l->leaf.edges > 0 && --l->leaf.edges == 0 ? &l->leaf : nullptr;
}

void WatchedWalk::ready(GradSlot& slot) {
  if (Leaf* l = find(slot)) l->watcher->gradient_ready(slot);
}

void WatchedWalk::end() {
  // Each may throw: those that were not told then hear of it as of a failure.
  while (!begun_.empty()) {
    GradWatcher* w = begun_.back();
    begun_.pop_back();
    w->walk_ends(false);
  }
}

}  // namespace tandem
