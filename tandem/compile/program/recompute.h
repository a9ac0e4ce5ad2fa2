// SPDX-License-Identifier: Apache-2.0
// Rematerialisation: which values the second part of a program (the backward pass) finds in memory
// and which it recomputes. That is a minimum cut through the joint graph, where keeping a value
// costs its bytes and recomputing it costs its time. What is recomputed has the same operands and
// the same random draws, so no number changes. Used by memory_limit and by the cut of a function
// whose backward() runs outside.
#pragma once

#include "tandem/compile/program/program.h"

namespace tandem::compiler {

/// How a cut weighs bytes against time.
struct CutOptions {
  /// What keeping one byte may cost in computing.
  double seconds_per_byte = 0;
  /// The first part in this many pieces: a value that is read in another piece than its own is
  /// kept, so recomputing one piece needs nothing but values that are kept.
  int pieces = 1;
  /// Only pointwise instructions and views are recomputed.
  bool only_pointwise = false;
};

/// Instructions of the first part that the second recomputes, and about how long that takes.
struct Choice {
  PerInstr<char> recomputed;
  double seconds = 0;
};

/// `first[k]`: instruction k belongs to the first part; the others may read what it makes.
/// `free_values` are kept in any case.
Choice choose(const Program& p, const PerInstr<char>& first,
              const std::vector<ValueId>& free_values, const CutOptions& options);
/// Cuts of many weights and numbers of pieces, each once, the fastest first.
std::vector<Choice> choices(const Program& p, const PerInstr<char>& first,
                            const std::vector<ValueId>& free_values);

/// The program in which the second part runs `choice.recomputed` again, each instruction right
/// before it is needed; what then nobody needs of the first part is gone. Program::recomputed lists
/// them.
Program recompute(const Program& p, const PerInstr<char>& first, const Choice& choice);

/// The part of the program up to the point that most bytes of values live across.
PerInstr<char> until_widest(const Program& p);

}  // namespace tandem::compiler
