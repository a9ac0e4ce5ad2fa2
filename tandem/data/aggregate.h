// SPDX-License-Identifier: Apache-2.0
// Samples are aggregates of up to eight Tensors; these convert them to lists of tensors and back.
#pragma once

#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/tensor/tensor.h"

namespace tandem::data::detail {

struct AnyField {
  template <class T>
  operator T() const;
};

template <class T, size_t... I>
concept BracesWith = requires {
  T{(static_cast<void>(I), AnyField{})...};
};
template <class T, size_t... I>
constexpr bool braces(std::index_sequence<I...>) {
  return BracesWith<T, I...>;
}
/// The number of fields of an aggregate.
template <class T, size_t N = 8>
constexpr size_t arity() {
  if constexpr (N == 0)
    return 0;
  else if constexpr (braces<T>(std::make_index_sequence<N>{}))
    return N;
  else
    return arity<T, N - 1>();
}

template <class T>
std::vector<Tensor> fields_of(T&& v) {
  using D = std::decay_t<T>;
  if constexpr (std::is_same_v<D, Tensor>) {
    return {std::forward<T>(v)};
  } else {
    constexpr size_t n = arity<D>();
    static_assert(n >= 1 && n <= 8, "a sample is an aggregate of one to eight Tensors");
    if constexpr (n == 1) {
      auto& [a] = v;
      return {a};
    } else if constexpr (n == 2) {
      auto& [a, b] = v;
      return {a, b};
    } else if constexpr (n == 3) {
      auto& [a, b, c] = v;
      return {a, b, c};
    } else if constexpr (n == 4) {
      auto& [a, b, c, d] = v;
      return {a, b, c, d};
    } else if constexpr (n == 5) {
      auto& [a, b, c, d, e] = v;
      return {a, b, c, d, e};
    } else if constexpr (n == 6) {
      auto& [a, b, c, d, e, f] = v;
      return {a, b, c, d, e, f};
    } else if constexpr (n == 7) {
      auto& [a, b, c, d, e, f, g] = v;
      return {a, b, c, d, e, f, g};
    } else {
      auto& [a, b, c, d, e, f, g, h] = v;
      return {a, b, c, d, e, f, g, h};
    }
  }
}

template <class T, size_t... I>
T make_fields(std::vector<Tensor>& t, std::index_sequence<I...>) {
  return T{std::move(t[I])...};
}
template <class T>
T from_fields(std::vector<Tensor> t) {
  if constexpr (std::is_same_v<T, Tensor>)
    return std::move(t[0]);
  else
    return make_fields<T>(t, std::make_index_sequence<arity<T>()>{});
}

}  // namespace tandem::data::detail
