// SPDX-License-Identifier: Apache-2.0
// Tests of tensors on GPUs run over every driver, and are skipped with the driver's own reason
// where there is no device.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

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

/// PoCL reads all of OpenCL's built-ins for each kernel, which takes half a second, and its kernels
/// are the texts that the fake device runs in full: where this holds, a test builds a few of them.
/// TANDEM_TEST_ALL=1: all.
inline bool few_kernels(std::string_view device) {
  return device == "opencl" && !std::getenv("TANDEM_TEST_ALL");
}

class OverDevices : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    init();
    const FoundDevice found = device_or_reason(GetParam());
    if (!found.device) GTEST_SKIP() << found.reason;
    device_ = *found.device;
  }
  /// Whether case `i` of a table is left out: three of four where kernels are to be few.
  static bool left_out(size_t i) { return few_kernels(GetParam()) && i % 4 != 0; }

  tandem::Device device_;
};

#define TD_OVER_DEVICES(Class)                                                        \
  INSTANTIATE_TEST_SUITE_P(Drivers, Class, testing::Values("cuda", "opencl", "fake"), \
                           [](const auto& info) { return std::string(info.param); })

}  // namespace tandem::gpu
