// SPDX-License-Identifier: Apache-2.0
// Cell updates deferred until a function has ended: Control::eager defers an optimizer's step when
// it runs op by op. update_many_() and the running trace check here.
#pragma once

#include "tandem/graph/cells/update.h"

namespace tandem {

/// Defers updates, so that they are done in place at the end and an exception leaves the cells
/// unchanged.
class TD_API WaitingUpdates {
 public:
  virtual ~WaitingUpdates() = default;
  virtual void add(CellUpdate&& u, SourceLocation loc) = 0;
  /// Somebody reads or assigns the cell: it must be up to date.
  virtual void need(const Cell& cell) = 0;
};
/// This thread's; nullptr outside such a run.
TD_API WaitingUpdates*& waiting_updates();

}  // namespace tandem
