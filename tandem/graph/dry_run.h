// SPDX-License-Identifier: Apache-2.0
// DryRunGuard: runs programs without numbers. Ops check and infer as always, gradients are
// recorded, compiled functions are traced and planned, but kernels are skipped and tensors have no
// bytes: a model of any size takes milliseconds and reports the memory and work it would need.
#pragma once

#include "tandem/graph/context.h"
#include "tandem/graph/rng.h"
#include "tandem/tensor/dry_memory.h"

namespace tandem {

/// Extends SlowFlags.
inline constexpr uint32_t kDryRun = 256;

struct DryRunOptions {
  /// Run for the backend of this build: rows without a kernel for their inputs become their bodies,
  /// and kernels are prepared, so that their scratch is part of the ledger. False: for a device
  /// that has a kernel for every row, whose scratch is unknown.
  bool this_backend = true;
};

/// A dry run on this thread while it lives. Results of small real tensors alone (positions, scale
/// factors) are computed; everything else has no value, and reading it throws Unsupported. Modules
/// and optimizers that take part belong inside: a parameter that a dry step updates is lost. The
/// generator's state is restored afterwards. Does not nest.
class TD_API DryRunGuard {
 public:
  explicit DryRunGuard(DryRunOptions options = {});
  ~DryRunGuard();
  DryRunGuard(const DryRunGuard&) = delete;
  DryRunGuard& operator=(const DryRunGuard&) = delete;
  DryMemory& memory() { return *memory_; }
  const Ref<DryMemory>& ledger() const { return memory_; }

 private:
  Ref<DryMemory> memory_;
  GeneratorState generator_;
};
TD_API bool is_dry_run();
/// Whether a dry run for a device with a kernel for every row is active.
TD_API bool is_dry_run_of_any_device();

}  // namespace tandem
