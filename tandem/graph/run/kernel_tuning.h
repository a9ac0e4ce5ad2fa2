// SPDX-License-Identifier: Apache-2.0
// Choosing among several kernels of one call by their time. Eager ops and compiled programs share
// the choices, so that their bits stay equal; they are kept on disk by processor.
#pragma once

#include "tandem/graph/op_def.h"

namespace tandem {

/// What may be chosen by time; TANDEM_TUNE says it when the first kernel is looked for.
enum class KernelTuning : uint8_t {
  off,         ///< `0`, the default: the newest kernel that takes a call
  equal_bits,  ///< `1`: compiling times kernels for up to 50 ms; of those that gave the bits of the
               ///< newest one on the measured numbers, the fastest
  full,        ///< `full`: the fastest kernel of each call that is met, eager or compiled
};

/// That of this process. Throws Value where TANDEM_TUNE is something else.
TD_API KernelTuning kernel_tuning();
/// Replaces it: programs call this before their first op.
TD_API void set_kernel_tuning(KernelTuning tuning);

/// While one lives, this thread may spend so much time on `equal_bits`; choices are written to disk
/// when it ends.
class TD_API TuningBudget {
 public:
  explicit TuningBudget(double seconds);
  ~TuningBudget();
  TuningBudget(const TuningBudget&) = delete;
  TuningBudget& operator=(const TuningBudget&) = delete;

 private:
  double before_;
};

namespace detail {
/// The kernel for `call` among `newest`, which takes it, and the older ones.
TD_API const Kernel* tuned_kernel(const KernelCall& call, DeviceKind device,
                                  const OpRuntime::Entry* newest);
/// Calls measured by this process, and those whose choice came from disk.
struct TuningCounts {
  int64_t measured = 0, from_disk = 0;
};
TD_API TuningCounts tuning_counts();
/// Forgets the choices of this process, not those on disk.
TD_API void forget_tuning();
}  // namespace detail

}  // namespace tandem
