// SPDX-License-Identifier: Apache-2.0
// Plain copies of elements out of a strided layout, with conversion. For reading values on the
// host (to_vector, printing, saving); the cast and copy kernels of the ops are elsewhere.
#pragma once

#include "tandem/tensor/tensor_impl.h"

namespace tandem::detail {

/// Convert `n` dense elements of dtype `from` at `src` to dtype `to` at `dst`. Floating to integer
/// truncates toward zero; NaN and what does not fit 64 bits becomes INT64_MIN, then wraps.
TD_API void convert_elements(const void* src, DType from, void* dst, DType to, int64_t n);

/// Write the elements of `t` in row-major order to `out` as `dtype`.
TD_API void copy_row_major(const TensorImpl& t, void* out, DType dtype);

}  // namespace tandem::detail
