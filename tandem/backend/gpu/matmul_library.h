// SPDX-License-Identifier: Apache-2.0
// A vendor's library of matmuls behind one small interface. Own kernels (rows/matmul.cpp) check it
// in tests and run what it does not take.
#pragma once

#include <memory>

#include "tandem/backend/gpu/driver.h"
#include "tandem/tensor/dtype.h"

namespace tandem::gpu {

/// y[m, n] = a[m, k] b[k, n] (+ bias[n]) for each matrix of a batch. Strides are in elements; y is
/// row-major. a and b have stride 1 along k, or along their other dimension.
struct MatmulProblem {
  DType dtype = DType::f32;
  bool tf32 = false;  ///< f32 factors may be rounded to 10 bits of mantissa
  bool bias = false;
  bool a_along_k = true, b_along_k = false;
  int64_t m = 0, n = 0, k = 0;
  int64_t a_line = 0, b_line = 0, y_line = 0;  ///< the stride that is not 1
  int64_t count = 1;                           ///< matrices of the batch
  int64_t a_next = 0, b_next = 0, y_next = 0;  ///< from one matrix to the next
};

/// Where its operands lie: each address aligned to kMatmulAlignment.
struct MatmulOperands {
  Address a = 0, b = 0, bias = 0, y = 0;
  Address scratch = 0;  ///< MatmulPlan::workspace bytes
};
inline constexpr Address kMatmulAlignment = 16;

/// A problem with an algorithm chosen for it. Immutable; any thread may run it.
class MatmulPlan {
 public:
  virtual ~MatmulPlan() = default;
  virtual Status run(const MatmulOperands& at, StreamRef stream) const = 0;
  size_t workspace = 0;  ///< bytes
};

class MatmulLibrary {
 public:
  virtual ~MatmulLibrary() = default;
  /// unavailable, with the reason, for a problem that the library does not take. The same problem
  /// gets the same algorithm each time, and no algorithm adds by atomics.
  virtual Status plan(const MatmulProblem& problem, std::unique_ptr<MatmulPlan>& made) = 0;
};

}  // namespace tandem::gpu
