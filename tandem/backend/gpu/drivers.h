// SPDX-License-Identifier: Apache-2.0
// The drivers of this build by name. Nothing is opened before the first question.
#pragma once

#include <span>
#include <string_view>

#include "tandem/backend/gpu/driver.h"

namespace tandem::gpu {

/// "cuda", "opencl", "fake", in this order.
TD_API std::span<Driver* const> drivers();
/// Throws Value for a name that no driver has.
TD_API Driver& driver_named(std::string_view name);

// Each kept for the whole process.
TD_API Driver& cuda_driver();
TD_API Driver& opencl_driver();
/// Two devices with default options; fake/fake_driver.h makes others.
TD_API Driver& fake_driver();

}  // namespace tandem::gpu
