// SPDX-License-Identifier: Apache-2.0
// The rows matmul and linear as one problem: a batch of matmuls with any strides.
#pragma once

#include "tandem/graph/kernel.h"
#include "tandem/tensor/shape.h"

namespace tandem::detail {

struct MatmulProblem {
  int64_t m = 0, n = 0, k = 0;
  int64_t am = 0, ak = 0, bk = 0, bn = 0;  ///< strides
  int lead = 0;                            ///< batch dimensions, merged where possible
  int64_t lead_size[kMaxRank], a_step[kMaxRank], b_step[kMaxRank];
  int64_t batches = 1;  ///< c is dense: batch i starts at i * m * n

  /// Offsets of batch i in a and b.
  void offsets(int64_t i, int64_t& a, int64_t& b) const {
    a = b = 0;
    for (int d = lead; d-- > 0;) {
      const int64_t x = i % lead_size[d];
      i /= lead_size[d];
      a += x * a_step[d];
      b += x * b_step[d];
    }
  }
  double multiply_adds() const {
    return static_cast<double>(batches) * static_cast<double>(m) * static_cast<double>(n) *
           static_cast<double>(k);
  }
};

/// The problem of a call of op::matmul or op::linear.
MatmulProblem matmul_problem(const KernelCall& c);
/// Of a few rows with a large weight of 16 bits.
void register_narrow_matmul();
/// Whether the x of an op::linear call can be viewed as rows with one stride.
bool is_rows(const Array& x);

}  // namespace tandem::detail
