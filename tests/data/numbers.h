// SPDX-License-Identifier: Apache-2.0
// Pipelines of numbers, which tests compare with plain loops.
#pragma once

#include <vector>

#include "tandem/tandem.h"

namespace tandem::data {

/// Sample i of `n` is the number first + i.
struct Numbers {
  int64_t n = 10, first = 0;
  int64_t size() const { return n; }
  Tensor get(int64_t i) const { return tensor(first + i); }
};
using Line = Pipeline<Tensor>;
using List = std::vector<int64_t>;

inline Line numbers(int64_t n, int64_t first = 0) {
  return pipeline(Numbers{n, first}, {.seed = 5});
}
inline Tensor doubled(const Tensor& t) { return t * 2; }

}  // namespace tandem::data
