// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/gpu/rows/register_internal.h"

namespace tandem::gpu {

void register_kernels(DeviceKind kind) {
  register_pointwise(kind);
  register_reductions(kind);
  register_row_programs(kind);
  register_batch_norm(kind);
  register_moves(kind);
  register_creation(kind);
  register_random(kind);
  register_matmul(kind);
  register_attention(kind);
  register_indexing(kind);
  register_losses(kind);
  register_conv(kind);
  register_pooling(kind);
  register_ordering(kind);
  register_elements(kind);
  register_fold(kind);
  register_rnn(kind);
  register_resample(kind);
  register_detection(kind);
  register_sampling(kind);
  register_linalg(kind);
}

}  // namespace tandem::gpu
