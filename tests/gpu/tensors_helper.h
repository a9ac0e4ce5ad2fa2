// SPDX-License-Identifier: Apache-2.0
// Tests of tensors on GPUs run over every driver, and are skipped with the driver's own reason
// where there is no device.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tandem/base/error.h"
#include "tandem/init.h"
#include "tandem/tensor/device_memory.h"

namespace tandem::gpu {

struct FoundDevice {
  std::optional<tandem::Device> device;
  std::string reason;  ///< why there is none
};
inline FoundDevice device_or_reason(const char* name) {
  try {
    return {device_named(name), ""};
  } catch (const Error& e) {
    return {std::nullopt, e.message()};
  }
}

class OverDevices : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    init();
    const FoundDevice found = device_or_reason(GetParam());
    if (!found.device) GTEST_SKIP() << found.reason;
    device_ = *found.device;
  }
  tandem::Device device_;
};

#define TD_OVER_DEVICES(Class)                                                        \
  INSTANTIATE_TEST_SUITE_P(Drivers, Class, testing::Values("cuda", "opencl", "fake"), \
                           [](const auto& info) { return std::string(info.param); })

}  // namespace tandem::gpu
