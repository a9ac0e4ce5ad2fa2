// SPDX-License-Identifier: Apache-2.0
#include "tandem/graph/run/channels_last.h"

namespace tandem::detail {

bool channels_innermost(const Array& x) {
  if (x.rank < 3 || x.contiguous || !x.strides || x.strides[1] != 1) return false;
  int64_t inner = x.shape[1];
  for (int k = 0; k + 1 < x.rank; ++k) {
    const int d = k + 2 < x.rank ? x.rank - 1 - k : 0;
    if (x.shape[d] != 1 && x.strides[d] < inner) return false;
    inner = x.shape[d] == 1 ? inner : x.strides[d] * x.shape[d];
  }
  return true;
}

bool is_channels_last(const Array& a) {
  if (a.rank < 3) return false;
  int64_t expect = 1;
  auto fits = [&](int d) {
    if (a.shape[d] != 1 && a.strides[d] != expect) return false;
    expect *= a.shape[d];
    return true;
  };
  if (!fits(1)) return false;
  for (int d = a.rank - 1; d >= 2; --d)
    if (!fits(d)) return false;
  return fits(0);
}

Strides channels_last_strides(const int64_t* shape, int rank) {
  Strides s;
  int64_t step = shape[1];
  s[1] = 1;
  for (int d = rank - 1; d >= 2; --d) {
    s[d] = step;
    step *= shape[d];
  }
  s[0] = step;
  return s;
}

bool keep_most_channels_last(const KernelCall& c, int output, Strides& strides) {
  int64_t last = 0, all = 0;
  for (int i = 0; i < c.n_in; ++i) {
    all += c.in[i].numel;
    if (channels_innermost(c.in[i])) last += c.in[i].numel;
  }
  if (2 * last <= all) return false;
  strides = channels_last_strides(c.out[output].shape, c.out[output].rank);
  return true;
}

}  // namespace tandem::detail
