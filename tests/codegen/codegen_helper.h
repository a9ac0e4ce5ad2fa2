// SPDX-License-Identifier: Apache-2.0
// Arrays of any shape, stride and dtype for the kernel tests, filled from a fixed generator, and
// comparison bit by bit (all NaNs are equal).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tandem/base/parallel.h"
#include "tandem/codegen/tile_kernels.h"
#include "tandem/graph/kernel.h"

namespace tandem {

struct Buffer8 {
  std::vector<int64_t> shape, strides;
  std::vector<char> bytes;
  Array array;

  Buffer8(DType t, std::vector<int64_t> s, std::vector<int64_t> st = {}) : shape(std::move(s)) {
    strides = st.empty() ? row_major(shape) : std::move(st);
    int64_t last = 0, numel = 1;
    for (size_t d = 0; d < shape.size(); ++d) {
      last += (std::max<int64_t>(shape[d], 1) - 1) * strides[d];
      numel *= shape[d];
    }
    bytes.assign(static_cast<size_t>(last + 1) * size_of(t) + 64, 0);
    array.data = bytes.data();
    array.shape = shape.data();
    array.strides = strides.data();
    array.numel = numel;
    array.dtype = t;
    array.rank = static_cast<uint8_t>(shape.size());
    array.contiguous = strides == row_major(shape);
  }
  Buffer8(const Buffer8& o) : Buffer8(o.array.dtype, o.shape, o.strides) {
    bytes = o.bytes;
    array.data = bytes.data();
  }
  Buffer8& operator=(const Buffer8&) = delete;

  static std::vector<int64_t> row_major(const std::vector<int64_t>& shape) {
    std::vector<int64_t> s(shape.size());
    int64_t step = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      s[d] = step;
      step *= std::max<int64_t>(shape[d], 1);
    }
    return s;
  }

  /// Element offset of row-major position i.
  int64_t offset(int64_t i) const {
    int64_t at = 0;
    for (size_t d = shape.size(); d-- > 0;) {
      at += i % shape[d] * strides[d];
      i /= shape[d];
    }
    return at;
  }
  double get(int64_t i) const {
    double v = 0;
    visit_dtype(array.dtype, [&](auto tag) {
      using T = decltype(tag);
      const T x = reinterpret_cast<const T*>(bytes.data())[offset(i)];
      v = static_cast<double>(x);
    });
    return v;
  }
  int64_t get_int(int64_t i) const {
    int64_t v = 0;
    visit_dtype(array.dtype, [&](auto tag) {
      using T = decltype(tag);
      if constexpr (std::is_integral_v<T>) v = reinterpret_cast<const T*>(bytes.data())[offset(i)];
    });
    return v;
  }
  void set(int64_t i, double v) {
    visit_dtype(array.dtype, [&](auto tag) {
      using T = decltype(tag);
      T& x = reinterpret_cast<T*>(bytes.data())[offset(i)];
      if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
        x = T(static_cast<float>(v));
      else if constexpr (std::is_same_v<T, bool>)
        x = v > 0;
      else
        x = static_cast<T>(v);
    });
  }
  /// Random values; `special` adds NaN, infinities, zeros and range limits.
  void fill(uint64_t seed, bool special = false) {
    std::mt19937_64 gen(seed);
    const bool real = is_floating(array.dtype);
    for (int64_t i = 0; i < array.numel; ++i) {
      double v = std::normal_distribution<double>(0, real ? 2 : 20)(gen);
      if (array.dtype == DType::u8) v = std::fabs(v);
      if (special && gen() % 8 == 0) {
        const double inf = std::numeric_limits<double>::infinity();
        const double odd[] = {0, -0.0, 1, -1, inf, -inf, std::nan(""), 1e-30, 3e38};
        v = real ? odd[gen() % 9] : static_cast<double>(gen() % 3);
      }
      set(i, v);
    }
  }
};

/// Bytes equal, or both NaN.
inline bool same_element(const Buffer8& a, const Buffer8& b, int64_t i) {
  const size_t n = size_of(a.array.dtype);
  const char* p = a.bytes.data() + static_cast<size_t>(a.offset(i)) * n;
  const char* q = b.bytes.data() + static_cast<size_t>(b.offset(i)) * n;
  if (std::memcmp(p, q, n) == 0) return true;
  return is_floating(a.array.dtype) && std::isnan(a.get(i)) && std::isnan(b.get(i));
}
inline ::testing::AssertionResult same_bits(const Buffer8& a, const Buffer8& b) {
  for (int64_t i = 0; i < a.array.numel; ++i) {
    if (same_element(a, b, i)) continue;
    return ::testing::AssertionFailure()
           << "element " << i << " of " << a.array.numel << ": " << a.get(i) << " and " << b.get(i);
  }
  return ::testing::AssertionSuccess();
}

struct ThreadsGuard {
  explicit ThreadsGuard(int n) { set_num_threads(n); }
  ~ThreadsGuard() { set_num_threads(0); }
};
struct TilesGuard {
  explicit TilesGuard(const codegen::TileTable* t) { codegen::use_tiles(t); }
  ~TilesGuard() { codegen::use_tiles(nullptr); }
};

}  // namespace tandem
