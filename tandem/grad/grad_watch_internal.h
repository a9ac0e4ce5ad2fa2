// SPDX-License-Identifier: Apache-2.0
// What the backward walk asks about watched gradients.
#pragma once

#include <utility>
#include <vector>

#include "tandem/grad/grad_watch.h"

namespace tandem {

/// Is any slot of the process watched? Cheap.
bool any_watched();
/// Who watches the slot, or null.
GradWatcher* watcher_of(const GradSlot& slot);

/// Tell the watchers of these slots that a walk has recorded their gradients.
void tell_traced(const std::vector<GradSlot*>& slots);

/// The watched leaves of one walk: counts the nodes that still may add to each, and tells watchers.
class WatchedWalk {
 public:
  /// `leaves`: its watched slots, each with the number of edges that lead to it.
  explicit WatchedWalk(std::vector<std::pair<GradSlot*, uint32_t>> leaves, bool create_graph);
  /// Tells that the walk failed unless end() came first.
  ~WatchedWalk();
  WatchedWalk(const WatchedWalk&) = delete;
  WatchedWalk& operator=(const WatchedWalk&) = delete;
  /// One edge less; true when it was the last.
  bool count_down(const GradSlot& slot);
  void ready(GradSlot& slot);
  void end();

 private:
  struct Leaf {
    GradSlot* slot;
    GradWatcher* watcher;
    uint32_t edges;
  };
  Leaf* find(const GradSlot& slot);
  std::vector<Leaf> leaves_;  ///< sorted by slot
  std::vector<GradWatcher*> begun_;
};

}  // namespace tandem
