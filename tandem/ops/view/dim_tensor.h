// SPDX-License-Identifier: Apache-2.0
// A size as a value to compute with.
#pragma once

#include "tandem/tensor/tensor.h"

namespace tandem {

/// The size `d`, which may be symbolic, as a 0-d int64 tensor.
TD_API Tensor dim_tensor(Dim d, SourceLocation loc = SourceLocation::here());

}  // namespace tandem
