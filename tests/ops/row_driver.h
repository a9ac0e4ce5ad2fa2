// SPDX-License-Identifier: Apache-2.0
// Shared by the tests over all op rows: their calls (row_cases.h), and how results are compared.
#pragma once

#include <gtest/gtest.h>

#include "tests/ops/row_cases.h"
#include "tests/support/bits.h"

namespace tandem::rows {

inline void PrintTo(const Row& row, std::ostream* out) { *out << row.op << "(" << row.in << ")"; }

// Integers and bools exactly; floats within tolerance * largest value.
inline ::testing::AssertionResult close(const Tensor& got, const Tensor& want, double tolerance,
                                        double scale = 1e-3) {
  if (!got.defined() || !want.defined())
    return ::testing::AssertionFailure() << "an output is undefined";
  if (!(got.shape() == want.shape()))
    return ::testing::AssertionFailure()
           << got.shape().to_string() << " is not " << want.shape().to_string();
  if (!is_floating(got.dtype())) tolerance = 0;
  std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
  double largest = scale;
  for (double v : b)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    if (!(std::abs(a[i] - b[i]) <= tolerance * largest))
      return ::testing::AssertionFailure()
             << "element " << i << ": " << a[i] << ", wanted " << b[i];
  }
  return ::testing::AssertionSuccess();
}

}  // namespace tandem::rows
