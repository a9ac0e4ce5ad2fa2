// SPDX-License-Identifier: Apache-2.0
// libOpenCL, opened with the first question: its functions, its devices, or why there are none.
#pragma once

#include <string>
#include <vector>

#include "tandem/backend/gpu/driver.h"
#include "tandem/backend/gpu/opencl/abi_internal.h"

namespace tandem::gpu {

struct OpenclLibrary {
  cl::Api api;
  LibraryReport report;
  std::vector<cl::Device> devices;  ///< of all platforms, those that compile
  std::string no_devices;           ///< why there are none
};

/// Opened once; the same for the whole process.
const OpenclLibrary& opencl_library();

/// A status with the call's name and the error's: "clBuildProgram: CL_INVALID_VALUE (-30)".
Status opencl_status(cl::Int error, const char* call);
/// A text that clGetDeviceInfo gives; "" if it does not.
std::string opencl_text_of(const cl::Api& api, cl::Device device, cl::Uint what);
/// A number.
template <class T>
T opencl_number_of(const cl::Api& api, cl::Device device, cl::Uint what) {
  T value{};
  return api.clGetDeviceInfo(device, what, sizeof value, &value, nullptr) == cl::kSuccess ? value
                                                                                          : T{};
}
DeviceInfo opencl_info(const cl::Api& api, cl::Device device);

}  // namespace tandem::gpu
