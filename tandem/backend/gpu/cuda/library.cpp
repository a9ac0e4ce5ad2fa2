// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "tandem/backend/gpu/cuda/library_internal.h"
#include "tandem/backend/gpu/library_internal.h"

namespace tandem::gpu {

const CudaLibrary& cuda_library() {
  static const CudaLibrary* const library = new CudaLibrary(open_cuda());
  return *library;
}

CudaLibrary open_cuda() {
  CudaLibrary l;
  const Library library = open_library({"libcuda.so.1"}, false);
  l.report = report_of("CUDA driver", library);
  if (!library.handle) {
    l.no_devices = l.report.problem;
    return l;
  }
  std::string missing;
#define TD_CUDA_RESOLVE(name, parameters) resolve_symbol(library, #name, &l.api.name, missing);
  TD_CUDA_FUNCTIONS(TD_CUDA_RESOLVE)
#undef TD_CUDA_RESOLVE
  if (!missing.empty()) {
    l.report.problem =
        fmt::format("{} is older than version 12: it lacks {}", library.path, missing);
  } else {
    int version = 0;
    if (l.api.cuDriverGetVersion(&version) == cuda::kSuccess) {
      l.report.version = fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
    }
    const Status started = cuda_status(l.api, l.api.cuInit(0), "cuInit");
    if (!started.ok()) {
      l.report.problem = started.text();
    } else if (version < 12000) {
      l.report.problem =
          fmt::format("the driver is made for {}; 12.0 is the oldest that works", l.report.version);
    }
  }
  l.no_devices = l.report.problem;
  if (l.no_devices.empty()) {
    l.no_devices =
        cuda_status(l.api, l.api.cuDeviceGetCount(&l.devices), "cuDeviceGetCount").text();
    if (l.no_devices.empty() && l.devices == 0) l.no_devices = "the driver knows no device";
  }
  return l;
}

Status cuda_status(const cuda::Api& api, cuda::Result result, const char* call) {
  if (result == cuda::kSuccess) return {};
  const char *name = nullptr, *words = nullptr;
  if (api.cuGetErrorName(result, &name) != cuda::kSuccess || !name) name = "an unknown error";
  if (api.cuGetErrorString(result, &words) != cuda::kSuccess || !words) words = "no text";
  Code code = Code::driver;
  if (result == cuda::kInvalidValue || result == cuda::kInvalidHandle ||
      (result >= cuda::kCaptureUnsupported && result <= cuda::kCaptureImplicit)) {
    code = Code::bad_argument;
  } else if (result == cuda::kOutOfMemory) {
    code = Code::out_of_memory;
  } else if (result == cuda::kNoDevice) {
    code = Code::unavailable;
  } else if (result == cuda::kNotReady) {
    code = Code::not_ready;
  } else if (result == cuda::kUnavailable || result == cuda::kEccUncorrectable ||
             result == cuda::kContained) {
    code = Code::lost;
  } else if (result >= cuda::kIllegalAddress && result <= cuda::kTensorMemoryLeak) {
    code = Code::launch;
  }
  return {code, fmt::format("{}: {} ({})", call, name, words)};
}

Status cuda_info(const CudaLibrary& library, int device, DeviceInfo& info) {
  const cuda::Api& api = library.api;
  cuda::DeviceNumber number = 0;
  TD_GPU_TRY(cuda_status(api, api.cuDeviceGet(&number, device), "cuDeviceGet"));
  char name[256] = {};
  TD_GPU_TRY(
      cuda_status(api, api.cuDeviceGetName(name, sizeof name - 1, number), "cuDeviceGetName"));
  size_t bytes = 0;
  TD_GPU_TRY(cuda_status(api, api.cuDeviceTotalMem_v2(&bytes, number), "cuDeviceTotalMem"));
  int shared = 0;
  const struct {
    int attribute;
    int* place;
  } rows[] = {{cuda::kAttributeThreads, &info.threads_per_block},
              {cuda::kAttributeShared, &shared},
              {cuda::kAttributeUnits, &info.units},
              {cuda::kAttributeMajor, &info.compute_major},
              {cuda::kAttributeMinor, &info.compute_minor}};
  for (const auto& row : rows) {
    TD_GPU_TRY(cuda_status(api, api.cuDeviceGetAttribute(row.place, row.attribute, number),
                           "cuDeviceGetAttribute"));
  }
  info.name = name;
  info.version = fmt::format("driver for {}, compute capability {}.{}", library.report.version,
                             info.compute_major, info.compute_minor);
  info.bytes = info.largest_allocation = static_cast<int64_t>(bytes);
  info.shared_bytes = shared;
  info.f64 = true;
  info.warp_matmul = info.compute_major >= 8;
  info.graphs = true;
  return {};
}

}  // namespace tandem::gpu
