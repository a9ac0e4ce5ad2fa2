// SPDX-License-Identifier: Apache-2.0
// A second backend, for tests: memory that the host may not touch. Blocks are pages without access;
// copies and the backend's own kernels open those of their operands while they run, so any other
// access ends the process. It has kernels for copy, fill, add, matmul and index; what else
// runs on it the host does between copies. This file and its .cpp are all that a backend needs:
// docs/adding-a-backend.md goes through them.
#pragma once

#include "tandem/tensor/device.h"

namespace tandem::guarded {

/// "guarded:0", registered at the first call; composites without a kernel go to the host whole.
Device device();
inline const Device g_device = device();  // with init()
/// "plain_guarded:0", the same, whose composites become their bodies and whose compiled programs
/// hold fused loops.
Device plain_device();

/// What the backend did since the last reset_work().
struct Work {
  int kernels = 0;  ///< runs of its own kernels and loops
  int copies = 0;   ///< in, out and within
  Stream stream;    ///< of the last kernel
};
Work work();
void reset_work();
/// Blocks that are taken now.
int blocks();

}  // namespace tandem::guarded
