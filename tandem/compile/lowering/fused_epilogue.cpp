// SPDX-License-Identifier: Apache-2.0
// Fused epilogues: a loop that reads the result of the step before it runs on each block of that
// result, as soon as the block is made.
#include <algorithm>

#include "tandem/compile/lowering/requantise.h"
#include "tandem/compile/lowering/stages.h"
#include "tandem/graph/apply_internal.h"
#include "tandem/graph/epilogue.h"

namespace tandem::compiler {
namespace {

const Place& place(const Lowered& l, int k) { return l.places[static_cast<size_t>(k)]; }

// Is every operand of the loop a matrix of the rows and columns of place v, or a part of one?
bool are_matrices(const Lowered& l, const Step& loop, int v) {
  const Shape& whole = place(l, v).shape;
  const int64_t columns = whole[whole.rank() - 1].value(), n = whole.numel().value();
  int64_t row, column;
  for (const StepInput& x : loop.in)
    if (x.place != kNone && !as_matrix(array_of_place(l, x.place),
                                       n / std::max<int64_t>(columns, 1), columns, row, column))
      return false;
  for (int o : loop.out)
    if (place(l, o).shape.numel().value() != n || !place(l, o).contiguous) return false;
  return true;
}

// Does everything of more than one element lie in memory as the dense place v does?
bool lies_alike(const Lowered& l, const Step& loop, int v) {
  const Place& whole = place(l, v);
  const auto alike = [&](int k) {
    const Place& q = place(l, k);
    return q.shape == whole.shape && same_strides(q.shape, q.strides, whole.strides);
  };
  if (!is_dense(whole.shape, whole.strides)) return false;
  for (const StepInput& x : loop.in)
    if (x.place != kNone && place(l, x.place).shape.numel().value() != 1 && !alike(x.place))
      return false;
  return std::all_of(loop.out.begin(), loop.out.end(), alike);
}

}  // namespace

void fuse_epilogue(Lowered& l) {
  if (l.steps.size() < 2) return;
  Step &loop = l.steps.back(), &maker = l.steps[l.steps.size() - 2];
  if (loop.op || !maker.kernel || !maker.plan || maker.inside || maker.on_host) return;
  const int v = maker.out[0];
  const auto reads_it = [&](const StepInput& x) { return x.place == v; };
  if (std::none_of(loop.in.begin(), loop.in.end(), reads_it) || place(l, v).shape.rank() < 2)
    return;
  Arrays a = arrays_of(l, maker);
  const EpilogueKind kind = epilogue_kind(*maker.kernel, call_of(l, maker, a));
  const bool ranges = kind == EpilogueKind::ranges;
  if (kind == EpilogueKind::none || (ranges ? !lies_alike(l, loop, v) : !are_matrices(l, loop, v)))
    return;
  for (int o : loop.out) {
    // The step before reads its operands until the last block is done.
    for (const StepInput& x : maker.in)
      if (x.place != kNone && place(l, x.place).buffer == place(l, o).buffer) return;
  }
  loop.inside = true;
  loop.ranges = ranges;
  if (const auto form = ranges ? std::nullopt : RequantiseForm::of(*loop.program))
    loop.codes = std::make_shared<const RequantiseForm>(*form);
}

bool has_epilogue(const Lowered& l, size_t k) {
  return k + 1 < l.steps.size() && l.steps[k + 1].inside;
}

bool as_matrix(const Array& a, int64_t rows, int64_t columns, int64_t& row, int64_t& column) {
  row = column = 0;
  if (a.is_scalar || a.numel == 1) return true;
  if (!a.contiguous) return false;
  if (a.numel == rows * columns) {
    row = columns;
    column = 1;
    return a.rank > 0 && a.shape[a.rank - 1] == columns;
  }
  if (a.numel == columns && a.shape[a.rank - 1] == columns) {
    column = 1;
    return true;
  }
  if (a.numel == rows && a.shape[a.rank - 1] == 1) {
    row = 1;
    return true;
  }
  return false;
}

}  // namespace tandem::compiler
