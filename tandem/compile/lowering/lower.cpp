// SPDX-License-Identifier: Apache-2.0
// The order of the stages of lowering.
#include "tandem/compile/lowering/lower.h"

#include <algorithm>

#include "tandem/compile/lowering/stages.h"
#include "tandem/graph/run/kernel_tuning.h"

namespace tandem::compiler {

namespace {
constexpr size_t kAlignOfKernels = 64;   // a cache line
constexpr size_t kAlignOfDevices = 256;  // what their pools give and their libraries expect
constexpr size_t kAlignOfText = 8;       // the largest element
constexpr double kTuningSeconds = 0.05;  // with TANDEM_TUNE=1
}  // namespace

size_t alignment(const Program& p, bool text) {
  if (text) return kAlignOfText;
  return is_host(p.device) ? kAlignOfKernels : kAlignOfDevices;
}

Lowered lower_program(const Program& p, LowerTo to) {
  const bool text = to == LowerTo::text;
  const TuningBudget budget(kTuningSeconds);
  Lowering at(p, text);
  Results results(at);
  at.bind_placeholders();
  results.early_copies();
  for (const Instr& i : p.instrs) {
    lower_instr(at, i);
    if (!text) fuse_epilogue(at.l);
  }
  results.bind();
  find_lifetimes(at.l);
  reuse_buffers(at.l);
  find_in_place_cells(at.l);
  if (!text) group_loops(at.l);
  plan_memory(at.l, alignment(p, text));
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
