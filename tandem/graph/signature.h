// SPDX-License-Identifier: Apache-2.0
// What compiled functions, scans and loops may take and return: tensors, Params and Buffers (their
// value), numbers, enums, strings, and tuples, pairs, arrays, vectors, optionals and structs of
// these. flatten() splits a value into its tensors and a key for the rest; rebuild() reassembles
// it.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tandem/graph/cell.h"

namespace tandem::detail {

/// Collects the parts.
struct CallParts {
  std::vector<Tensor> tensors;
  std::string key;
  template <class T>
  void put(const T& v) {
    key.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
};
/// Reads them back in the same order.
struct CallReader {
  const Tensor* tensor;
  const char* key;
  template <class T>
  T get() {
    T v;
    __builtin_memcpy(&v, key, sizeof v);
    key += sizeof v;
    return v;
  }
};

/// A struct with `template <class V> void fields(V& v) { v("x", x); ... }`.
struct AnyField {
  template <class T>
  void operator()(const char*, T&) {}
};
template <class T>
concept HasFields = requires(T& t, AnyField& v) {
  t.fields(v);
};
template <class T>
inline constexpr bool kIsHandle =
    std::is_same_v<T, Tensor> || std::is_same_v<T, Param> || std::is_same_v<T, Buffer>;

template <class T>
struct Packed {
  static_assert(kIsHandle<T> || std::is_arithmetic_v<T> || std::is_enum_v<T> || HasFields<T>,
                "a compiled function takes and gives tensors, numbers, enums, strings, and tuples, "
                "vectors, arrays, optionals and structs (with fields()) of these");
  using Type = std::conditional_t<kIsHandle<T>, Tensor, T>;
  static void flatten(const T& v, CallParts& f) {
    if constexpr (kIsHandle<T>) {
      const Tensor t = v;
      f.put(static_cast<char>(t.defined()));
      if (t.defined()) f.tensors.push_back(t);
    } else if constexpr (HasFields<T>) {
      auto visit = [&f](const char*, auto& field) {
        Packed<std::remove_cvref_t<decltype(field)>>::flatten(field, f);
      };
      const_cast<T&>(v).fields(visit);
    } else {
      f.put(v);
    }
  }
  static Type rebuild(CallReader& u) {
    if constexpr (kIsHandle<T>) {
      return u.get<char>() ? *u.tensor++ : Tensor();
    } else if constexpr (HasFields<T>) {
      T v{};
      auto visit = [&u](const char*, auto& field) {
        field = Packed<std::remove_cvref_t<decltype(field)>>::rebuild(u);
      };
      v.fields(visit);
      return v;
    } else {
      return u.get<T>();
    }
  }
};

template <class T>
struct Packed<std::vector<T>> {
  using Type = std::vector<typename Packed<T>::Type>;
  static void flatten(const std::vector<T>& v, CallParts& f) {
    f.put(v.size());
    for (size_t i = 0; i < v.size(); ++i) Packed<T>::flatten(v[i], f);
  }
  static Type rebuild(CallReader& u) {
    Type v;
    for (size_t n = u.get<size_t>(); n > 0; --n) v.push_back(Packed<T>::rebuild(u));
    return v;
  }
};
template <class T, size_t N>
struct Packed<std::array<T, N>> {
  using Type = std::array<typename Packed<T>::Type, N>;
  static void flatten(const std::array<T, N>& v, CallParts& f) {
    for (const T& x : v) Packed<T>::flatten(x, f);
  }
  static Type rebuild(CallReader& u) {
    Type v;
    for (auto& x : v) x = Packed<T>::rebuild(u);
    return v;
  }
};
template <class T>
struct Packed<std::optional<T>> {
  using Type = std::optional<typename Packed<T>::Type>;
  static void flatten(const std::optional<T>& v, CallParts& f) {
    f.put(static_cast<char>(v.has_value()));
    if (v) Packed<T>::flatten(*v, f);
  }
  static Type rebuild(CallReader& u) {
    if (!u.get<char>()) return std::nullopt;
    return Packed<T>::rebuild(u);
  }
};
template <class... T>
struct Packed<std::tuple<T...>> {
  using Type = std::tuple<typename Packed<T>::Type...>;
  static void flatten(const std::tuple<T...>& v, CallParts& f) {
    std::apply([&](const T&... x) { (Packed<T>::flatten(x, f), ...); }, v);
  }
  static Type rebuild(CallReader& u) { return Type{Packed<T>::rebuild(u)...}; }  // braces: in order
};
template <class A, class B>
struct Packed<std::pair<A, B>> {
  using Type = std::pair<typename Packed<A>::Type, typename Packed<B>::Type>;
  static void flatten(const std::pair<A, B>& v, CallParts& f) {
    Packed<A>::flatten(v.first, f);
    Packed<B>::flatten(v.second, f);
  }
  static Type rebuild(CallReader& u) {
    auto first = Packed<A>::rebuild(u);
    return {std::move(first), Packed<B>::rebuild(u)};
  }
};
template <>
struct Packed<std::string> {
  using Type = std::string;
  static void flatten(const std::string& v, CallParts& f) {
    f.put(v.size());
    f.key += v;
  }
  static Type rebuild(CallReader& u) {
    size_t n = u.get<size_t>();
    std::string v(u.key, n);
    u.key += n;
    return v;
  }
};

}  // namespace tandem::detail
