// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/gpu/fake/fake_driver.h"

#include <fmt/format.h>

#include <mutex>

#include "tandem/backend/gpu/drivers.h"
#include "tandem/backend/gpu/fake/fake_context_internal.h"

namespace tandem::gpu {
namespace {

class FakeDriver final : public Driver {
 public:
  explicit FakeDriver(const FakeOptions& options) : options_(options) {}
  const char* name() const override { return "fake"; }
  Status count(int& devices) override {
    devices = options().devices;
    return {};
  }
  Status info(int device, DeviceInfo& info) override {
    TD_GPU_TRY(check(device));
    info = FakeDevice(options(), device).info();
    return {};
  }
  Status open(int device, std::unique_ptr<Context>& context) override {
    TD_GPU_TRY(check(device));
    context = open_fake(options(), device);
    return {};
  }
  void set(const FakeOptions& options) {
    std::lock_guard hold(lock_);
    const int devices = options_.devices;
    options_ = options;
    options_.devices = devices;
  }
  std::vector<LibraryReport> libraries() override { return {}; }

 private:
  Status check(int device) const {
    const int devices = options().devices;
    if (device >= 0 && device < devices) return {};
    return {Code::unavailable,
            fmt::format("there is no device fake:{}; there are {}", device, devices)};
  }
  FakeOptions options() const {
    std::lock_guard hold(lock_);
    return options_;
  }
  mutable std::mutex lock_;
  FakeOptions options_;
};

FakeDriver& fake_devices() {
  static FakeDriver* const driver = new FakeDriver({.devices = 2});
  return *driver;
}

}  // namespace

std::unique_ptr<Driver> make_fake_driver(const FakeOptions& options) {
  return std::make_unique<FakeDriver>(options);
}

std::unique_ptr<FakeContext> open_fake(const FakeOptions& options, int device) {
  return std::make_unique<FakeDevice>(options, device);
}

Driver& fake_driver() { return fake_devices(); }
void set_fake_options(const FakeOptions& options) { fake_devices().set(options); }

}  // namespace tandem::gpu
