// SPDX-License-Identifier: Apache-2.0
// How scaled_dot_product_attention is carried out where a caller wants it otherwise than usual, as
// PyTorch's sdpa_kernel(): written out of products and softmax, or as one row whatever it drops.
#pragma once

#include <cstdint>

#include "tandem/base/export.h"

namespace tandem {

enum class AttentionForm : uint8_t {
  usual,     ///< one row; written out where weights are dropped at random
  fused,     ///< one row that drops inside: no kernel here does, so in dry runs only
  composed,  ///< scores, softmax, dropout and products, each a row of its own
};

/// The form on this thread while it lives; what is composed drops `dropout_p` of its weights at the
/// least. A call that `fused` would have to drop for real throws Unsupported.
class TD_API AttentionFormGuard {
 public:
  explicit AttentionFormGuard(AttentionForm form, double dropout_p = 0);
  ~AttentionFormGuard();
  AttentionFormGuard(const AttentionFormGuard&) = delete;
  AttentionFormGuard& operator=(const AttentionFormGuard&) = delete;

 private:
  AttentionForm old_form_;
  double old_dropout_;
};

}  // namespace tandem
