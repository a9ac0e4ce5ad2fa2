// SPDX-License-Identifier: Apache-2.0
// copy of f32 arrays whose last two dimensions are swapped in memory (transposes, channels-last to
// row-major and back), by blocks in registers. Other copies run the row's reference.
#include <algorithm>

#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/apply.h"

namespace tandem::detail {
namespace {

constexpr int64_t kLeast = 16;  ///< columns that fill a vector
constexpr int64_t kRows = 64;   ///< per piece of work

// x as a batch of matrices [m, n] whose columns are contiguous, `step` apart.
struct Transposed {
  int64_t m = 0, n = 0, step = 0;
  int lead = 0;  ///< leading dimensions that count the batch

  bool fill(const Array& x) {
    if (x.rank < 2 || x.contiguous || !x.strides) return false;
    if (is_channels_last(x)) {
      lead = 1;
      m = step = x.shape[1];
      n = 1;
      for (int d = 2; d < x.rank; ++d) n *= x.shape[d];
    } else {
      lead = x.rank - 2;
      m = x.shape[lead];
      n = x.shape[lead + 1];
      step = x.strides[lead + 1];
      if (x.strides[lead] != 1) return false;
    }
    return m >= 4 && n >= kLeast && step >= m;
  }
};

// Outputs without strides become row-major ones.
bool leaves_rows(const KernelCall& c) {
  return c.out[0].strides && !c.out[0].contiguous && is_channels_last(c.out[0]);
}

bool supports(const KernelCall& c) {
  if (c.in[0].dtype != DType::f32) return false;
  if (leaves_rows(c)) return c.in[0].contiguous;
  Transposed t;
  return (!c.out[0].strides || c.out[0].contiguous) && t.fill(c.in[0]);
}

void run(const KernelCall& c) {
  if (leaves_rows(c)) return to_channels_last(c.in[0], c.out[0].data);
  const Array& x = c.in[0];
  Transposed t;
  t.fill(x);
  int64_t batches = 1;
  for (int d = 0; d < t.lead; ++d) batches *= x.shape[d];
  const int64_t pieces = (t.m + kRows - 1) / kRows;
  const MicroTable<float>& table = micro_table<float>();
  parallel_for(0, batches * pieces, 1 + 16384 / (std::min(t.m, kRows) * t.n),
               [&](int64_t first, int64_t last) {
                 for (int64_t u = first; u < last; ++u) {
                   const int64_t batch = u / pieces, m0 = u % pieces * kRows;
                   int64_t from = m0, rest = batch;
                   for (int d = t.lead; d-- > 0; rest /= x.shape[d])
                     from += rest % x.shape[d] * x.strides[d];
                   table.transpose(c.out[0].as<float>() + (batch * t.m + m0) * t.n, t.n,
                                   x.as<float>() + from, t.step, t.n, std::min(kRows, t.m - m0));
                 }
               });
}

}  // namespace

void register_transpose_kernels() {
  register_kernel(DeviceKind::cpu, op::copy, {supports, nullptr, nullptr, run});
}

}  // namespace tandem::detail
