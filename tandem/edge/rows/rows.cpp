// SPDX-License-Identifier: Apache-2.0
// Which emitter writes a call: by row, else by what the row's columns say about it.
#include "tandem/edge/rows_internal.h"
#include "tandem/ops/conv/conv.h"
#include "tandem/ops/conv/pool.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/linalg/fft.h"
#include "tandem/ops/matmul/integer.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/nn/rnn.h"
#include "tandem/ops/vision/resample.h"

namespace tandem::edge {
namespace {

struct EmittedRow {
  const OpDef* op;
  Emitter emit;
  bool floats = true;  ///< takes operands of one floating type of 32 or 64 bits
  bool (*takes)(const KernelCall&) = nullptr;  ///< and those that this says
};

void emit_sums(const KernelCall& c, Body& to) { find_product_emitter(c.op)(c, nullptr, to); }

constexpr EmittedRow kEmittedRows[] = {
    {&op::matmul, emit_sums},
    {&op::linear, emit_sums},
    {&op::conv, emit_conv},
    {&op::conv_backward_input, emit_transposed},
    {&op::max_pool, emit_max_pool, false},
    {&op::max_pool_with_indices, emit_max_pool, false},
    {&op::avg_pool, emit_avg_pool},
    {&op::index, emit_index, false},
    {&op::lstm_cell, emit_lstm_cell},
    {&op::interpolate, emit_interpolate},
    {&op::fft, emit_fft, true, takes_fft},
    {&op::rfft, emit_fft, true, takes_fft},
    {&op::irfft, emit_fft, true, takes_fft},
    {&op::conv_integer, emit_sums, false},
    {&op::matmul_integer, emit_sums, false},
};

const EmittedRow* row_of(const OpDef& op) {
  for (const EmittedRow& r : kEmittedRows)
    if (r.op == &op) return &r;
  return nullptr;
}

bool takes_floats(const KernelCall& c) {
  const DType t = c.in[0].dtype;
  if (!is_floating(t) || is_short_float(t)) return false;
  for (int k = 0; k < c.n_in; ++k)
    if (c.in[k].present() && c.in[k].dtype != t) return false;
  return true;
}

}  // namespace

ProductEmitter find_product_emitter(const OpDef& op) {
  return &op == &op::conv_integer     ? emit_conv_integer
         : &op == &op::matmul_integer ? emit_matmul_integer
         : &op == &op::linear         ? emit_linear
         : &op == &op::matmul         ? emit_matmul
                                      : nullptr;
}

bool has_emitter_of_its_own(const OpDef& op) { return row_of(op) != nullptr; }

Emitter find_emitter(const KernelCall& c) {
  if (const EmittedRow* row = row_of(c.op)) {
    const bool takes =
        row->floats ? takes_floats(c) : c.n_in == 0 || !is_short_float(c.in[0].dtype);
    return takes && (!row->takes || row->takes(c)) ? row->emit : nullptr;
  }
  if (c.op.reduce_expr && c.op.family == Family::reduce) return emit_reduction;
  if (c.op.reduce_expr && c.op.family == Family::scan) return emit_scan;
  const bool adds = &c.op == &op::region_put && c.get_attrs<RegionAttrs>().accumulate;
  return c.op.has(kMoved) && !adds ? emit_moves : nullptr;
}

}  // namespace tandem::edge
