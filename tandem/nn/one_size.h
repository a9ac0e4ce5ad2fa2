// SPDX-License-Identifier: Apache-2.0
// For layers whose first argument is a list of sizes.
#pragma once

#include <concepts>
#include <utility>

#include "tandem/tensor/shape.h"

/// In a layer with the constructor Layer(IntList) or Layer(IntList, Options): `Layer({n})` means
/// the list of one size. Without it a copy of `Layer{n}` would do as well, and the call would be
/// ambiguous. Templates: clang warns of braces around an int64_t.
#define TD_LIST_OF_ONE(Layer, ...)                                            \
  template <std::integral T>                                                  \
  explicit Layer(T size __VA_OPT__(, __VA_ARGS__ options = {}))               \
      : Layer(::tandem::IntList(size) __VA_OPT__(, std::move(options))) {}    \
  template <class T>                                                          \
    requires std::integral<T> || std::same_as<T, ::tandem::Dim>               \
  explicit Layer(const T(&size)[1] __VA_OPT__(, __VA_ARGS__ options = {}))    \
      : Layer(::tandem::IntList(size[0]) __VA_OPT__(, std::move(options))) {} \
  template <std::floating_point T>                                            \
  explicit Layer(T size __VA_OPT__(, __VA_ARGS__ options = {})) = delete
