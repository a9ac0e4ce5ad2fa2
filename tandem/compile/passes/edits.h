// SPDX-License-Identifier: Apache-2.0
// Edits of a Program's order that are collected first and made at once, so that the positions a
// UseDef gives stay true while a pass decides: instructions put in or moved before and after
// others, and removed ones.
#pragma once

#include "tandem/compile/program/program.h"

namespace tandem::compiler {

class Edits {
 public:
  explicit Edits(Program& p)
      : p_(p), before_(p.instrs.size()), after_(p.instrs.size()), removed_(p.instrs.size()) {}

  void put_before(InstrId k, Instr i) { before_[k].push_back({kNone, std::move(i)}); }
  void put_after(InstrId k, Instr i) { after_[k].push_back({kNone, std::move(i)}); }
  /// Instruction `moved` stands right before, or right after, k and what was put there earlier.
  void move_before(InstrId k, InstrId moved) { move(before_[k], moved); }
  void move_after(InstrId k, InstrId moved) { move(after_[k], moved); }
  void remove(InstrId k) { removed_[k] = 1; }
  /// Removed or moved away?
  bool is_removed(InstrId k) const { return removed_[k]; }
  void apply();

 private:
  struct Item {
    InstrId moved;  ///< kNone: `made`
    Instr made;
  };
  using Items = std::vector<Item>;
  void move(Items& to, InstrId moved) {
    to.push_back({moved, {}});
    removed_[moved] = 1;
  }

  Program& p_;
  PerInstr<Items> before_, after_;
  PerInstr<char> removed_;
};

inline void Edits::apply() {
  PerInstr<Instr> out;
  out.reserve(p_.instrs.size());
  const auto take = [&](Items& items) {
    for (Item& item : items)
      out.push_back(std::move(item.moved == kNone ? item.made : p_.instrs[item.moved]));
  };
  for (InstrId k : p_.instrs.ids()) {
    take(before_[k]);
    if (!removed_[k]) out.push_back(std::move(p_.instrs[k]));
    take(after_[k]);
  }
  p_.instrs = std::move(out);
}

}  // namespace tandem::compiler
