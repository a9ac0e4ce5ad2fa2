// SPDX-License-Identifier: Apache-2.0
// Dead code: walks backwards from the results; instructions with an effect stay.
#include "tandem/compile/passes.h"

namespace tandem::compiler {

void remove_dead(Program& p) {
  std::vector<char> live(p.values.size());
  for (int v : p.results()) live[static_cast<size_t>(v)] = 1;
  std::vector<char> keep(p.instrs.size());
  for (size_t k = p.instrs.size(); k-- > 0;) {
    Instr& i = p.instrs[k];
    bool needed = has_effect(i);
    for (int v : i.out) needed = needed || (v != kNone && live[static_cast<size_t>(v)]);
    if (!needed) continue;
    keep[k] = 1;
    for (const Arg& a : i.in)
      if (a.value != kNone) live[static_cast<size_t>(a.value)] = 1;
  }
  std::vector<Instr> kept;
  kept.reserve(p.instrs.size());
  for (size_t k = 0; k < p.instrs.size(); ++k)
    if (keep[k]) kept.push_back(std::move(p.instrs[k]));
  p.instrs = std::move(kept);
  // Entries that nothing reads are neither bound nor guarded.
  for (Program::CellUse& u : p.cells)
    if (u.entry != kNone && !live[static_cast<size_t>(u.entry)]) u.entry = kNone;
  for (Program::GradUse& u : p.grads)
    if (u.entry != kNone && !live[static_cast<size_t>(u.entry)]) u.entry = kNone;
}

}  // namespace tandem::compiler
