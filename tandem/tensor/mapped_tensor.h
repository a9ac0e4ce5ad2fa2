// SPDX-License-Identifier: Apache-2.0
// Tensors over the bytes of mapped files.
#pragma once

#include "tandem/base/files/file.h"
#include "tandem/tensor/tensor.h"

namespace tandem::detail {

/// A dense tensor over bytes of `file` from `data` on, which are aligned for the dtype. It keeps
/// the file mapped and never writes to it: the first write copies.
TD_API Tensor mapped_tensor(Ref<MappedFile> file, const void* data, const Shape& shape,
                            DType dtype);

}  // namespace tandem::detail
