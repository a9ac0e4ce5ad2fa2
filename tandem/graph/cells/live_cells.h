// SPDX-License-Identifier: Apache-2.0
// The cells that exist, and when each was made: how a module finds those of its constructor that it
// does not register.
#pragma once

#include <compare>
#include <cstdint>

#include "tandem/base/export.h"
#include "tandem/base/function_ref.h"

namespace tandem {

class Cell;

namespace detail {

/// A moment in the work of one thread; moments of a thread are in order.
struct Moment {
  uint32_t thread = 0;
  uint64_t count = 0;
  auto operator<=>(const Moment&) const = default;
};
/// A new moment of this thread.
TD_API Moment next_moment();

/// Called by Cell's constructor and destructor.
void enter_cell(const Cell& cell, Moment made);
void leave_cell(const Cell& cell, Moment made) noexcept;

/// Is there a cell at this address?
TD_API bool is_cell(const void* p);
/// The cells that the thread of `begin` has made from that moment up to its moment `end` and that
/// still exist. No cell may be made or freed inside `see`.
TD_API void for_cells_made(Moment begin, uint64_t end, FunctionRef<void(const Cell&)> see);

}  // namespace detail
}  // namespace tandem
