// SPDX-License-Identifier: Apache-2.0
// Compares gradients element by element.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tandem/tensor/tensor.h"

namespace tandem {

inline void expect_close(const Tensor& a, const Tensor& b, double tolerance = 1e-5) {
  ASSERT_EQ(a.shape(), b.shape());
  std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], tolerance) << i;
}

}  // namespace tandem
