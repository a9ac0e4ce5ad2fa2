// SPDX-License-Identifier: Apache-2.0
// Copies between strided layouts: the whole work of copy, cat, pad, flip and of the derivatives of
// views. Rows by memcpy, transposes in tiles, large ones on several threads. Not installed.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem::detail {

/// dst[i] = src[i] for every index of `shape`; elements of `size` bytes. Strides count elements and
/// may be negative or (of src) zero. Both must not overlap.
void strided_copy(void* dst, const int64_t* dst_strides, const void* src,
                  const int64_t* src_strides, const int64_t* shape, int rank, size_t size);

/// All elements of `src` to `dst`, which has the same shape and dtype.
void copy_array(const Array& dst, const Array& src);

/// Zero bytes in all elements of a dense array.
void zero_array(const Array& a);
/// `value` in all elements.
void fill_array(const Array& a, Scalar value);

}  // namespace tandem::detail
