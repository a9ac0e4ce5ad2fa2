// SPDX-License-Identifier: Apache-2.0
// What leaves a program: outputs, new values of cells, gradients. Each gets a buffer of its own,
// by a copy where its bytes belong to somebody else.
#include "tandem/compile/lowering/stages.h"

namespace tandem::compiler {

void Results::early_copies() {
  const auto base_of = [&](ValueId v) {
    const int k = at_.place_of[v];
    return k == kNone ? Base::arena : at_.buffer_of(k).base;
  };
  for (ValueId v : at_.program.results())
    if (base_of(v) != Base::arena && !early_.count(v))
      early_[v] = copy_place(at_, at_.place_of[v], nullptr);
}

// The place that leaves the program for value v: a buffer of its own, row-major where `whole`.
int Results::claim(ValueId v, Base base, int index, bool whole) {
  int k = at_.place_of[v];
  if (auto copy = early_.find(v);
      copy != early_.end() && !claimed_.count(at_.place(copy->second).buffer))
    k = copy->second;
  const Block& b = at_.buffer_of(k);
  bool own = b.base == Base::arena && !claimed_.count(at_.place(k).buffer);
  if (whole)
    own = own && at_.place(k).contiguous && at_.place(k).offset == 0 &&
          b.bytes == bytes_of(at_.spec(v));
  if (!own) k = copy_place(at_, k, nullptr);
  claimed_.insert(at_.place(k).buffer);
  at_.buffer_of(k).base = base;
  at_.buffer_of(k).index = index;
  return k;
}

void Results::bind() {
  const Program& p = at_.program;
  Lowered& l = at_.l;
  l.cell_exits.assign(p.cells.size(), kNone);
  l.grad_exits.assign(p.grads.size(), kNone);
  for (size_t i = 0; i < p.cells.size(); ++i)
    if (p.cells[i].exit != kNone)
      l.cell_exits[i] = claim(p.cells[i].exit, Base::cell_new, static_cast<int>(i), true);
  for (size_t i = 0; i < p.outputs.size(); ++i)
    l.outputs.push_back(claim(p.outputs[i], Base::output, static_cast<int>(i), at_.text));
  for (size_t i = 0; i < p.grads.size(); ++i)
    if (p.grads[i].exit != kNone)
      l.grad_exits[i] = claim(p.grads[i].exit, Base::grad_new, static_cast<int>(i), true);
}

}  // namespace tandem::compiler
