// SPDX-License-Identifier: Apache-2.0
// cuDNN, opened by the first convolution of a CUDA device.
#pragma once

#include <memory>
#include <string>

#include "tandem/backend/gpu/conv_library.h"
#include "tandem/backend/gpu/cuda/cudnn_abi_internal.h"
#include "tandem/backend/gpu/cuda/library_internal.h"

namespace tandem::gpu {

struct CudnnLibrary {
  cudnn::Api api;
  LibraryReport report;
};

/// Opened once; the same for the whole process. Major 9.
TD_API const CudnnLibrary& cudnn_library();
/// Looks for it now; the tests' way to a library of their own.
TD_API CudnnLibrary open_cudnn_library();

/// For the device of a context. unavailable, with the reason, where the library is off. Both
/// references are kept.
TD_API Status open_cudnn(const CudnnLibrary& library, const cuda::Api& api, cuda::Context context,
                         std::unique_ptr<ConvLibrary>& made);
/// For a device that need not be there, described in cuDNN's JSON: its plans tell what would run
/// there, and do not run.
TD_API Status describe_cudnn(const CudnnLibrary& library, const std::string& device,
                             std::unique_ptr<ConvLibrary>& made);

}  // namespace tandem::gpu
