// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention: one row that keeps the log-sum-exp of each line for its derivative,
// and that derivative as a composite.
#pragma once

#include "tandem/graph/op_def.h"

namespace tandem {

struct AttentionAttrs {
  bool causal = false;     ///< position i attends to keys 0..i
  double scale = 0;        ///< 0: 1 / sqrt(size of q's last dimension)
  bool mask_grad = false;  ///< for attention_backward: compute the gradient of a float mask
  template <class V>
  void fields(V& v) {
    v("causal", causal);
    v("scale", scale);
    v("mask_grad", mask_grad);
  }
};

namespace op {
/// attention: q [..., h, l, e], k [..., h', s, e], v [..., h', s, f], mask? (bool, true = visible,
/// or floating, added to the scores; broadcasts to [..., h, l, s]) -> y [..., h, l, f], lse! [...,
/// h, l] (f32 or f64). Leading dimensions broadcast, except that h' may divide h: head i of q then
/// uses head i / (h / h') of k and v. A line without any key gives 0. attention_backward: gy, q, k,
/// v, y, lse, mask?, glse? -> gq, gk, gv, gmask ([0] unless requested).
extern TD_API const OpDef attention, attention_backward;
}  // namespace op
TD_API std::span<const OpDef* const> attention_rows();

/// softmax(q k^T * scale + mask) v. A bool mask keeps keys where true; is_causal excludes a mask.
/// enable_gqa allows k and v to have fewer heads (dimension -3). With dropout_p > 0 weights are
/// dropped at random (pass 0 outside training). Throws Shape, DType, Value.
TD_API Tensor scaled_dot_product_attention(Tensor q, Tensor k, Tensor v, Tensor mask = {},
                                           double dropout_p = 0, bool is_causal = false,
                                           double scale = 0, bool enable_gqa = false,
                                           SourceLocation loc = SourceLocation::here());

}  // namespace tandem
