// SPDX-License-Identifier: Apache-2.0
// Lifetimes: the first and the last step that touch a buffer.
#include <algorithm>

#include "tandem/compile/lowering/stages.h"

namespace tandem::compiler {

void find_lifetimes(Lowered& l) {
  const auto touch = [&](int buffer, int step) {
    Block& b = l.buffers[static_cast<size_t>(buffer)];
    if (b.first == kNone || b.first > step) b.first = step;
    b.last = std::max(b.last, step);
  };
  for (size_t k = 0; k < l.steps.size(); ++k) {
    const Step& s = l.steps[k];
    const int at = static_cast<int>(k);
    // A step and its epilogue are one: all that they use is alive in both.
    const int from = s.inside ? at - 1 : at, to = has_epilogue(l, k) ? at + 1 : at;
    const auto both = [&](int buffer) {
      touch(buffer, from);
      touch(buffer, to);
    };
    for (const StepInput& x : s.in)
      if (x.place != kNone) both(l.places[static_cast<size_t>(x.place)].buffer);
    for (int o : s.out)
      if (o != kNone) both(l.places[static_cast<size_t>(o)].buffer);
    if (s.scratch != kNone) both(s.scratch);
  }
  for (size_t k = 0; k + 1 < l.steps.size(); ++k) {
    if (!has_epilogue(l, k)) continue;
    Step& loop = l.steps[k + 1];
    const int made = l.steps[k].out[0], buffer = l.places[static_cast<size_t>(made)].buffer;
    const Block& b = l.buffers[static_cast<size_t>(buffer)];
    loop.alone = b.base == Base::arena && b.last == static_cast<int>(k) + 1;
    for (const StepInput& x : loop.in)
      if (x.place != kNone && x.place != made)
        loop.alone = loop.alone && l.places[static_cast<size_t>(x.place)].buffer != buffer;
  }
}

}  // namespace tandem::compiler
