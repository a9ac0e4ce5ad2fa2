// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "tandem/backend/gpu/cuda/cublaslt_internal.h"
#include "tandem/backend/gpu/cuda/cudnn_internal.h"
#include "tandem/backend/gpu/cuda/library_internal.h"
#include "tandem/backend/gpu/cuda/nccl_internal.h"
#include "tandem/backend/gpu/cuda/nvrtc.h"
#include "tandem/backend/gpu/drivers.h"

namespace tandem::gpu {
namespace {

class CudaDriver final : public Driver {
 public:
  const char* name() const override { return "cuda"; }
  Status count(int& devices) override {
    devices = cuda_library().devices;
    if (devices == 0) return {Code::unavailable, cuda_library().no_devices};
    return {};
  }
  Status info(int device, DeviceInfo& info) override {
    TD_GPU_TRY(check(device));
    return cuda_info(cuda_library(), device, info);
  }
  Status open(int device, std::unique_ptr<Context>& context) override {
    TD_GPU_TRY(check(device));
    return open_cuda_device(cuda_library(), device, context);
  }
  std::vector<LibraryReport> libraries() override {
    return {cuda_library().report, nvrtc_report(), cublaslt_library().report,
            cudnn_library().report, nccl_library().report};
  }

 private:
  Status check(int device) {
    int devices = 0;
    TD_GPU_TRY(count(devices));
    if (device >= 0 && device < devices) return {};
    return {Code::unavailable,
            fmt::format("there is no device cuda:{}; there are {}", device, devices)};
  }
};

}  // namespace

Driver& cuda_driver() {
  static Driver* const driver = new CudaDriver;
  return *driver;
}

}  // namespace tandem::gpu
