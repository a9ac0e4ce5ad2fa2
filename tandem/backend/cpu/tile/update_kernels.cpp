// SPDX-License-Identifier: Apache-2.0
// Steps of Adam and AdamW in f32 as one loop: with many small parameters they are the optimizer's
// whole cost. The same operations in the same order as the rows' expressions, so the same bits;
// other dtypes and variants run the expression.
#include <algorithm>
#include <cmath>

#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/rows/row_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/kernel.h"
#include "tandem/ops/nn/update.h"

namespace tandem::detail {
namespace {

constexpr int kStates = 4;  ///< p, g, m, v; then lr, beta1, beta2, eps, weight_decay, bias1, bias2
constexpr int kNumbers = 7;
constexpr int64_t kGrain = 8192;

bool supports(const KernelCall& c) {
  if (c.n_in != kStates + kNumbers) return false;
  for (int i = 0; i < c.n_in; ++i) {
    const Array& a = c.in[i];
    if (i < kStates ? a.is_scalar || a.dtype != DType::f32 || !a.contiguous : !a.is_scalar)
      return false;
  }
  const Array& p = c.in[0];
  for (int i = 1; i < kStates; ++i)
    if (c.in[i].rank != p.rank || !std::equal(p.shape, p.shape + p.rank, c.in[i].shape))
      return false;
  return true;
}

template <bool decoupled>
void run(const KernelCall& c) {
  const auto number = [&](int i) { return c.in[kStates + i].scalar.to_double(); };
  const double lr = number(0), beta1 = number(1), beta2 = number(2), decay = number(4);
  AdamNumbers a;
  a.keep = static_cast<float>(1 - lr * decay);
  a.weight_decay = static_cast<float>(decay);
  a.gradient = static_cast<float>(1 - beta1);
  a.beta2 = static_cast<float>(beta2);
  a.square = static_cast<float>(1 - beta2);
  a.root = static_cast<float>(std::sqrt(number(6)));
  a.eps = static_cast<float>(number(3));
  a.rate = static_cast<float>(-(lr / number(5)));
  float* to[3];
  for (int i = 0; i < 3; ++i) to[i] = c.out[i].as<float>();
  const float* from[kStates];
  for (int i = 0; i < kStates; ++i) from[i] = c.in[i].as<float>();
  parallel_for(0, c.in[0].numel, kGrain, [&](int64_t first, int64_t last) {
    row_loops().adam(to[0] + first, to[1] + first, to[2] + first, from[0] + first, from[1] + first,
                     from[2] + first, from[3] + first, a, decoupled, last - first);
  });
}

}  // namespace

void register_update_kernels() {
  register_kernel(DeviceKind::cpu, op::adam_update, {supports, nullptr, nullptr, run<false>});
  register_kernel(DeviceKind::cpu, op::adamw_update, {supports, nullptr, nullptr, run<true>});
}

}  // namespace tandem::detail
