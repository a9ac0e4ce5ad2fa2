// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "tandem/dist/environment.h"
#include "tandem/tensor/device.h"

namespace tandem::distributed {

/// device_named(), but a name without a number ("cuda", "auto") means the device of this rank: with
/// several ranks on a machine rank k of them gets device k. Throws Value where that is not there.
TD_API Device device_of_rank(std::string_view name, const Place& place = find_place());
/// How many devices there are of the kind that `name` names; 1 for the CPU, and for a name with a
/// number. Throws Value where there is none.
TD_API int count_devices(std::string_view name);

}  // namespace tandem::distributed
