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
void emit_conv(const KernelCall& c, Body& to);
void emit_transposed(const KernelCall& c, Body& to);
void emit_max_pool(const KernelCall& c, Body& to);
void emit_avg_pool(const KernelCall& c, Body& to);
void emit_index(const KernelCall& c, Body& to);
void emit_lstm_cell(const KernelCall& c, Body& to);
void emit_interpolate(const KernelCall& c, Body& to);
void emit_fft(const KernelCall& c, Body& to);
/// Whether a line and its transform fit the stack.
bool takes_fft(const KernelCall& c);

/// A loop over the sums of a product that runs where a sum is made: its operand `sums` is that sum,
/// the others are numbers or differ from column to column alone.
struct SumLoop {
  const ScalarProgram& program;
  const KernelCall& call;  ///< operand k is the parameter x<kFirstOfLoop + k>, the result y0
  int sums;
};
inline constexpr int kFirstOfLoop = 4;  ///< the products have up to four operands
/// A product of codes, a matmul or a linear layer; its sums are the result where there is no loop.
using ProductEmitter = void (*)(const KernelCall&, const SumLoop*, Body&);
/// nullptr for other rows.
ProductEmitter find_product_emitter(const OpDef& op);
void emit_conv_integer(const KernelCall& c, const SumLoop* then, Body& to);
void emit_matmul_integer(const KernelCall& c, const SumLoop* then, Body& to);
void emit_linear(const KernelCall& c, const SumLoop* then, Body& to);
void emit_matmul(const KernelCall& c, const SumLoop* then, Body& to);
/// The dimension of the result that columns lie along.
inline int column_dimension(const OpDef& product, int rank) {
  return find_product_emitter(product) == emit_conv_integer ? 1 : rank - 1;
}
/// Writes the loop for the sum `sum` of column `column` and gives the name of its result.
std::string write_sum_loop(const SumLoop& then, const std::string& sum, const std::string& column,
                           int dimension, Lines& to);

/// Functions that a body may call (rows/functions.cpp): dot products of up to four rows of weights
/// with two columns of 16-bit taps, or with codes (`x, w, n, rows, sums`); the sums of all taps at
/// the places of a plane (`x, w, shape, places, sums`); dot products of floats (`x, w, n`), the
/// pieces of convolutions of floats, and Fourier transforms (`x, scratch, roots, n`).
inline constexpr const char *kDotsOfTaps = "tdm_dots_i16", *kPlaneOfTaps = "tdm_plane_i16",
                            *kDotsOfBytes = "tdm_dots_u8", *kDotsOfSigned = "tdm_dots_i8",
                            *kDotOfFloats = "tdm_dot_f32", *kDotOfDoubles = "tdm_dot_f64",
                            *kConvBlock = "tdm_conv_block", *kGatherTaps = "tdm_gather_taps",
                            *kFftOfFloats = "tdm_fft_f32", *kFftOfDoubles = "tdm_fft_f64";
/// The dot product of elements of this type.
const char* dot_of(DType t);
/// Opens a loop over four rows of weights at a time, from `first` on, with `sums` for them. The
/// result is how many rows there are, as text.
std::string open_rows_of_weights(int64_t rows, Lines& t);
/// The text of those that `text` calls.
std::string functions_for(const std::string& text);

/// The zero point that is operand k, of the column at `column` where it has one for each; "" where
/// there is none.
std::string zero_point(const KernelCall& c, int k, const std::string& column);

}  // namespace tandem::edge
