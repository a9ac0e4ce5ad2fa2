// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/gpu/fake/fake_driver.h"

#include <fmt/format.h>

#include "tandem/backend/gpu/drivers.h"
#include "tandem/backend/gpu/fake/fake_context_internal.h"

namespace tandem::gpu {
namespace {

class FakeDriver final : public Driver {
 public:
  explicit FakeDriver(const FakeOptions& options) : options_(options) {}
  const char* name() const override { return "fake"; }
  Status count(int& devices) override {
    devices = options_.devices;
    return {};
  }
  Status info(int device, DeviceInfo& info) override {
    TD_GPU_TRY(check(device));
    info = FakeDevice(options_, device).info();
    return {};
  }
  Status open(int device, std::unique_ptr<Context>& context) override {
    TD_GPU_TRY(check(device));
    context = open_fake(options_, device);
    return {};
  }
  std::vector<LibraryReport> libraries() override { return {}; }

 private:
  Status check(int device) const {
    if (device >= 0 && device < options_.devices) return {};
    return {Code::unavailable,
            fmt::format("there is no device fake:{}; there are {}", device, options_.devices)};
  }
  const FakeOptions options_;
};

}  // namespace

std::unique_ptr<Driver> make_fake_driver(const FakeOptions& options) {
  return std::make_unique<FakeDriver>(options);
}

std::unique_ptr<FakeContext> open_fake(const FakeOptions& options, int device) {
  return std::make_unique<FakeDevice>(options, device);
}

Driver& fake_driver() {
  static Driver* const driver = new FakeDriver(FakeOptions{});
  return *driver;
}

}  // namespace tandem::gpu
