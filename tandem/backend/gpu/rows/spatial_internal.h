// SPDX-License-Identifier: Apache-2.0
// Convolutions and pooling see every array as [n, c, d, h, w], with ones in front of what is
// missing.
#pragma once

namespace tandem::gpu {

inline constexpr int kSpatial = 3;
inline constexpr const char* kAxes[kSpatial] = {"d", "h", "w"};  ///< as parts of names

}  // namespace tandem::gpu
