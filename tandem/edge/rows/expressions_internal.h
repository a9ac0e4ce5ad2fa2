// SPDX-License-Identifier: Apache-2.0
// A ScalarProgram as lines of C between names: what pointwise loops, reductions and scans share.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/edge/rows_internal.h"

namespace tandem::edge {

/// An input of a program: the name of a variable, a number, or a place to load from.
struct ProgramInput {
  std::string name;       ///< of a variable, or of the one that is loaded
  std::string load = "";  ///< "x0[i0]": defines `name` where it is read
  bool is_number = false;
  Scalar number = {};
};

/// Writes the program's steps to `to` and gives the names that hold its outputs. Variables that it
/// defines begin with `prefix`.
std::vector<std::string> write_program(const ScalarProgram& program, const std::string& prefix,
                                       const std::vector<ProgramInput>& inputs, Lines& to);

}  // namespace tandem::edge
