// SPDX-License-Identifier: Apache-2.0
// A loop that alone reads the sums of a product of codes, of a matmul or of a linear layer runs
// where a sum is made: sums of codes, four times their size, need no place in the arena.
#include "tandem/compile/lowering/stages.h"
#include "tandem/edge/program_internal.h"
#include "tandem/edge/rows_internal.h"
#include "tandem/ops/matmul/matmul.h"

namespace tandem::edge {
namespace {

using compiler::Base;
using compiler::Block;
using compiler::kNone;
using compiler::Lowered;
using compiler::Place;
using compiler::Step;
using compiler::StepInput;

const Place& place_at(const Lowered& l, int k) { return l.places[static_cast<size_t>(k)]; }

// Is the buffer read once, and neither a result nor shared with others than what is made of it in
// place?
bool read_once(const Lowered& l, int buffer, bool in_place) {
  const Block& b = l.buffers[static_cast<size_t>(buffer)];
  if (b.base != Base::arena || b.same_as != kNone) return false;
  for (const Block& other : l.buffers)
    if (other.same_as == buffer && !in_place) return false;
  int reads = 0;
  for (const Step& s : l.steps)
    for (const StepInput& x : s.in)
      reads += x.place != kNone && place_at(l, x.place).buffer == buffer;
  return reads == 1;
}

// Does the operand have one element for each column, or one for all?
bool by_columns(const Place& operand, int rank, int dimension) {
  for (int d = 0; d < operand.shape.rank(); ++d)
    if (d + rank - operand.shape.rank() != dimension && operand.shape[d] != Dim(1)) return false;
  return true;
}

// Are the sums of a matmul dot products? Else rows of the result take in rows of the second matrix.
bool has_columns(const Lowered& l, const Step& product) {
  if (product.op != &op::linear && product.op != &op::matmul) return true;
  const Place& w = place_at(l, product.in[1].place);
  return w.contiguous &&
         (product.op == &op::linear ||
          (w.shape.rank() == 2 && static_cast<const MatmulAttrs*>(product.attrs.get())->trans_b));
}

bool fits(const Lowered& l, const Step& product, const Step& loop) {
  if (!product.op || !find_product_emitter(*product.op) || !has_columns(l, product) || loop.op ||
      loop.out.size() != 1 || product.out[0] == kNone || loop.out[0] == kNone)
    return false;
  const Place &sums = place_at(l, product.out[0]), &y = place_at(l, loop.out[0]);
  const int place_of_y = l.buffers[static_cast<size_t>(y.buffer)].same_as;
  const bool in_place = place_of_y == sums.buffer;
  if (!(sums.shape == y.shape) || !sums.contiguous || !y.contiguous || sums.offset != 0 ||
      (place_of_y != kNone && !in_place) || !read_once(l, sums.buffer, in_place))
    return false;
  const int rank = sums.shape.rank();
  bool reads = false;
  for (const StepInput& x : loop.in) {
    if (x.place == kNone) continue;
    const Place& p = place_at(l, x.place);
    if (p.buffer == sums.buffer && p.shape == sums.shape && p.contiguous)
      reads = true;
    else if (!by_columns(p, rank, column_dimension(*product.op, rank)))
      return false;
  }
  return reads;
}

// All that both steps use is alive in both.
void live_together(Lowered& l, size_t k) {
  const auto touch = [&](int place) {
    if (place == kNone) return;
    Block& b = l.buffers[static_cast<size_t>(compiler::root_buffer(l, place_at(l, place).buffer))];
    b.first = std::min(b.first, static_cast<int>(k));
    b.last = std::max(b.last, static_cast<int>(k) + 1);
  };
  for (const size_t step : {k, k + 1}) {
    for (const StepInput& x : l.steps[step].in)
      if (!x.is_number) touch(x.place);
    for (const int o : l.steps[step].out) touch(o);
  }
}

}  // namespace

int operand_of_sums(const Lowered& l, size_t product) {
  const int buffer = place_at(l, l.steps[product].out[0]).buffer;
  const Step& loop = l.steps[product + 1];
  for (size_t k = 0; k < loop.in.size(); ++k)
    if (loop.in[k].place != kNone && place_at(l, loop.in[k].place).buffer == buffer)
      return static_cast<int>(k);
  return kNone;
}

void fuse_sum_loops(Lowered& l, size_t align) {
  bool any = false;
  for (size_t k = 0; k + 1 < l.steps.size(); ++k) {
    if (!fits(l, l.steps[k], l.steps[k + 1])) continue;
    any = l.steps[k + 1].inside = true;
    live_together(l, k);
    const int sums = place_at(l, l.steps[k].out[0]).buffer;
    const int y = place_at(l, l.steps[k + 1].out[0]).buffer;
    if (l.buffers[static_cast<size_t>(y)].same_as != sums)
      l.buffers[static_cast<size_t>(sums)].bytes = 0;
  }
  if (!any) return;
  l.arena_bytes = l.lower_bound = 0;
  compiler::plan_memory(l, align);
}

}  // namespace tandem::edge
