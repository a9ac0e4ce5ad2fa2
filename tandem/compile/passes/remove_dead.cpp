// SPDX-License-Identifier: Apache-2.0
// Dead code: walks backwards from the results; instructions with an effect stay.
#include "tandem/compile/passes/passes.h"

namespace tandem::compiler {

void remove_dead(Program& p) {
  PerValue<char> live(p.values.size());
  for (ValueId v : p.results()) live[v] = 1;
  PerInstr<char> keep(p.instrs.size());
  for (InstrId k : p.instrs.backwards()) {
    const Instr& i = p.instrs[k];
    bool needed = has_effect(i);
    for (ValueId v : i.out) needed = needed || (v != kNone && live[v]);
    if (!needed) continue;
    keep[k] = 1;
    for (const Arg& a : i.in)
      if (a.value != kNone) live[a.value] = 1;
  }
  PerInstr<Instr> kept;
  kept.reserve(p.instrs.size());
  for (InstrId k : p.instrs.ids())
    if (keep[k]) kept.push_back(std::move(p.instrs[k]));
  p.instrs = std::move(kept);
  // Entries that nothing reads are neither bound nor guarded.
  for (Program::CellUse& u : p.cells)
    if (u.entry != kNone && !live[u.entry]) u.entry = kNone;
  for (Program::GradUse& u : p.grads)
    if (u.entry != kNone && !live[u.entry]) u.entry = kNone;
}

}  // namespace tandem::compiler
