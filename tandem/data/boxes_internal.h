// SPDX-License-Identifier: Apache-2.0
// Boxes from lists of numbers. Not installed.
#pragma once

#include <vector>

#include "tandem/ops/view/create.h"

namespace tandem::data {

/// f32 [n, 4] of 4 n numbers, box by box.
inline Tensor boxes_of(const std::vector<float>& numbers) {
  return tensor(numbers, Shape(static_cast<int64_t>(numbers.size() / 4), int64_t{4}));
}

}  // namespace tandem::data
