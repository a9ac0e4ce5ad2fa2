// SPDX-License-Identifier: Apache-2.0
// Regions: neighbouring loops over whole row-major values that touch different bytes are divided
// among the threads together, so that many small updates cost one region.
#include <algorithm>

#include "tandem/compile/lowering/stages.h"

namespace tandem::compiler {
namespace {

bool flat(const Lowered& l, const Step& s) {
  if (s.op || s.inside || !is_host(l.device)) return false;
  const int64_t n = l.places[s.out[0]].shape.numel().value();
  for (int o : s.out)
    if (!l.places[o].contiguous || l.places[o].shape.numel().value() != n) return false;
  for (const StepInput& x : s.in) {
    if (x.place == kNone) continue;
    const Place& q = l.places[x.place];
    const int64_t m = q.shape.numel().value();
    if (m != 1 && (m != n || !q.contiguous)) return false;
  }
  return true;
}

bool same_bytes(const Lowered& l, int a, int b) {
  const int x = root_buffer(l, a), y = root_buffer(l, b);
  if (x == y) return true;
  const auto is_cell = [&](int k) {
    const Base base = l.buffers[k].base;
    return base == Base::cell || base == Base::cell_new;
  };
  return is_cell(x) && is_cell(y) && l.buffers[x].index == l.buffers[y].index;
}

// Does one of the two steps write bytes that the other touches?
bool meet(const Lowered& l, const Step& a, const Step& b) {
  const auto touches = [&](const Step& s, int buffer) {
    for (const StepInput& x : s.in)
      if (x.place != kNone && same_bytes(l, l.places[x.place].buffer, buffer)) return true;
    for (int o : s.out)
      if (o != kNone && same_bytes(l, l.places[o].buffer, buffer)) return true;
    return false;
  };
  for (int o : a.out)
    if (o != kNone && touches(b, l.places[o].buffer)) return true;
  for (int o : b.out)
    if (o != kNone && touches(a, l.places[o].buffer)) return true;
  return false;
}

// The end of the region that begins at step k.
size_t region_end(const Lowered& l, size_t k) {
  size_t end = k + 1;
  if (!flat(l, l.steps[k])) return end;
  for (; end < l.steps.size() && flat(l, l.steps[end]); ++end)
    for (size_t j = k; j < end; ++j)
      if (meet(l, l.steps[j], l.steps[end])) return end;
  return end;
}

}  // namespace

void group_loops(Lowered& l) {
  for (size_t k = 0, end = 0; k < l.steps.size(); k = end) {
    end = region_end(l, k);
    if (end == k + 1) continue;
    l.steps[k].together = static_cast<int>(end - k);
    // Their buffers live as long as the whole region: parts run in any order.
    const auto extend = [&](int place) {
      Block& b = l.buffers[root_buffer(l, l.places[place].buffer)];
      b.first = std::min(b.first, static_cast<int>(k));
      b.last = std::max(b.last, static_cast<int>(end) - 1);
    };
    for (size_t j = k; j < end; ++j) {
      for (const StepInput& x : l.steps[j].in)
        if (x.place != kNone) extend(x.place);
      for (int o : l.steps[j].out) extend(o);
    }
  }
}

}  // namespace tandem::compiler
