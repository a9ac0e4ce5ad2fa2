// SPDX-License-Identifier: Apache-2.0
// A tensor's elements into a file.
#pragma once

#include <vector>

#include "tandem/base/files/file.h"
#include "tandem/tensor/device_memory.h"
#include "tandem/tensor/strided.h"

namespace tandem::io {

/// In row-major order.
inline void write_elements(AtomicFile& file, const Tensor& value) {
  const Tensor t = detail::host_value(value);
  const size_t bytes = static_cast<size_t>(t.numel()) * size_of(t.dtype());
  if (t.is_contiguous()) return file.write(t.impl()->data, bytes);
  std::vector<unsigned char> dense(bytes);
  detail::copy_row_major(*t.impl(), dense.data(), t.dtype());
  file.write(dense.data(), bytes);
}

}  // namespace tandem::io
