// SPDX-License-Identifier: Apache-2.0
// Waits for work that has been started come as late as they can: each after all that needs no more
// than the waits before it. So a training step on several ranks updates what has come while the
// gradients of its last bucket are still exchanged, and a rank that is early has something to do.
// Rows with effects keep their order among themselves, and what starts ahead (start_ahead.cpp)
// stays after the waits that it has been put after.
#include <algorithm>
#include <numeric>

#include "tandem/compile/passes/passes.h"

namespace tandem::compiler {
namespace {

bool waits(const Instr& i) { return i.op && i.op->has(kWaits); }

bool starts_ahead(const Instr& i) { return i.op && i.op->has(kStartsAhead); }

// How many of the waits each instruction needs, a wait itself included.
std::vector<int> waits_needed(const Program& p) {
  PerValue<int> of_value(p.values.size(), 0);
  std::vector<int> needed;
  int last_wait = 0, last_effect = 0;
  for (const Instr& i : p.instrs) {
    int n = 0;
    for (const Arg& a : i.in)
      if (a.value != kNone) n = std::max(n, of_value[a.value]);
    if (waits(i))
      n = last_wait = std::max(n, last_wait + 1);
    else if (has_effect(i))
      n = last_effect = std::max({n, last_effect, starts_ahead(i) ? last_wait : 0});
    for (const ValueId v : i.out)
      if (v != kNone) of_value[v] = n;
    needed.push_back(n);
  }
  return needed;
}

}  // namespace

void delay_waits(Program& p) {
  if (std::none_of(p.instrs.begin(), p.instrs.end(), waits)) return;
  const std::vector<int> needed = waits_needed(p);
  std::vector<size_t> order(p.instrs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return needed[a] < needed[b]; });
  PerInstr<Instr> now;
  now.reserve(p.instrs.size());
  for (const size_t k : order) now.push_back(std::move(p.instrs[InstrId(k)]));
  p.instrs = std::move(now);
}

}  // namespace tandem::compiler
