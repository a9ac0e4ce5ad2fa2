// SPDX-License-Identifier: Apache-2.0
// depthwise_conv: each channel of channels-last rows has its own small kernel. Rows above and below
// the image are one shared row of zeros; columns outside are skipped.
#include <algorithm>

#include "tandem/backend/cpu/conv/channel_loops.h"
#include "tandem/backend/cpu/gemm/packed_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"

namespace tandem::detail {
namespace {

constexpr int kMostRows = 16;            ///< of a kernel
constexpr int64_t kUnitElements = 8192;  ///< of the result, between two calls of an epilogue

struct DepthwisePlan : EpiloguePlan {
  int workers = 1;
  int64_t blocks = 1;  ///< of a sample's output rows: a unit each
};

void run_with(const KernelCall& c, const Epilogue& e);

std::shared_ptr<const Plan> prepare(const KernelCall& c) {
  auto plan = std::make_shared<DepthwisePlan>();
  const Array &x = c.in[0], &y = c.out[0];
  const int64_t rows = std::max<int64_t>(1, kUnitElements / (y.shape[2] * y.shape[3]));
  plan->blocks = (y.shape[1] + rows - 1) / rows;
  plan->workers = static_cast<int>(std::min<int64_t>(num_threads(), y.shape[0] * plan->blocks));
  if (y.shape[0] * plan->blocks % plan->workers != 0)
    plan->blocks = std::min(even_units(plan->blocks, plan->workers), y.shape[1]);
  plan->workspace = static_cast<size_t>(x.shape[2] * x.shape[3]) * sizeof(float);
  plan->run_with = run_with;
  return plan;
}

void run_depthwise(const KernelCall& c, const Epilogue* e) {
  const auto& plan = *static_cast<const DepthwisePlan*>(c.plan);
  const auto& a = c.get_attrs<PackedAttrs>();
  const Array &x = c.in[0], &y = c.out[0];
  const int64_t channels = x.shape[3], in_h = x.shape[1], in_w = x.shape[2], h = y.shape[1],
                w = y.shape[2];
  auto* zeros = static_cast<float*>(c.scratch);
  std::fill_n(zeros, in_w * channels, 0.0f);
  const FusedEpilogue fused = fused_epilogue_of(c);
  const int64_t blocks = plan.blocks, units = x.shape[0] * blocks;
  share_units(plan.workers, units, [&](size_t, int64_t u) {
    const float* rows[kMostRows];
    DepthwiseRow r{};
    r.rows = rows;
    r.weight = c.in[1].as<float>();
    r.bias = c.n_in > 2 && c.in[2].present() ? c.in[2].as<float>() : nullptr;
    r.c = channels;
    r.in_w = in_w;
    r.w = w;
    r.left = a.padding[1].value();
    r.kernel_h = static_cast<int>(a.kernel[0].value());
    r.kernel_w = static_cast<int>(a.kernel[1].value());
    r.stride = static_cast<int>(a.stride[0].value());
    const int64_t n = u / blocks, b = u % blocks;
    const int64_t h0 = h * b / blocks, h1 = h * (b + 1) / blocks;
    for (int64_t o = h0; o < h1; ++o) {
      for (int k = 0; k < r.kernel_h; ++k) {
        const int64_t at = o * r.stride - a.padding[0].value() + k;
        rows[k] = at < 0 || at >= in_h ? zeros : x.as<float>() + (n * in_h + at) * in_w * channels;
      }
      r.y = y.as<float>() + (n * h + o) * w * channels;
      channel_loops().depthwise(r);
      finish_block(fused, y.as<float>(), r.y, 0, 1, w * channels);
    }
    if (e) e->run(*e, (n * h + h0) * w, (n * h + h1) * w, 0, channels);
  });
}
void run_with(const KernelCall& c, const Epilogue& e) { run_depthwise(c, &e); }
void run(const KernelCall& c) { run_depthwise(c, nullptr); }

bool supports(const KernelCall& c) {
  const auto& a = c.get_attrs<PackedAttrs>();
  for (int i = 0; i < c.n_in; ++i)
    if (c.in[i].present() && (c.in[i].is_scalar || c.in[i].dtype != DType::f32 ||
                              !c.in[i].contiguous || c.in[i].numel == 0))
      return false;
  return a.kernel[0].value() <= kMostRows && a.stride[0].value() == a.stride[1].value();
}
EpilogueKind blocks(const KernelCall&) { return EpilogueKind::blocks; }

}  // namespace

void register_depthwise_conv() {
  register_epilogue(prepare, blocks);
  register_kernel(DeviceKind::cpu, op::depthwise_conv, {supports, nullptr, prepare, run});
}

}  // namespace tandem::detail
