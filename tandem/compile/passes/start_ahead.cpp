// SPDX-License-Identifier: Apache-2.0
// Work on values of cells that a program waits for one after the other, as on parameters that a
// step on several ranks gathers, starts one wait ahead: right after the wait for the one before it.
// So each runs while the program computes with what came before, and two are in memory at a time.
#include "tandem/compile/passes/edits.h"
#include "tandem/compile/passes/passes.h"
#include "tandem/compile/program/use_def.h"

namespace tandem::compiler {

void start_ahead(Program& p) {
  const UseDef uses(p);
  Edits edits(p);
  InstrId wait_before;  // for what was started last
  bool any = false;
  for (const InstrId k : p.instrs.ids()) {
    const Instr& i = p.instrs[k];
    if (!i.op || !i.op->has(kStartsAhead)) continue;
    bool there = wait_before != kNone && wait_before < k;
    for (const Arg& a : i.in)
      if (const InstrId maker = uses.maker(a.value); maker != kNone) there &= maker < wait_before;
    if (there) edits.move_after(wait_before, k);
    any |= there;
    wait_before = kNone;
    for (const InstrId reader : uses.readers(i.out[0]))
      if (p.instrs[reader].op && p.instrs[reader].op->has(kWaits)) wait_before = reader;
  }
  if (any) edits.apply();
}

}  // namespace tandem::compiler
