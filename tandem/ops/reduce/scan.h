// SPDX-License-Identifier: Apache-2.0
// The linear recurrence along a dimension, the basis of running products, exponential averages and
// linear recurrent layers. Its derivative is a linear recurrence in reverse.
#pragma once

#include "tandem/graph/apply.h"

namespace tandem {

/// s[i] = a[i] * s[i - 1] + b[i] along `dim`, from s[-1] = 0; with `reverse` from the other end:
/// s[i] = a[i] * s[i + 1] + b[i]. a and b broadcast; both floating and of one dtype (throws Shape,
/// DType). 16-bit floats run in f32.
TD_API Tensor linear_scan(Tensor a, Tensor b, int64_t dim, bool reverse = false,
                          SourceLocation loc = SourceLocation::here());

// ---- rows
struct LinearScanAttrs {
  int64_t dim = 0;
  bool reverse = false;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("reverse", reverse);
  }
};
namespace op {
/// a, b of one shape -> s.
extern TD_API const OpDef linear_scan;
}  // namespace op
/// The rows of this family.
TD_API std::span<const OpDef* const> scan_rows();

namespace detail {
/// Elements shifted by one along `dim`: the first becomes `first`, the last is dropped; with
/// `reverse` in the other direction.
TD_API Tensor shifted(const Tensor& x, int dim, double first, bool reverse, SourceLocation loc);
}  // namespace detail

}  // namespace tandem
