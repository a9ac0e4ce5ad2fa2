// SPDX-License-Identifier: Apache-2.0
// layer_norm and rms_norm of f32 rows, forward and backward. Gradients of weight and bias
// are summed in blocks of rows whose number depends only on the shape. Other dtypes and layouts run
// the rows' bodies.
#include <algorithm>
#include <cmath>

#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/rows/row_internal.h"
#include "tandem/base/math_prelude.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/nn/norm.h"

namespace tandem::detail {
namespace {

int64_t row_grain(int64_t n) { return std::max<int64_t>(1, 8192 / std::max<int64_t>(n, 1)); }

bool dense_f32(const Array& a) { return a.dtype == DType::f32 && a.contiguous && !a.is_scalar; }
bool absent_or_dense(const KernelCall& c, int i) {
  return c.n_in <= i || !c.in[i].present() || dense_f32(c.in[i]);
}
const float* data_or_null(const KernelCall& c, int i) {
  return c.n_in > i && c.in[i].present() ? c.in[i].as<float>() : nullptr;
}

// ---- layer_norm, rms_norm

// The elements that one statistic covers.
int64_t norm_size(const Array& x, int64_t dims) {
  int64_t n = 1;
  for (int d = x.rank - static_cast<int>(dims); d < x.rank; ++d) n *= x.shape[d];
  return n;
}

bool norm_supports(const KernelCall& c) {
  return dense_f32(c.in[0]) && c.in[0].numel > 0 && absent_or_dense(c, 1) && absent_or_dense(c, 2);
}

float rstd_of(float squares, int64_t n, double eps) {
  return tdm_rsqrtf(squares / static_cast<float>(n) + static_cast<float>(eps));
}

template <bool kCentred>
void norm_run(const KernelCall& c) {
  const auto& a = c.get_attrs<NormAttrs>();
  const RowLoops& l = row_loops();
  const int64_t n = norm_size(c.in[0], a.dims);
  const float* x = c.in[0].as<float>();
  const float *w = data_or_null(c, 1), *b = kCentred ? data_or_null(c, 2) : nullptr;
  float* y = c.out[0].as<float>();
  float* means = kCentred ? c.out[1].as<float>() : nullptr;
  float* rstds = c.out[kCentred ? 2 : 1].as<float>();
  parallel_for(0, c.in[0].numel / n, row_grain(n), [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const float* row = x + r * n;
      const float mean = kCentred ? l.sum(row, n) / static_cast<float>(n) : 0.0f;
      const float rstd = rstd_of(l.square_sum(row, mean, n), n, a.eps);
      l.normalise(y + r * n, row, mean, rstd, w, b, n);
      if (means) means[r] = mean;
      if (rstds) rstds[r] = rstd;
    }
  });
}

constexpr int64_t kRowBlocks = 16, kLeastRows = 32;

struct NormPlan : Plan {
  int64_t blocks = 1;
};

std::shared_ptr<const Plan> norm_backward_prepare(const KernelCall& c) {
  const auto& a = c.get_attrs<NormBackwardAttrs>();
  auto plan = std::make_shared<NormPlan>();
  const int64_t n = norm_size(c.in[1], a.dims), rows = c.in[1].numel / n;
  plan->blocks = std::clamp<int64_t>(rows / kLeastRows, 1, kRowBlocks);
  if (a.weight || a.bias)
    plan->workspace = static_cast<size_t>(2 * plan->blocks * n) * sizeof(float);
  return plan;
}

bool norm_backward_supports(const KernelCall& c) {
  if (c.in[1].numel == 0) return false;
  for (int i = 0; i + 1 < c.op.n_in; ++i)
    if (!dense_f32(c.in[i])) return false;
  return absent_or_dense(c, c.op.n_in - 1);
}

void sum_blocks(const float* partial, int64_t blocks, int64_t n, float* out) {
  const RowLoops& l = row_loops();
  parallel_for(0, n, 4096, [&](int64_t first, int64_t last) {
    std::copy(partial + first, partial + last, out + first);
    for (int64_t b = 1; b < blocks; ++b) l.add(out + first, partial + b * n + first, last - first);
  });
}

template <bool kCentred>
void norm_backward_run(const KernelCall& c) {
  const auto& a = c.get_attrs<NormBackwardAttrs>();
  const auto& plan = *static_cast<const NormPlan*>(c.plan);
  const RowLoops& l = row_loops();
  const int64_t n = norm_size(c.in[1], a.dims), rows = c.in[1].numel / n;
  const float *gy = c.in[0].as<float>(), *x = c.in[1].as<float>();
  const float* means = kCentred ? c.in[2].as<float>() : nullptr;
  const float* rstds = c.in[kCentred ? 3 : 2].as<float>();
  const float* w = data_or_null(c, c.op.n_in - 1);
  float* gx = c.out[0].as<float>();
  auto* gw = a.weight ? static_cast<float*>(c.scratch) : nullptr;
  auto* gb = kCentred && a.bias ? static_cast<float*>(c.scratch) + plan.blocks * n : nullptr;
  parallel_for(0, plan.blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      float* gwb = gw ? gw + block * n : nullptr;
      float* gbb = gb ? gb + block * n : nullptr;
      if (gwb) std::fill_n(gwb, n, 0.0f);
      if (gbb) std::fill_n(gbb, n, 0.0f);
      for (int64_t r = rows * block / plan.blocks; r < rows * (block + 1) / plan.blocks; ++r) {
        const float mean = means ? means[r] : 0.0f, rstd = rstds[r];
        const float *g = gy + r * n, *v = x + r * n;
        float sums[2];
        l.norm_sums(g, v, w, mean, rstd, n, sums);
        const auto size = static_cast<float>(n);
        l.norm_grad(gx + r * n, g, v, w, mean, rstd, kCentred ? sums[0] / size : 0.0f,
                    sums[1] / size, rstd, n);
        if (gwb || gbb) l.norm_columns(gwb, gbb, g, v, mean, rstd, n);
      }
    }
  });
  if (gw) sum_blocks(gw, plan.blocks, n, c.out[1].as<float>());
  if (gb) sum_blocks(gb, plan.blocks, n, c.out[2].as<float>());
}

}  // namespace

const RowLoops& row_loops() {
  static const RowLoops& best = cpu_features().avx512 ? kRowsAvx512
                                : cpu_features().avx2 ? kRowsAvx2
                                                      : kRowsBase;
  return best;
}

void register_norm_kernels() {
  auto add = [](const OpDef& op, const Kernel& k) { register_kernel(DeviceKind::cpu, op, k); };
  register_softmax_kernels();
  add(op::layer_norm, {norm_supports, nullptr, nullptr, norm_run<true>});
  add(op::rms_norm, {norm_supports, nullptr, nullptr, norm_run<false>});
  add(op::layer_norm_backward,
      {norm_backward_supports, nullptr, norm_backward_prepare, norm_backward_run<true>});
  add(op::rms_norm_backward,
      {norm_backward_supports, nullptr, norm_backward_prepare, norm_backward_run<false>});
  register_batch_norm_kernels();
}

}  // namespace tandem::detail
