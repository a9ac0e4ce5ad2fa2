// SPDX-License-Identifier: Apache-2.0
// What the backward walk asks about watched gradients.
#pragma once

#include <vector>

#include "tandem/grad/grad_watch.h"

namespace tandem {

/// Is any slot of the process watched? Cheap.
bool any_watched();
/// Who watches the slot, or null.
GradWatcher* watcher_of(const GradSlot& slot);

/// A watched slot that a walk may store a gradient in.
struct WatchedLeaf {
  GradSlot* slot = nullptr;
  uint32_t edges = 0;             ///< that lead to it and have not been walked
  std::vector<Node*> nodes = {};  ///< that stand for it: in a trace there may be several
};

/// The watched leaves of one walk: counts the nodes that still may add to each, and tells watchers.
class WatchedWalk {
 public:
  explicit WatchedWalk(std::vector<WatchedLeaf> leaves, bool create_graph);
  /// Tells that the walk failed unless end() came first.
  ~WatchedWalk();
  WatchedWalk(const WatchedWalk&) = delete;
  WatchedWalk& operator=(const WatchedWalk&) = delete;
  /// One edge less; the leaf when it was the last, else null.
  const WatchedLeaf* count_down(const GradSlot& slot);
  void ready(GradSlot& slot);
  void end();

 private:
  struct Leaf {
    WatchedLeaf leaf;
    GradWatcher* watcher;
  };
  Leaf* find(const GradSlot& slot);
  std::vector<Leaf> leaves_;  ///< sorted by slot
  std::vector<GradWatcher*> begun_;
};

}  // namespace tandem
