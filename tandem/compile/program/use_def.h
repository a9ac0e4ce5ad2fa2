// SPDX-License-Identifier: Apache-2.0
// UseDef: who makes each value of a Program and who reads it. Made in two walks over the
// instructions; it describes the program as it stood then. The Rewriter (rewriter.h) keeps one of
// its own that follows its edits.
#pragma once

#include <span>

#include "tandem/compile/program/program.h"

namespace tandem::compiler {

class UseDef {
 public:
  explicit UseDef(const Program& p);

  /// The instruction that makes v; kNone of an absent value and of placeholders and constants.
  InstrId maker(ValueId v) const { return v == kNone ? InstrId() : maker_[v]; }
  void set_maker(ValueId v, InstrId k) { maker_[v] = k; }
  /// The instructions that read v, in order, one entry per operand.
  std::span<const InstrId> readers(ValueId v) const {
    return {readers_.data() + first_[v], readers_.data() + first_[ValueId(v.index() + 1)]};
  }
  /// Is v a result of the program?
  bool leaves(ValueId v) const { return exits_[v] > 0; }
  /// Readings by instructions and by results.
  int uses(ValueId v) const { return static_cast<int>(readers(v).size()) + exits_[v]; }
  /// Is there one reading in all, by an instruction?
  bool read_once(ValueId v) const { return exits_[v] == 0 && readers(v).size() == 1; }

 private:
  PerValue<InstrId> maker_;
  PerValue<uint32_t> first_;      ///< of its readers; one entry more than there are values
  std::vector<InstrId> readers_;  ///< of all values, one value after the other
  PerValue<int> exits_;
};

}  // namespace tandem::compiler
