// SPDX-License-Identifier: Apache-2.0
// GEMM tiles in portable 16-byte vectors, for processors without AVX2. Without fused multiply-adds,
// so its bits differ from those of the other two files.
#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/base/unroll_internal.h"

#include <cstring>

namespace tandem::detail {
namespace {

template <class Element, int N>
struct Portable {
  using T = Element;
  typedef T V __attribute__((vector_size(N * sizeof(T))));
  using Mask = int;
  static constexpr int kWidth = N, kRows = 6;
  static Mask mask(int n) { return n < N ? n : N; }
  static void prefetch(const T* p) { __builtin_prefetch(p); }
  static V zero() { return V{}; }
  static V set1(T x) { return V{} + x; }
  static V load(const T* p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static V load_part(const T* p, Mask m) {
    V v{};
    std::memcpy(&v, p, static_cast<size_t>(m) * sizeof(T));
    return v;
  }
  static void store(T* p, V v) { std::memcpy(p, &v, sizeof v); }
  static void store_part(T* p, Mask m, V v) {
    std::memcpy(p, &v, static_cast<size_t>(m) * sizeof(T));
  }
  static V fma(V a, V b, V c) { return a * b + c; }
  static void transpose(T* to, int64_t to_row, const T* from, int64_t from_row, int64_t n,
                        int64_t depth) {
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t j = 0; j < n; ++j) to[k * to_row + j] = from[j * from_row + k];
  }
};

#include "tandem/backend/cpu/gemm/gemm_micro.inc"

}  // namespace

constinit const GemmTables kGemmBase = {"base", make_table<Portable<float, 4>>(Upto<6>()),
                                        make_table<Portable<double, 2>>(Upto<6>())};

}  // namespace tandem::detail
