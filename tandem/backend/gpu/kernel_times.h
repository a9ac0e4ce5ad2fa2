// SPDX-License-Identifier: Apache-2.0
// How long a device spends in each kernel, by events before and behind every launch and library
// call. Recording costs some microseconds a launch and hides no gap between two; meanwhile compiled
// programs run launch by launch.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/export.h"
#include "tandem/tensor/device.h"

namespace tandem::gpu {

struct KernelTime {
  std::string name;    ///< of the kernel, or of the library's call
  int64_t calls = 0;   ///< since recording began
  double seconds = 0;  ///< of all calls, by the device's clock
};

/// Begin, or end and forget. Throws Unsupported for a device that is not a GPU driver's.
TD_API void record_kernel_times(Device device, bool on);
/// Waits for the device; what was recorded so far, the longest first. Recording begins again.
TD_API std::vector<KernelTime> take_kernel_times(Device device);
/// As a table for people: share, seconds, calls, name; at most `most` lines.
TD_API std::string kernel_times_text(const std::vector<KernelTime>& times, size_t most = 20);

}  // namespace tandem::gpu
