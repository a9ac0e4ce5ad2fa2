// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, opened by the first matmul of a CUDA device.
#pragma once

#include <memory>

#include "tandem/backend/gpu/cuda/library_internal.h"
#include "tandem/backend/gpu/matmul_library.h"

namespace tandem::gpu {

/// Where it was found and its version, or why it is off. Majors 13 and 12.
TD_API const LibraryReport& cublaslt_report();

/// The library for the device of a context. unavailable, with the reason, where it is off.
Status open_cublaslt(const cuda::Api& api, cuda::Context context,
                     std::unique_ptr<MatmulLibrary>& made);

}  // namespace tandem::gpu
