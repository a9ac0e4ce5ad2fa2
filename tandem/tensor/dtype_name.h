// SPDX-License-Identifier: Apache-2.0
// DTypes by name, as files, recipes and command lines write them.
#pragma once

#include <string_view>

#include "tandem/base/export.h"
#include "tandem/tensor/dtype.h"

namespace tandem {

/// The dtype called "float16" or, for short, "f16". Throws Value for a name that no dtype has.
TD_API DType dtype_named(std::string_view name);

}  // namespace tandem
