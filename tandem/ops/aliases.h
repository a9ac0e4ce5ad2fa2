// SPDX-License-Identifier: Apache-2.0
// PyTorch's second names (aliases.def), and its names for tensors made of data that is there.
// Errors name the function that was called.
#pragma once

#include <string_view>
#include <vector>

#include "tandem/ops/linalg/linalg.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/calculus.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/stacking.h"
#include "tandem/ops/view/view.h"

namespace tandem {

#define TD_LIST(...) __VA_ARGS__
#define TD_NAMED(name)           \
  catch (const Error& e) {       \
    throw renamed(e, name, loc); \
  }
#define ALIAS(name, of, parameters, arguments)                                            \
  inline auto name(TD_LIST parameters, SourceLocation loc = SourceLocation::here()) try { \
    return of(TD_LIST arguments, loc);                                                    \
  }                                                                                       \
  TD_NAMED(#name)
#define UNARY(name, of) ALIAS(name, of, (Tensor x), (std::move(x)))
#define BINARY(name, of) ALIAS(name, of, (Operand a, Operand b), (std::move(a), std::move(b)))
#include "tandem/ops/aliases.def"
#undef BINARY
#undef UNARY
#undef ALIAS
#undef TD_LIST

/// clip without a bound: see clamp.
template <std::same_as<std::nullptr_t> None>
Tensor clip(Tensor x, None, Operand max, SourceLocation loc = SourceLocation::here()) try {
  return clamp_max(std::move(x), std::move(max), loc);
}
TD_NAMED("clip")
template <std::same_as<std::nullptr_t> None>
Tensor clip(Tensor x, Operand min, None, SourceLocation loc = SourceLocation::here()) try {
  return clamp_min(std::move(x), std::move(min), loc);
}
TD_NAMED("clip")

/// A tensor itself; numbers and vectors as by tensor().
inline Tensor as_tensor(Tensor x) { return x; }
template <class T>
  requires(!std::same_as<T, Tensor>)
Tensor as_tensor(const T& data, SourceLocation loc = SourceLocation::here())
try {
  return tensor(data, loc);
}
TD_NAMED("as_tensor")
inline Tensor asarray(Tensor x) { return x; }
template <class T>
  requires(!std::same_as<T, Tensor>)
Tensor asarray(const T& data, SourceLocation loc = SourceLocation::here())
try {
  return tensor(data, loc);
}
TD_NAMED("asarray")
#undef TD_NAMED

/// A vector over `count` elements at `buffer` + offset bytes, which are not copied: see from_blob.
inline Tensor frombuffer(const void* buffer, DType dtype, int64_t count, int64_t offset = 0) {
  return from_blob(static_cast<const char*>(buffer) + offset, Shape(count), dtype);
}

/// start, start + step, ... up to and including `end`, unlike arange.
TD_API Tensor range(double start, double end, double step = 1, DType dtype = DType::f32,
                    SourceLocation loc = SourceLocation::here());
/// Uninitialised memory. Values cannot alias, so that strides and the order of dimensions in memory
/// do not show: both are empty().
TD_API Tensor empty_strided(Shape size, IntList stride, DType dtype = DType::f32,
                            SourceLocation loc = SourceLocation::here());
TD_API Tensor empty_permuted(Shape size, IntList physical_layout, DType dtype = DType::f32,
                             SourceLocation loc = SourceLocation::here());

}  // namespace tandem
