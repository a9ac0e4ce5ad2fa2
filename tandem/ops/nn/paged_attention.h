// SPDX-License-Identifier: Apache-2.0
// Attention over keys and values that lie in blocks of a common pool, as in PagedAttention (Kwon et
// al. 2023, "Efficient Memory Management for Large Language Model Serving with PagedAttention"):
// texts of different lengths are decoded together and share what they have in common.
#pragma once

#include "tandem/graph/op_def.h"

namespace tandem {

struct PagedAttentionAttrs {
  int64_t block = 16;  ///< slots of a block
  double scale = 0;    ///< 0: 1 / sqrt(size of q's last dimension)
  double softcap = 0;  ///< above 0: scores become c tanh(score / c)
  int64_t window = 0;  ///< above 0: position i sees the positions from i - window + 1 on
  template <class V>
  void fields(V& v) {
    v("block", block);
    v("scale", scale);
    v("softcap", softcap);
    v("window", window);
  }
};

namespace op {
/// q [n, h, l, e], k and v [slots, h', e] and [slots, h', f], table [n, t] and positions [n, l] of
/// integers -> y [n, h, l, f]. The token at position p of text i has its key in slot
/// table[i][p / block] * block + p % block; a query sees the keys of its text up to its own
/// position. h' divides h, as in attention. A query whose position is negative gives 0.
extern TD_API const OpDef paged_attention;
}  // namespace op

/// See op::paged_attention. Throws Shape, DType, Value; Index for a block outside of the pool and
/// a position behind the table.
TD_API Tensor paged_attention(Tensor q, Tensor k, Tensor v, Tensor table, Tensor positions,
                              const PagedAttentionAttrs& attrs = {},
                              SourceLocation loc = SourceLocation::here());

}  // namespace tandem
