// SPDX-License-Identifier: Apache-2.0
// Plain copies of elements out of a strided layout, with conversion. For reading values on the host
// (to_vector, printing, saving); the ops have their own cast and copy kernels.
#pragma once

#include "tandem/tensor/tensor_impl.h"

namespace tandem::detail {

/// Convert `n` dense elements of dtype `from` at `src` to dtype `to` at `dst`. Floating to integer
/// truncates toward zero; NaN and values beyond 64 bits become INT64_MIN, then wrap.
TD_API void convert_elements(const void* src, DType from, void* dst, DType to, int64_t n);

/// Write the elements of `t`, from whatever device, in row-major order to host memory `out` as
/// `dtype`.
TD_API void copy_row_major(const TensorImpl& t, void* out, DType dtype);

}  // namespace tandem::detail
