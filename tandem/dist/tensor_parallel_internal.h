// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "tandem/dist/tensor_parallel.h"

namespace tandem::distributed {

/// What a rank does with its slice of a value, or with all of it where it is not sliced.
using StoreShared = std::function<void(Cell&, const Tensor&)>;

/// parallelize_module() with the values of rank 0 of `source`, which all its ranks call.
TensorParallel spread_module(nn::Module& net, const ParallelPlan& plan,
                             const std::shared_ptr<Engine>& group, Engine& source,
                             const StoreShared& store);

namespace detail {

/// Elements [begin, end) of n that rank r of `ranks` has; the first ranks have one more where they
/// do not divide.
inline std::pair<int64_t, int64_t> share_of(int64_t n, int64_t r, int64_t ranks) {
  const int64_t each = n / ranks, more = n % ranks;
  const auto at = [&](int64_t i) { return i * each + (i < more ? i : more); };
  return {at(r), at(r + 1)};
}

}  // namespace detail
}  // namespace tandem::distributed
