// SPDX-License-Identifier: Apache-2.0
// Overrides how scaled_dot_product_attention is executed, like PyTorch's sdpa_kernel(): as matmuls
// and softmax, or as one row even with dropout.
#pragma once

#include <cstdint>

#include "tandem/base/export.h"

namespace tandem {

enum class AttentionForm : uint8_t {
  usual,     ///< one row; composed where weights are dropped at random
  fused,     ///< one row with dropout inside, which no kernel here implements: for dry runs only
  composed,  ///< scores, softmax, dropout and matmuls as separate rows
};

/// Sets the form on this thread while it lives; `composed` drops at least `dropout_p` of its
/// weights. A `fused` call that would have to drop weights for real throws Unsupported.
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
