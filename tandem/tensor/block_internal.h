// SPDX-License-Identifier: Apache-2.0
// How much the allocator sets aside for a block, for those who say beforehand what they will take.
#pragma once

#include <cstddef>

namespace tandem::detail {

/// Bytes that allocate(bytes) takes: sizes are rounded, large ones to whole huge pages.
size_t block_bytes(size_t bytes);

struct TensorImpl;
/// Give the pages behind the elements of a large tensor back to the system: its block is whole huge
/// pages. For tensors that stay; the block is used as any other afterwards.
void trim_block(const TensorImpl& t);

}  // namespace tandem::detail
