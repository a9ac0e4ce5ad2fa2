// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "tandem/backend/gpu/drivers.h"
#include "tandem/backend/gpu/opencl/opencl_context_internal.h"

namespace tandem::gpu {
namespace {

class OpenclDriver final : public Driver {
 public:
  const char* name() const override { return "opencl"; }
  Status count(int& devices) override {
    const OpenclLibrary& l = opencl_library();
    devices = static_cast<int>(l.devices.size());
    if (devices == 0) return {Code::unavailable, l.no_devices};
    return {};
  }
  Status info(int device, DeviceInfo& info) override {
    cl::Device found = nullptr;
    TD_GPU_TRY(device_of(device, found));
    info = opencl_info(opencl_library().api, found);
    return {};
  }
  Status open(int device, std::unique_ptr<Context>& context) override {
    cl::Device found = nullptr;
    TD_GPU_TRY(device_of(device, found));
    auto made = std::make_unique<OpenclContext>(opencl_library(), found);
    TD_GPU_TRY(made->open());
    context = std::move(made);
    return {};
  }
  std::vector<LibraryReport> libraries() override { return {opencl_library().report}; }

 private:
  Status device_of(int device, cl::Device& found) {
    int devices = 0;
    TD_GPU_TRY(count(devices));
    if (device < 0 || device >= devices) {
      return {Code::unavailable,
              fmt::format("there is no device opencl:{}; there are {}", device, devices)};
    }
    found = opencl_library().devices[static_cast<size_t>(device)];
    return {};
  }
};

}  // namespace

Driver& opencl_driver() {
  static Driver* const driver = new OpenclDriver;
  return *driver;
}

}  // namespace tandem::gpu
