// SPDX-License-Identifier: Apache-2.0
// The NCCL of tests/gpu/mock, whose ranks are threads of this process, over two fake devices; and
// which devices ranks have.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "tandem/tensor/device.h"

namespace tandem::distributed {

/// The device of a rank of that kind ("cuda", "opencl", "fake"): each its own as long as there are
/// some, then the first ones again; nothing where there is none.
std::optional<Device> device_for(const std::string& kind, int rank);

/// Ranks on fake devices have a library of calls between devices; skipped where it is not built.
class OnMockNccl : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(symbols_, name));
  }
  /// Calls that it has made since this was asked last.
  int new_runs();

 private:
  void* symbols_ = nullptr;
  int ran_ = 0;
};

}  // namespace tandem::distributed
