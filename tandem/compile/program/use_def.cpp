// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/program/use_def.h"

namespace tandem::compiler {

UseDef::UseDef(const Program& p)
    : maker_(p.values.size()), first_(p.values.size() + 1), exits_(p.values.size()) {
  for (InstrId k : p.instrs.ids()) {
    for (ValueId v : p.instrs[k].out)
      if (v != kNone) maker_[v] = k;
    for (const Arg& a : p.instrs[k].in)
      if (a.value != kNone) ++first_[ValueId(a.value.index() + 1)];
  }
  uint32_t sum = 0;
  for (uint32_t& first : first_) first = sum += first;
  readers_.resize(sum);
  PerValue<uint32_t> next = first_;
  for (InstrId k : p.instrs.ids())
    for (const Arg& a : p.instrs[k].in)
      if (a.value != kNone) readers_[next[a.value]++] = k;
  for (ValueId v : p.results()) ++exits_[v];
}

}  // namespace tandem::compiler
