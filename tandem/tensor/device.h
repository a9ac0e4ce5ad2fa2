// SPDX-License-Identifier: Apache-2.0
// Where a tensor lives: a kind and an index. Kinds beside the two that have names here get theirs
// when their backend registers its memory (tensor/device_memory.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tandem/base/export.h"

namespace tandem {

enum class DeviceKind : uint8_t { cpu, cuda };
/// Most kinds that a process can have.
inline constexpr int kDeviceKinds = 8;

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  uint8_t index = 0;
  friend constexpr bool operator==(Device a, Device b) = default;
};
inline constexpr Device cpu{DeviceKind::cpu, 0};

/// May the host read and write the memory of this device? Whoever wants to know whether bytes can
/// be touched asks this, never for a kind.
constexpr bool is_host(Device d) { return d.kind == DeviceKind::cpu; }

/// A queue of work on a device, done in order. An empty one is the device's own queue; the host has
/// no other and works at once.
struct Stream {
  void* handle = nullptr;
  friend constexpr bool operator==(Stream a, Stream b) = default;
};

/// "cpu" or "cuda:1".
TD_API std::string to_string(Device d);
/// The device of that name; without a number the first of its kind. "auto" is the first GPU of
/// CUDA, or the CPU where there is none. Throws Value, with the names that this process knows.
TD_API Device device_named(std::string_view name);

}  // namespace tandem
