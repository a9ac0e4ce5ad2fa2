// SPDX-License-Identifier: Apache-2.0
// What rows promise on devices: the bits of the CPU, or values that are close to it.
#pragma once

#include <algorithm>
#include <cstring>
#include <string_view>

#include "tandem/ops/linalg/linalg.h"
#include "tests/support/bits.h"

namespace tandem::rows {

/// Equal bits; NaN are equal.
inline bool same_bits_or_nan(const Tensor& got, const Tensor& want) {
  if (!is_floating(got.dtype())) return same_bits(got, want);
  const std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
  if (a.size() != b.size() || got.dtype() != want.dtype()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const bool both_nan = a[i] != a[i] && b[i] != b[i];
    if (!both_nan && std::memcmp(&a[i], &b[i], sizeof(double)) != 0) return false;
  }
  return true;
}

/// Pointwise rows, random numbers and what only moves elements; losses and linear algebra add.
inline bool has_the_cpus_bits(const OpDef& op) {
  const std::string_view name = op.name;
  const bool loss = name.ends_with("_loss") || name.find("_loss_") != name.npos ||
                    name.find("cross_entropy") != name.npos;
  const auto algebra = linalg_rows();
  const bool adds = loss || std::find(algebra.begin(), algebra.end(), &op) != algebra.end();
  const bool moves = op.family == Family::index && !adds;
  return op.family == Family::pointwise || op.family == Family::create ||
         op.family == Family::view || op.has(kRandom) || moves;
}

}  // namespace tandem::rows
