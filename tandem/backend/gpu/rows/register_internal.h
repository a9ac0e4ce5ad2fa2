// SPDX-License-Identifier: Apache-2.0
// What each file of this folder registers, and the function that registers all of it.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem {
struct ScalarProgram;
}

namespace tandem::gpu {

/// All kernels, for one kind of device.
void register_kernels(DeviceKind kind);

void register_pointwise(DeviceKind kind);
void register_reductions(DeviceKind kind);
void register_row_programs(DeviceKind kind);
void register_batch_norm(DeviceKind kind);
void register_moves(DeviceKind kind);
void register_creation(DeviceKind kind);
void register_random(DeviceKind kind);
void register_matmul(DeviceKind kind);
void register_attention(DeviceKind kind);
void register_indexing(DeviceKind kind);
void register_losses(DeviceKind kind);
void register_conv(DeviceKind kind);
void register_pooling(DeviceKind kind);
void register_ordering(DeviceKind kind);
void register_elements(DeviceKind kind);
void register_fold(DeviceKind kind);
void register_rnn(DeviceKind kind);
void register_resample(DeviceKind kind);
void register_detection(DeviceKind kind);
void register_sampling(DeviceKind kind);
void register_linalg(DeviceKind kind);

/// Backend::run_loop.
void run_loop(const ScalarProgram& program, const KernelCall& call);

}  // namespace tandem::gpu
