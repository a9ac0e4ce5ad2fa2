// SPDX-License-Identifier: Apache-2.0
// The GPU backend as a whole: devices cuda, opencl and fake for tensors. No library is opened here,
// and no device: that happens when one is used first.
#pragma once

#include "tandem/base/export.h"

namespace tandem {

/// Register the memory of the three kinds and the kernels of all rows that have one.
TD_API void register_gpu_backend();

}  // namespace tandem
