// SPDX-License-Identifier: Apache-2.0
// Shared by norm.cpp and batch_norm.cpp.
#pragma once

#include "tandem/graph/infer.h"
#include "tandem/ops/view/create.h"

namespace tandem::detail {

/// The dtype of statistics.
inline DType norm_dtype(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

/// Weight and bias have x's dtype, or f32 for a 16-bit x (input `x` of the call).
inline void check_affine_dtype(const InferCall& c, int input, const char* name, int x = 0) {
  DType t = c.in[x].dtype, w = c.in[input].dtype;
  TD_CHECK(w == t || w == norm_dtype(t), DType, "x is {}, {} is {}\nCast one of them with .to().",
           to_string(t), name, to_string(w));
}

/// How many elements of x lie along `dims`: a 0-d tensor of the statistics' dtype.
inline Tensor count_of(const Tensor& x, const IntList& dims) {
  Shape s;
  for (Dim d : dims) s.push_back(x.shape(d.value()));
  DType t = norm_dtype(x.dtype());
  if (!s.is_symbolic()) return full(Shape(), static_cast<double>(s.numel().value()), t);
  return full(Shape(), 1.0, t).expand(s).sum();
}

}  // namespace tandem::detail
