// SPDX-License-Identifier: Apache-2.0
// The bits of elements in another dtype.
#pragma once

#include "tandem/graph/apply.h"

namespace tandem {

struct BitcastAttrs {
  DType dtype = DType::f32;
  template <class V>
  void fields(V& v) {
    v("dtype", dtype);
  }
};

/// The bits of each element as an element of `dtype`, like x.view(dtype) in PyTorch for dtypes of
/// one width. Throws DType where the widths differ, and for bool, which has two values.
TD_API Tensor bitcast(const Tensor& x, DType dtype, SourceLocation loc = SourceLocation::here());

namespace op {
extern TD_API const OpDef bitcast;
}

}  // namespace tandem
