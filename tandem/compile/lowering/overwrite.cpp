// SPDX-License-Identifier: Apache-2.0
// Results that are written over an operand: in the arena where it is read for the last time, and
// in cells where nobody reads the old value later.
#include "tandem/compile/lowering/stages.h"
#include "tandem/graph/apply_internal.h"

namespace tandem::compiler {
namespace {

// Does the step read element e of input `x` only to make element e of `y`?
bool aligned(const Lowered& l, const Step& s, int x, int y) {
  const Place &a = l.places[x], &b = l.places[y];
  if (s.op && s.op->family != Family::pointwise &&
      !(s.op->has(kReuseFirst) && s.out[0] == y && s.in[0].place == x))
    return false;
  if (!(a.shape == b.shape) || a.dtype != b.dtype) return false;
  return same_strides(a.shape, a.strides, b.strides) && is_dense(a.shape, a.strides);
}

// How often step s reads those bytes.
int reads(const Lowered& l, const Step& s, int buffer) {
  int n = 0;
  for (const StepInput& x : s.in)
    n += x.place != kNone && root_buffer(l, l.places[x.place].buffer) == buffer;
  return n;
}

// Output place `o` of step k takes over the bytes of an operand, if one is free for it.
void reuse(Lowered& l, size_t k, int o) {
  const Step& s = l.steps[k];
  Block& to = l.buffers[l.places[o].buffer];
  const int first = static_cast<int>(k) - (s.inside ? 1 : 0);
  if (to.base != Base::arena || to.first != first || to.same_as != kNone) return;
  for (const StepInput& x : s.in) {
    if (x.place == kNone || l.places[x.place].offset != 0) continue;
    const int from = root_buffer(l, l.places[x.place].buffer);
    Block& b = l.buffers[from];
    if (b.base != Base::arena || b.bytes != to.bytes || b.last != static_cast<int>(k) ||
        !aligned(l, s, x.place, o) || reads(l, s, from) > 1)
      continue;
    if (s.inside && reads(l, l.steps[k - 1], from) > 0) continue;
    to.same_as = from;
    b.last = to.last;
    return;
  }
}

}  // namespace

int root_buffer(const Lowered& l, int buffer) {
  while (l.buffers[buffer].same_as != kNone) buffer = l.buffers[buffer].same_as;
  return buffer;
}

void reuse_buffers(Lowered& l) {
  for (size_t k = 0; k < l.steps.size(); ++k)
    for (int o : l.steps[k].out)
      if (o != kNone) reuse(l, k, o);
}

void find_in_place_cells(Lowered& l) {
  const size_t n = l.cell_exits.size();
  l.cell_in_place.assign(n, 0);
  std::vector<int> write(n, kNone);  // the step that first writes the new value
  for (size_t i = 0; i < n; ++i) {
    if (l.cell_exits[i] == kNone) continue;
    l.cell_in_place[i] = 1;
    write[i] = l.buffers[l.places[l.cell_exits[i]].buffer].first;
  }
  for (size_t k = 0; k < l.steps.size(); ++k) {
    const int at = static_cast<int>(k) - (l.steps[k].inside ? 1 : 0);
    for (const StepInput& x : l.steps[k].in) {
      if (x.place == kNone) continue;
      const Block& b = l.buffers[l.places[x.place].buffer];
      if (b.base != Base::cell || write[b.index] == kNone || static_cast<int>(k) < write[b.index])
        continue;
      if (at != write[b.index] || !aligned(l, l.steps[k], x.place, l.cell_exits[b.index]))
        l.cell_in_place[b.index] = 0;
    }
  }
}

}  // namespace tandem::compiler
