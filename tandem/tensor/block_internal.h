// SPDX-License-Identifier: Apache-2.0
// How much memory the allocator takes for a block, for callers that plan ahead.
#pragma once

#include <cstddef>

namespace tandem::detail {

/// Bytes that allocate(bytes) takes: sizes are rounded, large ones to whole huge pages.
size_t block_bytes(size_t bytes);

struct TensorImpl;
/// Return the pages of a large tensor's elements to the system: its block consists of whole huge
/// pages. For tensors that stay alive; the block remains usable.
void trim_block(const TensorImpl& t);

}  // namespace tandem::detail
