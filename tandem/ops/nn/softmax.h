// SPDX-License-Identifier: Apache-2.0
// softmax and log_softmax along one dimension: rows whose derivative reads only the result. 16-bit
// inputs are computed in f32 and rounded once.
#pragma once

#include <optional>

#include "tandem/graph/op_def.h"

namespace tandem {

/// `dim` counts from the front.
struct SoftmaxAttrs {
  int64_t dim = 0;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
  }
};

namespace op {
/// softmax, log_softmax: x -> y. *_backward: gy, y -> gx.
extern TD_API const OpDef softmax, softmax_backward, log_softmax, log_softmax_backward;
}  // namespace op
TD_API std::span<const OpDef* const> softmax_rows();

/// exp(x) / sum(exp(x)) along dim, safe for large x; a line of -inf gives NaN. x is first cast to
/// `dtype` if given. Throws DType unless floating.
TD_API Tensor softmax(Tensor x, int64_t dim, std::optional<DType> dtype = {},
                      SourceLocation loc = SourceLocation::here());
/// x - logsumexp(x) along dim.
TD_API Tensor log_softmax(Tensor x, int64_t dim, std::optional<DType> dtype = {},
                          SourceLocation loc = SourceLocation::here());
/// softmax(-x).
TD_API Tensor softmin(Tensor x, int64_t dim, std::optional<DType> dtype = {},
                      SourceLocation loc = SourceLocation::here());
/// The backward rows as functions.
TD_API Tensor softmax_backward(Tensor gy, Tensor y, int64_t dim,
                               SourceLocation loc = SourceLocation::here());
TD_API Tensor log_softmax_backward(Tensor gy, Tensor y, int64_t dim,
                                   SourceLocation loc = SourceLocation::here());

}  // namespace tandem
