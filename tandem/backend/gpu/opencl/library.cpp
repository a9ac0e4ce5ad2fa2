// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "tandem/backend/gpu/library_internal.h"
#include "tandem/backend/gpu/opencl/library_internal.h"

namespace tandem::gpu {
namespace {

struct ErrorRow {
  cl::Int error;
  const char* name;
};
// Those that can come from the calls that are made.
constexpr ErrorRow kErrors[] = {
    {-1, "CL_DEVICE_NOT_FOUND"},
    {-2, "CL_DEVICE_NOT_AVAILABLE"},
    {-3, "CL_COMPILER_NOT_AVAILABLE"},
    {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
    {-5, "CL_OUT_OF_RESOURCES"},
    {-6, "CL_OUT_OF_HOST_MEMORY"},
    {-7, "CL_PROFILING_INFO_NOT_AVAILABLE"},
    {-8, "CL_MEM_COPY_OVERLAP"},
    {-11, "CL_BUILD_PROGRAM_FAILURE"},
    {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
    {-30, "CL_INVALID_VALUE"},
    {-34, "CL_INVALID_CONTEXT"},
    {-36, "CL_INVALID_COMMAND_QUEUE"},
    {-38, "CL_INVALID_MEM_OBJECT"},
    {-46, "CL_INVALID_KERNEL_NAME"},
    {-50, "CL_INVALID_ARG_VALUE"},
    {-51, "CL_INVALID_ARG_SIZE"},
    {-52, "CL_INVALID_KERNEL_ARGS"},
    {-54, "CL_INVALID_WORK_GROUP_SIZE"},
    {-55, "CL_INVALID_WORK_ITEM_SIZE"},
    {-58, "CL_INVALID_EVENT"},
    {-61, "CL_INVALID_BUFFER_SIZE"},
    {-63, "CL_INVALID_GLOBAL_WORK_SIZE"},
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
};

std::string trimmed(std::string s) {
  while (!s.empty() && (s.back() == '\0' || s.back() == ' ')) s.pop_back();
  return s;
}

std::string platform_text(const cl::Api& api, cl::Platform platform, cl::Uint what) {
  size_t bytes = 0;
  if (api.clGetPlatformInfo(platform, what, 0, nullptr, &bytes) != cl::kSuccess) return "";
  std::string s(bytes, '\0');
  api.clGetPlatformInfo(platform, what, bytes, s.data(), nullptr);
  return trimmed(s);
}

// Devices of one platform that can be used.
void add_devices(OpenclLibrary& l, cl::Platform platform) {
  cl::Uint count = 0;
  if (l.api.clGetDeviceIDs(platform, cl::kTypeAll, 0, nullptr, &count) != cl::kSuccess) return;
  std::vector<cl::Device> found(count);
  l.api.clGetDeviceIDs(platform, cl::kTypeAll, count, found.data(), nullptr);
  for (cl::Device d : found) {
    if (opencl_number_of<cl::Uint>(l.api, d, cl::kAvailable) &&
        opencl_number_of<cl::Uint>(l.api, d, cl::kCompilerAvailable)) {
      l.devices.push_back(d);
    }
  }
}

void find_devices(OpenclLibrary& l) {
  cl::Uint count = 0;
  const cl::Int error = l.api.clGetPlatformIDs(0, nullptr, &count);
  if (error != cl::kSuccess || count == 0) {
    l.no_devices = error == cl::kPlatformNotFound || error == cl::kSuccess
                       ? "no OpenCL platform is installed (no file in /etc/OpenCL/vendors)"
                       : opencl_status(error, "clGetPlatformIDs").text();
    return;
  }
  std::vector<cl::Platform> platforms(count);
  l.api.clGetPlatformIDs(count, platforms.data(), nullptr);
  for (cl::Platform p : platforms) {
    l.report.version += (l.report.version.empty() ? "" : "; ") +
                        platform_text(l.api, p, cl::kPlatformName) + ", " +
                        platform_text(l.api, p, cl::kPlatformVersion);
    add_devices(l, p);
  }
  if (l.devices.empty()) l.no_devices = "no OpenCL platform has a device that compiles kernels";
}

OpenclLibrary open_opencl() {
  OpenclLibrary l;
  const Library library = open_library({"libOpenCL.so.1"}, false);
  l.report = report_of("OpenCL", library);
  if (library.handle) {
    std::string missing;
#define TD_OPENCL_RESOLVE(name, result, parameters) \
  resolve_symbol(library, #name, &l.api.name, missing);
    TD_OPENCL_FUNCTIONS(TD_OPENCL_RESOLVE)
#undef TD_OPENCL_RESOLVE
    if (missing.empty()) {
      find_devices(l);
    } else {
      l.report.problem =
          fmt::format("{} is older than OpenCL 1.2: it lacks {}", library.path, missing);
    }
  }
  if (!l.report.problem.empty()) l.no_devices = l.report.problem;
  return l;
}

}  // namespace

const OpenclLibrary& opencl_library() {
  static const OpenclLibrary* const library = new OpenclLibrary(open_opencl());
  return *library;
}

Status opencl_status(cl::Int error, const char* call) {
  if (error == cl::kSuccess) return {};
  const char* name = "an unknown error";
  for (const ErrorRow& row : kErrors) {
    if (row.error == error) name = row.name;
  }
  Code code = Code::driver;
  if (error == cl::kAllocationFailure || error == cl::kOutOfHostMemory ||
      error == cl::kInvalidBufferSize) {
    code = Code::out_of_memory;
  } else if (error == cl::kOutOfResources || (error <= -50 && error >= -63 && error != -58)) {
    code = Code::launch;
  }
  return {code, fmt::format("{}: {} ({})", call, name, error)};
}

std::string opencl_text_of(const cl::Api& api, cl::Device device, cl::Uint what) {
  size_t bytes = 0;
  if (api.clGetDeviceInfo(device, what, 0, nullptr, &bytes) != cl::kSuccess) return "";
  std::string s(bytes, '\0');
  api.clGetDeviceInfo(device, what, bytes, s.data(), nullptr);
  return trimmed(s);
}

DeviceInfo opencl_info(const cl::Api& api, cl::Device device) {
  DeviceInfo info;
  info.name = opencl_text_of(api, device, cl::kDeviceName);
  info.version = fmt::format("{}, driver {}", opencl_text_of(api, device, cl::kDeviceVersion),
                             opencl_text_of(api, device, cl::kDriverVersion));
  info.bytes = opencl_number_of<int64_t>(api, device, cl::kGlobalBytes);
  info.largest_allocation = opencl_number_of<int64_t>(api, device, cl::kMaxAllocation);
  info.shared_bytes = opencl_number_of<int64_t>(api, device, cl::kLocalBytes);
  info.threads_per_block =
      static_cast<int>(opencl_number_of<size_t>(api, device, cl::kMaxGroupSize));
  info.units = static_cast<int>(opencl_number_of<cl::Uint>(api, device, cl::kMaxUnits));
  info.f64 = opencl_number_of<cl::Bits>(api, device, cl::kDoubleConfig) != 0;
  return info;
}

}  // namespace tandem::gpu
