// SPDX-License-Identifier: Apache-2.0
// The order of the stages of lowering.
#include "tandem/compile/lowering/lower.h"

#include <algorithm>

#include "tandem/compile/lowering/stages.h"

namespace tandem::compiler {

Lowered lower_program(const Program& p) {
  Lowering at(p);
  Results results(at);
  at.bind_placeholders();
  results.early_copies();
  for (const Instr& i : p.instrs) {
    lower_instr(at, i);
    fuse_epilogue(at.l);
  }
  results.bind();
  find_lifetimes(at.l);
  reuse_buffers(at.l);
  find_in_place_cells(at.l);
  group_loops(at.l);
  plan_memory(at.l);
  return std::move(at.l);
}

std::vector<const Block*> alive_at_peak(const Lowered& l) {
  std::vector<const Block*> alive;
  for (const Block& b : l.buffers)
    if (b.base == Base::arena && b.same_as == kNone && b.first != kNone && b.first <= l.peak_step &&
        b.last >= l.peak_step)
      alive.push_back(&b);
  std::sort(alive.begin(), alive.end(),
            [](const Block* a, const Block* b) { return a->bytes > b->bytes; });
  return alive;
}

}  // namespace tandem::compiler
