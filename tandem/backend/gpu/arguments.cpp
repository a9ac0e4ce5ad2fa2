// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/gpu/arguments.h"

#include <fmt/format.h>

#include "tandem/backend/gpu/driver.h"
#include "tandem/base/error.h"

namespace tandem::gpu {

Arguments::Slot& Arguments::add() {
  TD_CHECK(count_ < kMost, Value, "a kernel takes at most {} arguments", kMost);
  return slots_[static_cast<size_t>(count_++)];
}

Arguments& Arguments::address(Address at, size_t bytes) {
  Slot& s = add();
  s.bits = at;
  s.bytes = bytes;
  s.is_address = true;
  return *this;
}

Status check_launch(const KernelSource& kernel, const Arguments& arguments, Extent blocks,
                    Extent threads, const DeviceInfo& device) {
  const int wanted = static_cast<int>(kernel.parameters.size());
  if (arguments.count() != wanted) {
    return {Code::bad_argument, fmt::format("kernel {} has {} parameters, {} arguments were given",
                                            kernel.name, wanted, arguments.count())};
  }
  for (int i = 0; i < wanted; ++i) {
    const Parameter& p = kernel.parameters[static_cast<size_t>(i)];
    const bool address = p.kind != Parameter::value;
    if (address == arguments.is_address(i) && (address || arguments.bytes(i) == size_of(p.type))) {
      continue;
    }
    return {
        Code::bad_argument,
        fmt::format(
            "kernel {}: parameter {} ({}) expects {}, an argument of {} was given", kernel.name,
            p.name, i, address ? "an address" : fmt::format("one {}", to_string(p.type)),
            arguments.is_address(i) ? "an address" : fmt::format("{} bytes", arguments.bytes(i)))};
  }
  if (blocks.count() <= 0 || threads.count() <= 0) {
    return {Code::bad_argument, fmt::format("kernel {}: a launch of nothing", kernel.name)};
  }
  if (kernel.threads &&
      (threads.x != static_cast<uint32_t>(kernel.threads) || threads.y != 1 || threads.z != 1)) {
    return {Code::bad_argument,
            fmt::format("kernel {} expects blocks of {} threads, not {} x {} x {}", kernel.name,
                        kernel.threads, threads.x, threads.y, threads.z)};
  }
  if (threads.count() > device.threads_per_block ||
      static_cast<int64_t>(shared_bytes(kernel)) > device.shared_bytes) {
    return {
        Code::bad_argument,
        fmt::format("kernel {}: {} threads and {} shared bytes of a block, the device has at most "
                    "{} and {}",
                    kernel.name, threads.count(), shared_bytes(kernel), device.threads_per_block,
                    device.shared_bytes)};
  }
  return {};
}

}  // namespace tandem::gpu
