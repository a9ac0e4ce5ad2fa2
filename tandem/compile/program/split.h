// SPDX-License-Identifier: Apache-2.0
// Cutting the joint program of a function and its derivative in two: a forward program that also
// gives what the backward one reads. Serves compiled functions whose backward() runs in eager.
#pragma once

#include "tandem/compile/program/program.h"

namespace tandem::compiler {

/// Where a value that the backward program reads is found when the forward one has run.
struct Saved {
  enum Kind : uint8_t { output, input, capture, cell } kind = output;
  size_t index = 0;
};

struct Split {
  Program forward;   ///< outputs: those of the function, then the saved ones
  Program backward;  ///< inputs: the saved values, then the gradients of the outputs
  std::vector<Saved> saved;
};

/// Which instructions of the joint program the function itself needs: its first `n_out` outputs,
/// what it writes, and what has an effect.
PerInstr<char> forward_part(const Program& joint, size_t n_out);

/// `joint` has the function's `n_in` inputs and then gradients as inputs; its first `n_out` outputs
/// are the function's, the others are results of the derivative. What the function does not need
/// itself goes into the backward program.
Split split_program(const Program& joint, size_t n_in, size_t n_out);

}  // namespace tandem::compiler
