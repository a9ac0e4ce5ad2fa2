// SPDX-License-Identifier: Apache-2.0
// The passes over a Program; one file each, their order is the table in passes.cpp. A pass leaves a
// Program that verify() accepts. docs/adding-a-pass.md shows how to write one.
#pragma once

#include "tandem/compile/program/program.h"
#include "tandem/graph/epilogue.h"
#include "tandem/graph/run/kernel_choice.h"
#include "tandem/ops/conv/conv.h"

namespace tandem::compiler {

/// Convolutions and matmuls of dequantised codes multiply the codes.
void integer_products(Program& p);
/// Composites that no kernel claims become the instructions of their bodies.
void expand_composites(Program& p);
/// The same for composites that `whole` does not keep.
void expand_composites(Program& p, FunctionRef<bool(const Instr&)> whole);
/// Rows whose kernel computes on f32 copies of 16-bit operands become rows of f32 between casts.
void widen_operands(Program& p);
/// Identities, casts to the same dtype and back, views to the same shape, sums over nothing and
/// paddings by nothing are eliminated.
void canonicalize(Program& p);
/// What depends on constants alone is computed now; for text, arange and the like, too.
void fold_constants(Program& p);
void fold_constants_for_text(Program& p);
/// Ratios by a number that are rounded to integers become products.
void round_ratios(Program& p);
/// Constants of one element beside tensors become numbers.
void number_operands(Program& p);
/// Matmuls and convolutions of programs without gradients, whose weight does not change from call
/// to call, read it packed; convolutions work channels-last.
void pack_weights(Program& p);
/// Whether Winograd's tiles of `out` x `out` outputs pay for a 3x3 convolution of stride 1 with the
/// result y [n, c, h, w]: enough tiles and channels, and few outputs of the last tiles are waste.
bool transformed_tiles_pay(const Shape& y, int64_t channels, int64_t out);
/// The same for matmuls and convolutions of 8-bit integers.
void pack_integers(Program& p);
/// Whether pack_integers() has a form for a convolution of codes x [n, c, h, w] with groups, whose
/// weight w and its zero point stay.
bool takes_depthwise_codes(const Program& p, const ConvAttrs& a, const Shape& x, const Shape& w);
/// Integers that are added to each column of their sums go into them.
void take_integer_biases(Program& p);
/// What stands between packed convolutions works channels-last too.
void channels_last(Program& p);
/// Bias, residual, numbers that multiply or shift, and activation after a packed matmul or
/// convolution go into it.
void take_epilogues(Program& p);
/// Packed matmuls of one tensor become one where only views and attention read them.
void fuse_matmuls(Program& p);
/// What follows from weights alone is computed outside of the calls, once for all programs.
void derive_values(Program& p);
/// Matmuls around a softmax become the row attention, in programs without gradients.
void fuse_attention(Program& p);
/// Batch norms with given statistics go into the convolutions before them.
void fold_norms(Program& p);
/// Sums of slices' gradients that tile a tensor become concatenations.
void concatenate_slices(Program& p);
/// Clamps (relu) come after max pooling, not before it.
void order_pooling(Program& p);
/// Equal instructions without effect are computed once.
void merge_common(Program& p);
/// What no result needs is dropped.
void remove_dead(Program& p);
/// Gradients of costly functions get their derivatives from the forward function.
void store_derivatives(Program& p);
/// Casts beside kernels that convert go into them.
void absorb_casts(Program& p);
/// Pointwise instructions over one space become fused loops.
void fuse_loops(Program& p);
/// Work on values of cells starts one wait ahead.
void start_ahead(Program& p);
/// What does not need the result of a row that waits for started work comes before that row.
void delay_waits(Program& p);

/// Loops over the result of a matmul, a convolution or a norm come right after it, so that they run
/// on its blocks.
void place_epilogues(Program& p);

/// How the program's device runs this call with row-major operands; how does its kernel run an
/// epilogue?
KernelChoice row_major_kernel(const Program& p, const Instr& i, EpilogueKind& epilogue);

/// The parts of the pipeline, in order. A caller may run some of them and the others later.
enum class Stage : uint8_t {
  expand,    ///< from composites to rows with kernels
  simplify,  ///< fewer and larger instructions, still rows of ops
  weights,   ///< what programs without gradients gain from weights that stay
  fuse       ///< loops and epilogues: instructions that are not a row of an op
};

/// One pass of the pipeline.
struct PassInfo {
  const char* name;
  Stage stage;
  void (*run)(Program&);
  bool rare = false;    ///< dumps show it only where it changed something
  bool rounds = false;  ///< results may round differently: not where Program::same_bits
};
/// All passes in order.
std::span<const PassInfo> all_passes();

/// The first and the last stage to run.
struct Stages {
  Stage first = Stage::expand, last = Stage::fuse;
};
/// Run the passes of these stages, verifying after each. `seen`, if given, is called after each.
void run_passes(Program& p, Stages stages = {},
                FunctionRef<void(const char* name, const Program&)>* seen = nullptr);

}  // namespace tandem::compiler
