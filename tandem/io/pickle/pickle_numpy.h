// SPDX-License-Identifier: Apache-2.0
// NumPy's arrays and scalars inside pickles, as checkpoints and data sets hold them. After
// numpy/_core/src/multiarray/{methods,scalartypes,descriptor}.c: __reduce__ of each.
#pragma once

#include <variant>

#include "tandem/io/pickle/pickle.h"
#include "tandem/tensor/tensor.h"

namespace tandem::io {

/// The globals that they name, for the table of a reader.
TD_API std::span<const PickleGlobal> numpy_globals();

TD_API bool is_numpy_array(const PickleNode& n);
/// The array, in C order: f8 f4 f2 i8 i4 i2 i1 u1 b1 as they are, u2 as i32, u4 as i64, complex
/// numbers with a last dimension of 2. Throws Format, with `what` in front, for other elements
/// (strings, objects, records, u8 beyond 2^63) and for a damaged one.
TD_API Tensor numpy_array(const PickleNode& n, std::string_view what);

/// A number as bool, int64_t or double; a text.
using NumpyScalar = std::variant<bool, int64_t, double, std::string>;
TD_API bool is_numpy_scalar(const PickleNode& n);
/// Throws Format as numpy_array does.
TD_API NumpyScalar numpy_scalar(const PickleNode& n, std::string_view what);

}  // namespace tandem::io
