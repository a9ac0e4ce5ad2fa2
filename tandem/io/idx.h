// SPDX-License-Identifier: Apache-2.0
// IDX, the file format of MNIST and its relatives: a magic number, sizes, big-endian elements.
#pragma once

#include "tandem/base/budget.h"
#include "tandem/base/files/file.h"
#include "tandem/tensor/tensor.h"

namespace tandem::io {

/// Read an IDX file, plain or gzip, as u8, i8, i16, i32, f32 or f64 with its own shape. Throws Io
/// when it cannot be read and Format when it is not an IDX file, is truncated, has more data than
/// its sizes say, or would need more than `limit` bytes or `limits` allow.
TD_API Tensor load_idx(const FilePath& path, uint64_t limit = uint64_t{1} << 33,
                       const BudgetLimits& limits = {});

/// Write a tensor of one of these dtypes as a plain IDX file (1 to 8 dimensions).
TD_API void save_idx(const Tensor& x, const FilePath& path);

}  // namespace tandem::io
