// SPDX-License-Identifier: Apache-2.0
// Rows of the op table as C: an emitter writes the body of a function for one call, whose operands
// are the parameters x0, x1, ... and whose results are y0, y1, ... A row with an expression, a
// reduction, or a reference that only moves elements needs no emitter of its own.
#pragma once

#include "tandem/edge/text_internal.h"
#include "tandem/graph/op_def.h"

namespace tandem::edge {

/// The body of one function.
struct Body {
  Lines text;
  /// Indices may be out of range: the body then sets `int bad`, which the function returns.
  bool reports = false;
};

using Emitter = void (*)(const KernelCall&, Body&);

/// The emitter that writes this call, or nullptr. Its operands may be described only (no bytes).
Emitter find_emitter(const KernelCall& call);
/// Is there one for the row, so that a composite need not be replaced by its body?
bool has_emitter_of_its_own(const OpDef& op);

/// A pointwise instruction or a fused loop.
void emit_loop(const ScalarProgram& program, const KernelCall& call, Body& to);

// One file each.
void emit_reduction(const KernelCall& c, Body& to);
void emit_scan(const KernelCall& c, Body& to);
void emit_moves(const KernelCall& c, Body& to);
void emit_matmul(const KernelCall& c, Body& to);
void emit_linear(const KernelCall& c, Body& to);
void emit_conv(const KernelCall& c, Body& to);
void emit_transposed(const KernelCall& c, Body& to);
void emit_max_pool(const KernelCall& c, Body& to);
void emit_avg_pool(const KernelCall& c, Body& to);
void emit_index(const KernelCall& c, Body& to);
void emit_lstm_cell(const KernelCall& c, Body& to);
void emit_conv_integer(const KernelCall& c, Body& to);
void emit_matmul_integer(const KernelCall& c, Body& to);

/// The zero point that is operand k, of the column at `column` where it has one for each; "" where
/// there is none.
std::string zero_point(const KernelCall& c, int k, const std::string& column);

}  // namespace tandem::edge
