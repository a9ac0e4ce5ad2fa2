// SPDX-License-Identifier: Apache-2.0
// Dense copies into and out of strided arrays for the reference loops. Called only by the rows'
// references; every element is converted once.
#include "tandem/ops/rule_internal.h"

#include "tandem/graph/run/array_walk.h"

namespace tandem::detail {
namespace {

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
    for_each_offset(a, [&](int64_t offset) { *out++ = convert<T>(data[offset]); });
  });
}

template <class T>
void write(const T* in, const Array& a) {
  visit_dtype(a.dtype, [&](auto zero) {
    using S = decltype(zero);
    S* data = static_cast<S*>(a.data);
    for_each_offset(a, [&](int64_t offset) { data[offset] = convert<S>(*in++); });
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
