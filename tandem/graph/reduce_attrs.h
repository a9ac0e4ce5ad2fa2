// SPDX-License-Identifier: Apache-2.0
// Attributes of reductions and scans: read by the rows (ops) and by the kernels of every backend.
#pragma once

#include "tandem/graph/attrs.h"

namespace tandem {

/// `dims` may be negative and in any order; empty means all.
struct ReduceAttrs {
  IntList dims;
  bool keepdim = false;
  template <class V>
  void fields(V& v) {
    v("dims", dims);
    v("keepdim", keepdim);
  }
};

struct ScanAttrs {
  int64_t dim = 0;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
  }
};

}  // namespace tandem
