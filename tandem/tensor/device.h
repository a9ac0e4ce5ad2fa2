// SPDX-License-Identifier: Apache-2.0
// Where a tensor lives: a kind and an index.
#pragma once

#include <cstdint>
#include <string>

#include "tandem/base/export.h"

namespace tandem {

enum class DeviceKind : uint8_t { cpu, cuda };
inline constexpr int kDeviceKinds = 2;

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  uint8_t index = 0;
  friend constexpr bool operator==(Device a, Device b) = default;
};
inline constexpr Device cpu{DeviceKind::cpu, 0};

/// "cpu" or "cuda:1".
TD_API std::string to_string(Device d);

}  // namespace tandem
