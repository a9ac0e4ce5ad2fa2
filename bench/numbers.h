// SPDX-License-Identifier: Apache-2.0
// The numbers that Tandem's side of a bench shares with its peers: words of Philox by (seed,
// element), as tests/golden/philox.py has them.
#pragma once

#include <tandem/tandem.h>

#include <algorithm>

#include "tandem/base/philox.h"

namespace tandem::bench {

inline uint32_t word(uint64_t seed, size_t i) { return philox(seed, 0, i).w[0]; }

/// Numbers of [-bound, bound); after `period` of them they repeat.
inline Tensor uniform(uint64_t seed, const Shape& shape, float bound, size_t period = SIZE_MAX) {
  std::vector<float> v(static_cast<size_t>(shape.numel().value()));
  const size_t drawn = std::min(v.size(), period);
  for (size_t i = 0; i < drawn; ++i)
    v[i] = bound * (2.0f * (static_cast<float>(word(seed, i) >> 8) * 0x1p-24f) - 1.0f);
  for (size_t i = drawn; i < v.size(); ++i) v[i] = v[i - period];
  return tensor(v).reshape(shape);
}

inline Tensor integers(uint64_t seed, const Shape& shape, uint32_t below) {
  std::vector<int64_t> v(static_cast<size_t>(shape.numel().value()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = word(seed, i) % below;
  return tensor(v).reshape(shape);
}

}  // namespace tandem::bench
