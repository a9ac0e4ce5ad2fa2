// SPDX-License-Identifier: Apache-2.0
// Loops of nonzero, one_hot and bincount.
#include <algorithm>

#include "tandem/base/parallel.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/index/index_reference_internal.h"
#include "tandem/ops/view/strided_copy_internal.h"

namespace tandem::detail {
void run_nonzero(const KernelCall& k) {
  const NonzeroAttrs& a = k.get_attrs<NonzeroAttrs>();
  const Array &x = k.in[0], &y = k.out[0];
  int64_t row = 0;
  int64_t* out = y.as<int64_t>();
  visit_dtype(x.dtype, [&](auto tag) {
    using T = decltype(tag);
    int64_t at[kMaxRank] = {};
    for (int64_t e = 0; e < x.numel && row < a.size; ++e) {
      int64_t offset = 0;
      for (int i = 0; i < x.rank; ++i) offset += at[i] * x.strides[i];
      if (is_nonzero(x.as<T>()[offset])) {
        std::copy_n(at, x.rank, out + row * x.rank);
        ++row;
      }
      for (int i = x.rank - 1; i >= 0 && ++at[i] == x.shape[i]; --i) at[i] = 0;
    }
  });
  std::fill(out + row * x.rank, out + a.size * x.rank, a.fill);
}

void run_one_hot(const KernelCall& k) {
  const Array &x = k.in[0], &y = k.out[0];
  const int64_t n = k.get_attrs<OneHotAttrs>().num_classes;
  zero_array(y);
  int64_t at[kMaxRank] = {};
  for (int64_t e = 0; e < x.numel; ++e) {
    int64_t offset = 0;
    for (int i = 0; i < x.rank; ++i) offset += at[i] * x.strides[i];
    const int64_t c = index_at(x.data, x.dtype, offset);
    if (c < 0 || c >= n)
      report_error(k, 1, c);
    else
      y.as<int64_t>()[e * n + c] = 1;
    for (int i = x.rank - 1; i >= 0 && ++at[i] == x.shape[i]; --i) at[i] = 0;
  }
}

void run_bincount(const KernelCall& k) {
  const Array &x = k.in[0], &y = k.out[0];
  const int64_t n = k.get_attrs<BincountAttrs>().size;
  zero_array(y);
  for (int64_t e = 0; e < x.numel; ++e) {
    const int64_t c = index_at(x.data, x.dtype, e * x.strides[0]);
    if (c < 0 || c >= n)
      report_error(k, 1, c);
    else
      ++y.as<int64_t>()[c];
  }
}

}  // namespace tandem::detail
