// SPDX-License-Identifier: Apache-2.0
// NVRTC: CUDA's compiler as a library, opened with the first question. It needs neither a driver
// nor a GPU.
#pragma once

#include <span>
#include <string>

#include "tandem/backend/gpu/driver.h"

namespace tandem::gpu {

/// Where it was found and its version, or why it is off. Majors 13 and 12.
TD_API const LibraryReport& nvrtc_report();
/// Compile a module for compute capability `arch` (80: sm_80) into machine code; `log` gets what
/// the compiler said, with registers and spilled bytes of each kernel.
TD_API Status compile_cuda(std::span<const KernelSource> kernels, int arch, std::string& code,
                           std::string& log);

}  // namespace tandem::gpu
