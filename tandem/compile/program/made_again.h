// SPDX-License-Identifier: Apache-2.0
// Values that are made a second time, so that nobody holds them in between: parameters that a step
// on several ranks gathers for its forward pass and again for its backward pass.
#pragma once

#include "tandem/compile/program/program.h"

namespace tandem::compiler {

/// From instruction `at` on, what reads `value`, or what views and casts have made of it before,
/// reads the same of a second value. `at` counts instructions as they stand.
struct Drop {
  ValueId value;
  size_t at;
};
/// A value that is read again before anything else that starts ahead has started stays: two of them
/// are in memory at a time in any case. What makes the second values stands right before the first
/// instruction that reads one: copies of the instructions that made the first, from the row on that
/// has started it (kStartsAhead).
void make_again(Program& p, const std::vector<Drop>& drops);

}  // namespace tandem::compiler
