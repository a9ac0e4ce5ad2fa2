// SPDX-License-Identifier: Apache-2.0
// NCCL, opened by the first call of several ranks with tensors on CUDA devices.
#pragma once

#include <memory>

#include "tandem/backend/gpu/cuda/library_internal.h"
#include "tandem/backend/gpu/cuda/nccl_abi_internal.h"
#include "tandem/backend/gpu/ranks_library.h"

namespace tandem::gpu {

struct NcclLibrary {
  cuda::NcclApi api;
  LibraryReport report;
};

/// Opened once; the same for the whole process. Major 2.
TD_API const NcclLibrary& nccl_library();
/// Looks for it now; the tests' way to a library of their own.
TD_API NcclLibrary open_nccl_library();

/// For the device of a context. unavailable, with the reason, where the library is off. Both
/// references are kept.
TD_API Status open_nccl(const NcclLibrary& library, const cuda::Api& api, cuda::Context context,
                        std::unique_ptr<RanksLibrary>& made);

}  // namespace tandem::gpu
