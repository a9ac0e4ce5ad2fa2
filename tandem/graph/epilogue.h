// SPDX-License-Identifier: Apache-2.0
// Epilogues: work on a block of a kernel's result as soon as it is computed, while it is in cache.
// A kernel declares support through the plans that it makes; compiled steps use it.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem {

struct Requantise;

/// Called from any thread, once for each element; afterwards the kernel does not touch the
/// block. Blocks: rows and columns of output 0 viewed as a matrix (all leading dimensions are
/// rows). Ranges: elements row0..row1-1 in the memory order of a dense output 0; the columns are
/// 0, 1.
struct Epilogue {
  void (*run)(const Epilogue&, int64_t row0, int64_t row1, int64_t column0, int64_t column1);
  /// Where nothing else reads output 0 (else nullptr): the same for whole rows that lie at `block`,
  /// one after the other. The kernel need not write output 0 then.
  void (*run_at)(const Epilogue&, const void* block, int64_t row0, int64_t row1) = nullptr;
  /// Beside run_at: the same in another form (requantise.h). A kernel that knows it may store what
  /// it says, element by element, in place of any call.
  const Requantise* codes = nullptr;

  /// Of whole rows, which lie at `block`: that is in output 0, or anywhere if there is run_at.
  void run_block(const void* block, int64_t row0, int64_t row1, int64_t columns) const {
    run_at ? run_at(*this, block, row0, row1) : run(*this, row0, row1, 0, columns);
  }
};

enum class EpilogueKind : uint8_t { none, blocks, ranges };

/// A plan whose kernel can call an epilogue.
struct EpiloguePlan : Plan {
  /// Kernel::run with an epilogue on every block of the result.
  void (*run_with)(const KernelCall&, const Epilogue&) = nullptr;
};

/// Declares that plans made by `prepare` are EpiloguePlans of this `kind`. Called when kernels are
/// registered.
using PrepareFn = std::shared_ptr<const Plan> (*)(const KernelCall&);
TD_API void register_epilogue(PrepareFn prepare, EpilogueKind (*kind)(const KernelCall&));
/// How this kernel would run an epilogue in this call.
TD_API EpilogueKind epilogue_kind(const Kernel& kernel, const KernelCall& call);

}  // namespace tandem
