// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "tandem/base/error.h"
#include "tandem/base/parallel.h"
#include "tandem/dist/reduce_internal.h"

namespace tandem::distributed {
namespace {

constexpr int64_t kBlock = 512;

// What elements of T are added up in.
template <class T>
struct SumOf {
  using type = std::conditional_t<std::is_integral_v<T>, T, float>;
};
template <>
struct SumOf<double> {
  using type = double;
};

template <class A>
A combine(A a, A b, ReduceOp op) {
  if (op == ReduceOp::sum) {
    if constexpr (std::is_integral_v<A>) {
      using U = std::make_unsigned_t<A>;
      return static_cast<A>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
  if (a != a) return a;  // NaN
  if (b != b) return b;
  return op == ReduceOp::min ? std::min(a, b) : std::max(a, b);
}

/// Elements of a block: kBlock, which compilers make vector code of, or what is left of an array.
using WholeBlock = std::integral_constant<int64_t, kBlock>;

template <class A, class N>
void add_block(A* __restrict a, const A* __restrict b, N n) {
  for (int64_t i = 0; i < n; ++i) a[i] = combine(a[i], b[i], ReduceOp::sum);
}

// The reduction of some parts' elements [at, at + n) into `to`, which overlaps none of them.
template <class T, class A, class N>
void reduce_block(std::span<const void* const> parts, int64_t at, N n, ReduceOp op,
                  A* __restrict to) {
  const auto elements = [&](size_t r) { return static_cast<const T*>(parts[r]) + at; };
  if (parts.size() == 1) {
    const T* __restrict from = elements(0);
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<A>(from[i]);
    return;
  }
  if constexpr (std::is_same_v<T, A>)
    if (op == ReduceOp::sum && parts.size() == 2) {
      const T* __restrict a = elements(0);
      const T* __restrict b = elements(1);
      for (int64_t i = 0; i < n; ++i) to[i] = combine(a[i], b[i], ReduceOp::sum);
      return;
    }
  const size_t half = std::bit_floor(parts.size() - 1);
  reduce_block<T>(parts.first(half), at, n, op, to);
  if constexpr (std::is_same_v<T, A>)
    if (op == ReduceOp::sum && half + 1 == parts.size()) return add_block(to, elements(half), n);
  A right[kBlock];
  reduce_block<T>(parts.subspan(half), at, n, op, right);
  if (op == ReduceOp::sum)
    add_block(to, right, n);
  else
    for (int64_t i = 0; i < n; ++i) to[i] = combine(to[i], right[i], op);
}

// to[i] = from[i], rounded to T, then divided.
template <class T, class A, class N>
void store_block(const A* __restrict from, N n, double divisor, T* __restrict to) {
  if constexpr (!std::is_integral_v<T>) {
    int exponent = 0;
    if (divisor != 1 && std::frexp(divisor, &exponent) == 0.5) {  // the same bits, and faster
      const A by = static_cast<A>(1 / divisor);
      for (int64_t i = 0; i < n; ++i)
        to[i] = static_cast<T>(static_cast<A>(static_cast<T>(from[i])) * by);
      return;
    }
    if (divisor != 1) {
      const A d = static_cast<A>(divisor);
      for (int64_t i = 0; i < n; ++i)
        to[i] = static_cast<T>(static_cast<A>(static_cast<T>(from[i])) / d);
      return;
    }
  }
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
}

}  // namespace

void reduce_parts(std::span<const void* const> parts, void* out, int64_t n, DType dtype,
                  ReduceOp op, double divisor) {
  visit_dtype(dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (std::is_same_v<T, bool>) {
      TD_FAIL(Internal, "a reduction of bool");
    } else {
      using A = typename SumOf<T>::type;
      A sum[kBlock];
      const auto block = [&](int64_t at, auto m) {
        reduce_block<T>(parts, at, m, op, sum);
        store_block(sum, m, divisor, static_cast<T*>(out) + at);
      };
      int64_t at = 0;
      for (; at + kBlock <= n; at += kBlock) block(at, WholeBlock());
      if (at < n) block(at, n - at);
    }
  });
}

void divide(Array a, double divisor) {
  visit_dtype(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (!std::is_integral_v<T>) {
      using A = typename SumOf<T>::type;
      T* p = static_cast<T*>(a.data);
      const A d = static_cast<A>(divisor);
      parallel_for(0, a.count, 1 << 16, [&](int64_t b, int64_t e) {
        for (int64_t i = b; i < e; ++i) p[i] = static_cast<T>(static_cast<A>(p[i]) / d);
      });
    } else {
      TD_FAIL(Internal, "a division of {}", to_string(a.dtype));
    }
  });
}

}  // namespace tandem::distributed
