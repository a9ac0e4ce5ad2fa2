// SPDX-License-Identifier: Apache-2.0
// How a call runs on its device: the one place that decides it, for eager ops (apply.cpp) and for
// compiled programs (compile/lowering) alike.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem {

struct KernelChoice {
  enum Way : uint8_t {
    direct,  ///< `kernel`, or without one the row's reference
    body,    ///< a composite that no kernel takes: its body
  };
  const Kernel* kernel = nullptr;
  uint64_t row_major = 0;  ///< bit i: the kernel takes input i after a copy to row-major order
  Way way = direct;
  bool on_host = false;  ///< the host runs it for a device that has no kernel, between copies
};

/// Decide for call.device from the row, dtypes, shapes and strides; `data` pointers are only
/// compared with null. In this order: a kernel of the device that takes the operands as they lie;
/// one that takes row-major copies; the body of a composite (unless the backend keeps composites
/// whole); on the host the reference; on another device what the host would do.
TD_API KernelChoice choose_kernel(const KernelCall& call);

/// Run the row's reference on operands of the host. 16-bit floats that its loops do not take go
/// through f32 copies; another dtype that it did not name throws DType.
TD_API void run_reference(const KernelCall& call);

/// Run `kernel` (nullptr: the reference) of the host on the operands of another device. A plan that
/// the call has is used. Counted in host_runs(); throws Unsupported where HostRuns::refuse is set.
TD_API void run_by_copies(const Kernel* kernel, const KernelCall& call);

}  // namespace tandem
