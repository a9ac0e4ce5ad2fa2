// SPDX-License-Identifier: Apache-2.0
// What a trace cannot guard: numbers, shapes and branches that a function takes from outside. A
// second trace of the same function shows them where it differs from the first.
#pragma once

#include "tandem/graph/trace.h"

namespace tandem::compiler {

/// Where the trace `now` first differs from the trace `was` of the same function, as one phrase
/// with the op and the user's line ("the number of mul (a.cpp:4) was 1 and is 5"); "" if they are
/// the same program. Functions in attributes (custom derivatives) are not compared.
std::string difference(const Graph& was, const Graph& now);

/// Calls of a trace at which it is compared with a new one: the 2nd, 4th, 8th, 16th ...
class LookSchedule {
 public:
  /// Counts a call; is it one of them?
  bool due() {
    if (++calls_ < next_) return false;
    next_ = 2 * calls_;
    return true;
  }
  int64_t calls() const { return calls_; }

 private:
  int64_t calls_ = 1, next_ = 2;
};

}  // namespace tandem::compiler
