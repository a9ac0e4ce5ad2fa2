// SPDX-License-Identifier: Apache-2.0
// GradWatcher: told during backward() when the gradients of leaves are complete, while the walk
// computes the rest. Data parallel training starts its collectives there.
#pragma once

#include <span>

#include "tandem/graph/cell.h"

namespace tandem {

/// Called on the thread of backward(), for walks that store gradients (not for grad()). Must
/// outlive what it watches. In a trace, as of compile(), the gradients are values of the trace, and
/// what replaces them is recorded too.
class TD_API GradWatcher {
 public:
  virtual ~GradWatcher() = default;
  /// A walk begins. `reached`: the watched slots that a gradient may come to; the others get none
  /// in this walk. Throws to refuse it: `create_graph` keeps the gradients' own graph.
  virtual void walk_begins(std::span<GradSlot* const> reached, bool create_graph) = 0;
  /// All of this walk's gradient is in the slot.
  virtual void gradient_ready(GradSlot& slot) = 0;
  /// The walk is over; `failed`: it threw.
  virtual void walk_ends(bool failed) = 0;
};

/// Watch these slots until unwatch(). Throws Value for one that is watched already.
TD_API void watch_gradients(std::span<GradSlot* const> slots, GradWatcher& watcher);
TD_API void unwatch_gradients(const GradWatcher& watcher) noexcept;

}  // namespace tandem
