// SPDX-License-Identifier: Apache-2.0
// check_numerics: a tensor that must hold no NaN and no infinity, named where it is made.
#pragma once

#include <string>

#include "tandem/tensor/tensor.h"

namespace tandem {

/// `x` as it is. Throws Value when it holds a NaN or an infinity, with `message`, how many there
/// are of each, the shape and the index of the first. It looks at values, so not in a compiled
/// function; the Trainer calls a compiled step as it is when it explains a loss that is not finite,
/// and there it looks.
TD_API Tensor check_numerics(const Tensor& x, const std::string& message = "",
                             Where where = Where::here());

}  // namespace tandem
