// SPDX-License-Identifier: Apache-2.0
// Shared by norm.cpp and batch_norm.cpp.
#pragma once

#include "tandem/graph/infer.h"
#include "tandem/ops/view/create.h"

namespace tandem::detail {

/// Weight and bias have x's dtype, or f32 for a 16-bit x (input `x` of the call).
inline void check_affine_dtype(const InferCall& c, int input, const char* name, int x = 0) {
  DType t = c.in[x].dtype, w = c.in[input].dtype;
  TD_CHECK(w == t || w == accumulation_dtype(t), DType,
           "x is {}, {} is {}\nCast one of them with .to().", to_string(t), name, to_string(w));
}

/// How many elements of x lie along `dims`: a 0-d tensor of the statistics' dtype.
inline Tensor count_of(const Tensor& x, const IntList& dims) {
  Shape s;
  for (Dim d : dims) s.push_back(x.shape(d.value()));
  DType t = accumulation_dtype(x.dtype());
  if (!s.is_symbolic()) return full(Shape(), static_cast<double>(s.numel().value()), t);
  return full(Shape(), 1.0, t).expand(s).sum();
}

/// Multiplications and additions of one normalization, forward.
inline double norm_flops(const InferCall& c) {
  return 8.0 * static_cast<double>(c.in[0].shape.numel().value());
}

}  // namespace tandem::detail
