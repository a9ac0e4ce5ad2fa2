// SPDX-License-Identifier: Apache-2.0
// Calls of all ranks with tensors on devices: by the vendor's library (NCCL) where every rank has
// one, else through the host.
#pragma once

#include <memory>

#include "tandem/dist/engine.h"
#include "tandem/graph/device_ranks.h"

namespace tandem::distributed {

/// This rank's device among those of the group; nullptr where calls go through the host. All ranks
/// ask it for the first time at the same point of their program: it is a call of all of them, which
/// decides for all. Asked again it is only looked up.
std::shared_ptr<DeviceRanks> join_devices(const std::shared_ptr<Engine>& group, Device device);
/// What join_devices() gave; nullptr where nobody asked.
std::shared_ptr<DeviceRanks> joined_devices(const std::shared_ptr<Engine>& group, Device device);

}  // namespace tandem::distributed
