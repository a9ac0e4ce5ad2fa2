// SPDX-License-Identifier: Apache-2.0
// Shared by the parts of the dispatcher: one call in flight, recording it, running its kernel.
#pragma once

#include "tandem/graph/apply.h"
#include "tandem/graph/run/kernel_choice.h"

namespace tandem {

struct CellUpdate;

/// Extends SlowFlags: ops run as in eager, while cells and gradients are shadowed by the running
/// trace (Control::eager, op by op).
inline constexpr uint32_t kShadowed = 128;

/// One immediate update, through the running trace if there is one.
void update_one(CellUpdate& u, SourceLocation loc);

struct Call {
  const OpDef& op;
  const void* op_attrs;
  SourceLocation loc;
  Context& context;
  const ApplyOptions& options;
  InferCall infer;
  SmallVec<Tensor, 4> tensors;  ///< undefined where absent or a number
  SmallVec<Scalar, 4> scalars;
  Tensor out[kMaxOpOuts];
  KernelChoice choice;
  RngKey rng;
  bool inferred = false, record = false, hidden = false;
  Device device{};   ///< where it runs; set by infer
  bool dry = false;  ///< outputs have no bytes and the kernel is skipped

  Call(const OpDef& op, const void* attrs, SourceLocation loc, Context& context,
       const ApplyOptions& options)
      : op(op), op_attrs(attrs), loc(loc), context(context), options(options), infer(op, attrs) {}
};

/// Create the tape node of an eager call and connect its outputs; hidden ones are dropped unless
/// the caller requested them.
void record_tape(const OpDef& op, const void* attrs, std::span<const Tensor> in,
                 std::span<const Scalar> scalars, std::span<const uint8_t> present, Tensor* out,
                 SourceLocation loc, RngKey rng, bool show_hidden = false);
/// Which inputs (low half) and outputs (high half) the derivative reads; cached in the row.
uint64_t saves_of(const OpDef& op);
/// Append the call to the running trace; fills `out` with symbolic values.
void record_trace(Call& k, Tensor* out);
/// Under a DeferredInitGuard: fill `out` with values that are computed later; false where it runs
/// now, and its inputs are there by then.
bool defer(Call& k, Tensor* out);
/// Run what was chosen, with its plan and scratch; what the host does for another device between
/// copies.
void run_with(const KernelChoice& choice, KernelCall& call);
/// What a dry run does instead: the ledger counts the scratch that the kernel's plan asks for.
void plan_dry(const Kernel* kernel, KernelCall& call);
/// Every element has its own place and together they fill one block.
bool is_dense(const Tensor& t);
bool is_dense(const Shape& shape, const Strides& strides);
/// The plan of such a call from the table shared by all callers.
std::shared_ptr<const Plan> plan_of(const Kernel& kernel, const KernelCall& call);
/// "NaN", "infinity" or nullptr.
const char* first_non_finite(const Tensor& t);

}  // namespace tandem
