// SPDX-License-Identifier: Apache-2.0
// The three preludes: what the words of the dialect mean to each compiler. A word stands in all
// three or in none.
#pragma once

#include <string_view>

namespace tandem::gpu {

/// kCTypes stands before the first and the last one: OpenCL C has names of its own for types.
extern const std::string_view kCTypes, kCudaPrelude, kOpenclPrelude, kHostPrelude;
/// Follows each of them: words made of others.
extern const std::string_view kReports;
/// The words of warps, of the drivers that have them; for kernels that use them.
extern const std::string_view kCudaWarps, kHostWarps;

}  // namespace tandem::gpu
