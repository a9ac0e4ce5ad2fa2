// SPDX-License-Identifier: Apache-2.0
// The row of kthvalue and the medians.
#pragma once

#include <span>

#include "tandem/graph/op_def.h"

namespace tandem {

/// Which element of a sorted line, whose NaNs are at its end.
enum class Rank : int64_t {
  kth,        ///< the k-th
  median,     ///< the first NaN, or the lower median
  nanmedian,  ///< the lower median of the numbers
};
struct KthvalueAttrs {
  int64_t dim = 0;
  int64_t k = 0;  ///< from 1; for Rank::kth
  int64_t rank = 0;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("k", k);
    v("rank", rank);
  }
};

namespace op {
extern TD_API const OpDef kthvalue;
}
TD_API std::span<const OpDef* const> order_statistic_rows();

}  // namespace tandem
