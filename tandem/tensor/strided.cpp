// SPDX-License-Identifier: Apache-2.0
#include "tandem/tensor/strided.h"

#include "tandem/base/copy_bytes.h"
#include "tandem/tensor/device_memory.h"
#include "tandem/tensor/dry_memory.h"

#include <cstring>
#include <limits>
#include <type_traits>

namespace tandem::detail {
namespace {

template <class To, class From>
To convert(From v) {
  if constexpr (std::is_same_v<To, From>) {
    return v;
  } else if constexpr (std::is_same_v<To, bool>) {
    return v != From(0);
  } else if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>) {
    const double d = static_cast<double>(v);
    // The cast is undefined outside this range; the processor's answer is INT64_MIN.
    const int64_t i =
        d >= -0x1p63 && d < 0x1p63 ? static_cast<int64_t>(d) : std::numeric_limits<int64_t>::min();
    return static_cast<To>(i);
  } else if constexpr (std::is_same_v<To, Half> || std::is_same_v<To, BFloat16>) {
    return To(static_cast<float>(v));
  } else {
    return static_cast<To>(v);
  }
}

/// Copy the innermost rows of `t` one by one; `row(src, stride, n, out)` copies one.
template <class Row>
void for_each_row(const TensorImpl& t, size_t out_size, char* out, Row row) {
  const int rank = t.shape.rank();
  if (t.numel == 0) return;
  const int64_t n = rank == 0 ? 1 : t.shape[rank - 1].raw();
  const int64_t step = rank == 0 ? 1 : t.strides[rank - 1];
  const int64_t item = static_cast<int64_t>(size_of(t.dtype));
  const char* src = static_cast<const char*>(t.data);
  int64_t at[kMaxRank] = {};
  for (;;) {
    row(src, step, n, out);
    out += n * static_cast<int64_t>(out_size);
    int d = rank - 2;
    for (; d >= 0; --d) {
      src += t.strides[d] * item;
      if (++at[d] < t.shape[d].raw()) break;
      src -= at[d] * t.strides[d] * item;
      at[d] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace

void convert_elements(const void* src, DType from, void* dst, DType to, int64_t n) {
  if (from == to) {
    if (n > 0) tandem::copy_bytes(dst, src, static_cast<size_t>(n) * size_of(from));
    return;
  }
  visit_dtype(from, [&](auto f) {
    using From = decltype(f);
    const From* s = static_cast<const From*>(src);
    visit_dtype(to, [&](auto g) {
      using To = decltype(g);
      To* d = static_cast<To*>(dst);
      for (int64_t i = 0; i < n; ++i) d[i] = convert<To>(s[i]);
    });
  });
}

void copy_row_major(const TensorImpl& t, void* out, DType dtype) {
  check_has_bytes(t, "copying");
  if (TD_UNLIKELY(t.has(kOnDevice))) {
    if (t.has(kContiguous) && t.dtype == dtype)
      copy_bytes(out, cpu, t.data, t.device, static_cast<size_t>(t.numel) * size_of(dtype));
    else
      copy_row_major(*host_copy(t), out, dtype);
    return;
  }
  if (t.has(kContiguous)) {
    convert_elements(t.data, t.dtype, out, dtype, t.numel);
    return;
  }
  visit_dtype(t.dtype, [&](auto f) {
    using From = decltype(f);
    visit_dtype(dtype, [&](auto g) {
      using To = decltype(g);
      for_each_row(t, sizeof(To), static_cast<char*>(out),
                   [](const char* src, int64_t step, int64_t n, char* dst) {
                     const From* s = reinterpret_cast<const From*>(src);
                     To* d = reinterpret_cast<To*>(dst);
                     for (int64_t i = 0; i < n; ++i) d[i] = convert<To>(s[i * step]);
                   });
    });
  });
}

}  // namespace tandem::detail
