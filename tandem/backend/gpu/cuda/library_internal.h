// SPDX-License-Identifier: Apache-2.0
// libcuda, opened and initialised with the first question: its functions, or why it is off.
#pragma once

#include "tandem/backend/gpu/cuda/abi_internal.h"
#include "tandem/backend/gpu/driver.h"

namespace tandem::gpu {

struct CudaLibrary {
  cuda::Api api;
  LibraryReport report;
  int devices = 0;
  std::string no_devices;  ///< why there are none
};

/// Opened once; the same for the whole process.
const CudaLibrary& cuda_library();
/// Looks for libcuda now; the tests' way to a library of their own.
CudaLibrary open_cuda();

/// A status with the call's name and the error's: "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of
/// memory)".
Status cuda_status(const cuda::Api& api, cuda::Result result, const char* call);

/// A device of that library, opened; `context` keeps a reference to it.
Status open_cuda_device(const CudaLibrary& library, int device, std::unique_ptr<Context>& context);
Status cuda_info(const CudaLibrary& library, int device, DeviceInfo& info);

}  // namespace tandem::gpu
