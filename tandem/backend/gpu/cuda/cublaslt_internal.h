// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, opened by the first matmul of a CUDA device.
#pragma once

#include <memory>

#include "tandem/backend/gpu/cuda/cublaslt_abi_internal.h"
#include "tandem/backend/gpu/cuda/library_internal.h"
#include "tandem/backend/gpu/matmul_library.h"

namespace tandem::gpu {

struct CublasLtLibrary {
  cuda::CublasLtApi api;
  LibraryReport report;
};

/// Opened once; the same for the whole process. Majors 13 and 12.
TD_API const CublasLtLibrary& cublaslt_library();
/// Looks for it now; the tests' way to a library of their own.
TD_API CublasLtLibrary open_cublaslt_library();

/// For the device of a context. unavailable, with the reason, where the library is off. Both
/// references are kept.
TD_API Status open_cublaslt(const CublasLtLibrary& library, const cuda::Api& api,
                            cuda::Context context, std::unique_ptr<MatmulLibrary>& made);

}  // namespace tandem::gpu
