// SPDX-License-Identifier: Apache-2.0
// NumPy's names for dtypes. Used by npy.cpp and pickle_numpy.cpp.
#pragma once

#include <optional>
#include <string_view>

#include "tandem/tensor/dtype.h"

namespace tandem::io {

/// The dtype of "f4", "i8" ...; nothing for those that Tandem lacks.
std::optional<DType> npy_dtype(std::string_view code);

}  // namespace tandem::io
