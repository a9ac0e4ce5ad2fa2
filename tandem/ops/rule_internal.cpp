// SPDX-License-Identifier: Apache-2.0
// Dense copies into and out of strided arrays for the reference loops. Called only by the rows'
// references; every element is converted once.
#include "tandem/ops/rule_internal.h"

namespace tandem::detail {
namespace {

// Calls f(offset) for every element in row-major order.
template <class F>
void walk(const Array& a, F&& f) {
  if (a.numel == 0) return;
  int rank = a.rank;
  int64_t at[kMaxRank] = {};
  int64_t offset = 0;
  if (rank == 0) return f(0);
  int64_t inner = a.shape[rank - 1], step = a.strides[rank - 1];
  for (;;) {
    for (int64_t i = 0; i < inner; ++i) f(offset + i * step);
    int d = rank - 2;
    for (; d >= 0; --d) {
      offset += a.strides[d];
      if (++at[d] < a.shape[d]) break;
      offset -= a.strides[d] * a.shape[d];
      at[d] = 0;
    }
    if (d < 0) return;
  }
}

template <class To, class From>
To convert(From v) {
  if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, BFloat16>)
    return convert<To>(static_cast<float>(v));
  else if constexpr (std::is_same_v<To, Half> || std::is_same_v<To, BFloat16>)
    return To(static_cast<float>(v));
  else
    return static_cast<To>(v);
}

template <class T>
void read(const Array& a, T* out) {
  visit_dtype(a.dtype, [&](auto zero) {
    using S = decltype(zero);
    const S* data = static_cast<const S*>(a.data);
    walk(a, [&](int64_t offset) { *out++ = convert<T>(data[offset]); });
  });
}

template <class T>
void write(const T* in, const Array& a) {
  visit_dtype(a.dtype, [&](auto zero) {
    using S = decltype(zero);
    S* data = static_cast<S*>(a.data);
    walk(a, [&](int64_t offset) { data[offset] = convert<S>(*in++); });
  });
}

}  // namespace

void read_dense(const Array& a, double* out) { read(a, out); }
void read_dense(const Array& a, uint64_t* out) { read(a, out); }
void read_dense(const Array& a, float* out) { read(a, out); }
void write_dense(const double* in, const Array& out) { write(in, out); }
void write_dense(const uint64_t* in, const Array& out) { write(in, out); }
void write_dense(const float* in, const Array& out) { write(in, out); }

}  // namespace tandem::detail
