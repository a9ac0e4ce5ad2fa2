// SPDX-License-Identifier: Apache-2.0
// Which gradients share a bucket: data parallel training makes these buckets, and plans of large
// jobs reckon with them.
#pragma once

#include <cstdint>
#include <vector>

#include "tandem/base/export.h"
#include "tandem/tensor/dtype.h"

namespace tandem::distributed {

/// A parameter's gradient.
struct BucketItem {
  DType dtype = DType::f32;
  int64_t elements = 0;  ///< with what lies between it and the next one
};

/// Indices of the gradients of each bucket, in the order in which buckets are reduced: last
/// parameters first, because their gradients are complete first; a dtype each. A bucket is full at
/// `cap_mb` (0: a twelfth of all gradients, between 0.5 and 25), the first one at `first_mb`, so
/// that work begins early.
TD_API std::vector<std::vector<size_t>> bucket_plan(const std::vector<BucketItem>& items,
                                                    double cap_mb = 0, double first_mb = 1);

}  // namespace tandem::distributed
