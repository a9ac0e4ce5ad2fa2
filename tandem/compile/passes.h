// SPDX-License-Identifier: Apache-2.0
// The passes over a Program, in the order in which compile runs them; one file each. A pass asks
// the rows of ops, never a list of names, and leaves a Program that verify() accepts.
#pragma once

#include "tandem/compile/program.h"
#include "tandem/graph/epilogue.h"

namespace tandem::compiler {

/// Composites that no kernel claims become the instructions of their bodies.
void expand_composites(Program& p);
/// Identities, casts to the same dtype, views to the same shape and sums over nothing vanish;
/// a product with one and a sum with zero of the same shape too where the bits are the same.
void canonicalize(Program& p);
/// What depends on constants alone is computed now.
void fold_constants(Program& p);
/// Products and convolutions of programs without gradients, whose weight does not change from call
/// to call, read it packed; convolutions work channels-last.
void pack_weights(Program& p);
/// What stands between packed convolutions works channels-last too.
void channels_last(Program& p);
/// Bias, residual and activation behind a packed product or convolution go into it.
void take_tails(Program& p);
/// Packed products of one tensor become one where only views and attention read them.
void join_products(Program& p);
/// What follows from weights alone is computed outside of the calls, once for all programs.
void derive_values(Program& p);
/// Products around a softmax become the row attention, in programs without gradients.
void fuse_attention(Program& p);
/// Batch norms with given statistics go into the convolutions before them.
void fold_norms(Program& p);
/// Sums of slices' gradients that tile a tensor become concatenations.
void join_slices(Program& p);
/// Clamps (relu) come after max pooling, not before it.
void order_pooling(Program& p);
/// Equal instructions without effect are computed once.
void merge_common(Program& p);
/// What no result needs is dropped.
void remove_dead(Program& p);
/// Gradients of costly functions get their slopes from the forward function.
void store_slopes(Program& p);
/// Pointwise instructions over one space become fused loops.
void fuse_loops(Program& p);

/// Loops over a product's result come right after it, so that they run on its blocks.
void place_epilogues(Program& p);

/// The kernel that takes this call with row-major operands, or nullptr; how does it run an
/// epilogue?
const Kernel* row_major_kernel(const Program& p, const Instr& i, EpilogueKind& epilogue);

/// One step of the pipeline, for dumps.
struct PassInfo {
  const char* name;
  void (*run)(Program&);
  bool rare = false;  ///< dumps show it only where it changed something
};
/// All passes in order.
std::span<const PassInfo> all_passes();
/// Which passes: those before slopes are stored and loops fused keep one instruction per op of the
/// rows.
enum class Passes : uint8_t { all, before_fusion, from_fusion };
/// Run them, verifying after each. `seen`, if given, is called after each pass.
void run_passes(Program& p, FunctionRef<void(const char* name, const Program&)>* seen = nullptr,
                Passes which = Passes::all);

}  // namespace tandem::compiler
