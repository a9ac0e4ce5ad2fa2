// SPDX-License-Identifier: Apache-2.0
// Epilogues: what is done with a block of a kernel's result as soon as it is made, while it is in
// the cache. A kernel says by the plans that it makes that it can; compiled steps use it.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem {

/// Called from any thread, once for each element; then the kernel touches the block no more.
/// Blocks: rows and columns of output 0 seen as a matrix (all leading dimensions are rows).
/// Ranges: elements row0..row1-1 as they lie in the memory of a dense output 0; the columns are
/// 0, 1.
struct Epilogue {
  void (*run)(const Epilogue&, int64_t row0, int64_t row1, int64_t column0, int64_t column1);
};

enum class EpilogueKind : uint8_t { none, blocks, ranges };

/// A plan whose kernel can call an epilogue.
struct EpiloguePlan : Plan {
  /// Kernel::run with an epilogue on every block of the result.
  void (*run_with)(const KernelCall&, const Epilogue&) = nullptr;
};

/// Plans that `prepare` makes are EpiloguePlans where `kind` says so. Called when kernels are
/// registered.
using PrepareFn = std::shared_ptr<const Plan> (*)(const KernelCall&);
TD_API void register_epilogue(PrepareFn prepare, EpilogueKind (*kind)(const KernelCall&));
/// How would this kernel run an epilogue in this call?
TD_API EpilogueKind epilogue_kind(const Kernel& kernel, const KernelCall& call);

}  // namespace tandem
