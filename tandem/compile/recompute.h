// SPDX-License-Identifier: Apache-2.0
// Which values the second part of a program (the backward pass) finds in memory and which it
// computes again: a smallest cut through the joint graph, where keeping a value costs its bytes and
// computing it again its time. What is computed again has the same operands and the same random
// draws, so no number changes. Used by memory_limit and by the cut of a function whose backward()
// runs outside.
#pragma once

#include "tandem/compile/program.h"

namespace tandem::compiler {

/// How a cut weighs bytes against time.
struct CutOptions {
  /// What keeping one byte may cost in computing.
  double seconds_per_byte = 0;
  /// The first part in so many pieces: a value that is read in another piece than its own is kept,
  /// so computing one piece again needs nothing but values that are kept.
  int pieces = 1;
  /// Only pointwise instructions and views are computed again.
  bool only_pointwise = false;
};

/// Instructions of the first part that the second runs again, and about how long that takes.
struct Choice {
  std::vector<char> again;
  double seconds = 0;
};

/// `first[k]`: instruction k belongs to the first part; the others may read what it makes.
/// `free_values` are kept in any case.
Choice choose(const Program& p, const std::vector<char>& first, const std::vector<int>& free_values,
              const CutOptions& options);
/// Cuts of many weights and numbers of pieces, each once, the fastest first.
std::vector<Choice> choices(const Program& p, const std::vector<char>& first,
                            const std::vector<int>& free_values);

/// The program in which the second part runs `choice.again` anew, each instruction right before it
/// is needed; what then nobody needs of the first part is gone. Program::recomputed lists them.
Program recompute(const Program& p, const std::vector<char>& first, const Choice& choice);

/// The part of the program up to the point that most bytes of values live across.
std::vector<char> until_widest(const Program& p);

}  // namespace tandem::compiler
