// SPDX-License-Identifier: Apache-2.0
// Integer tiles in plain C++, for every processor.
#include <cstring>
#include <utility>

#include "tandem/backend/cpu/gemm/integer_internal.h"
#include "tandem/base/unroll_internal.h"

namespace tandem::detail {
namespace {

struct Plain {
  static constexpr int kWidth = 8, kRows = 2;
  struct V {
    int32_t x[2 * kWidth];  // sums in the first half
  };
  static V zero() { return {}; }
  static V pair(const int16_t* a) {
    V v{};
    v.x[0] = a[0], v.x[1] = a[1];
    return v;
  }
  static V weight(const int8_t* w) {
    V v;
    for (int i = 0; i < 2 * kWidth; ++i) v.x[i] = w[i];
    return v;
  }
  static V add_products(V c, const V& a, const V& w) {
    for (int i = 0; i < kWidth; ++i) {  // wraps
      const int32_t two = a.x[0] * w.x[2 * i] + a.x[1] * w.x[2 * i + 1];
      c.x[i] = static_cast<int32_t>(static_cast<uint32_t>(c.x[i]) + static_cast<uint32_t>(two));
    }
    return c;
  }
  static V load(const int32_t* from, int64_t n) {
    V v{};
    if (n > 0)
      std::memcpy(v.x, from, static_cast<size_t>(n < kWidth ? n : kWidth) * sizeof(int32_t));
    return v;
  }
  static void store(int32_t* to, int64_t n, const V& v) {
    if (n > 0) std::memcpy(to, v.x, static_cast<size_t>(n < kWidth ? n : kWidth) * sizeof(int32_t));
  }
};

#include "tandem/backend/cpu/gemm/integer_loops.inc"

}  // namespace

constinit const IntegerLoops kIntegerBase =
    integer_table<Plain>(std::make_integer_sequence<int, Plain::kRows>());

}  // namespace tandem::detail
