// SPDX-License-Identifier: Apache-2.0
// From a Program to Executables that hold at most a given number of bytes. compiled.cpp calls
// these; with a limit they try cuts (recompute.h), cheapest first, until a plan fits.
#pragma once

#include "tandem/compile/program/split.h"
#include "tandem/compile/run/executable.h"

namespace tandem::compiler {

/// Passes and lowering. With a limit (bytes; 0: none) values are recomputed in the backward
/// pass until peak_bytes() is at most that; throws Memory, with the smallest peak that was found
/// and what holds it, where no choice fits. `name` of the function, for messages.
Ref<Executable> make_executable(Program p, size_t limit, const std::string& name);

/// A function whose backward() runs outside. Of what its derivative reads as much is saved as is
/// cheaper than recomputing it, or with a limit as little as fits.
struct ForwardBackward {
  Ref<Executable> forward, backward;
  std::vector<Saved> saved;
  /// Bytes of one call until its backward has run: the larger of what the forward program holds,
  /// and what it saved and the backward one holds together.
  size_t peak_bytes = 0;
};
ForwardBackward make_pair(Program joint, size_t n_in, size_t n_out, size_t limit,
                          const std::string& name);

}  // namespace tandem::compiler
