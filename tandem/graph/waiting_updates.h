// SPDX-License-Identifier: Apache-2.0
// Updates of cells that wait until a function has ended: Control::eager puts an optimizer's step
// off where it runs op by op. update_many_() and the running trace ask here.
#pragma once

#include "tandem/graph/update.h"

namespace tandem {

/// Takes updates, so that they are done in place at the end and an exception leaves the cells as
/// they were.
class TD_API WaitingUpdates {
 public:
  virtual ~WaitingUpdates() = default;
  virtual void add(CellUpdate&& u, Where where) = 0;
  /// Somebody reads or assigns the cell: it must be the new one.
  virtual void need(const Cell& cell) = 0;
};
/// This thread's; nullptr outside of such a run.
TD_API WaitingUpdates*& waiting_updates();

}  // namespace tandem
