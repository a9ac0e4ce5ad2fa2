// SPDX-License-Identifier: Apache-2.0
// Own f32 derivative of a depthwise convolution with respect to its weight: gw[c][tap] = sum over
// pixels of gy[pixel][c] x[pixel + tap][c], over channels-last rows. Rows of outputs are split into
// parts determined by the shape, each with sums [tap][c] of its own that are added in order: bits
// do not depend on threads.
#include <algorithm>

#include "tandem/backend/cpu/conv/channel_loops.h"
#include "tandem/backend/cpu/conv/conv_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/conv/conv.h"

namespace tandem::detail {
namespace {

constexpr int64_t kMostParts = 16;
constexpr int64_t kPartProducts = 1 << 17;  ///< at least, of one part

bool supports(const KernelCall& c) {
  const auto& a = c.get_attrs<ConvAttrs>();
  return conv_supports_f32(c) && a.groups > 1 && c.in[0].shape[1] == a.groups &&
         c.in[1].shape[1] == a.groups;
}

std::shared_ptr<const Plan> prepare(const KernelCall& c) {
  auto plan = std::make_shared<ConvPlan>();
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.out[0], c.in[1]);
  plan->first = plan->activation(c.in[0]);
  plan->second = plan->activation(c.in[1]);
  const int64_t rows = s.n * s.axis[0].out * s.axis[1].out;
  const int64_t products = s.n * s.pixels * s.taps * s.c;
  plan->parts = std::clamp<int64_t>(products / kPartProducts, 1, std::min(kMostParts, rows));
  plan->parts_at = plan->take(conv_bytes(plan->parts * s.taps * s.c));
  return plan;
}

// Adds output row `row`, counted over samples and depth, to sum [tap][c].
void add_row(const ConvSizes& s, const float* x, const float* gy, int64_t row, float* sum) {
  const ConvSizes::Axis &d = s.axis[0], &h = s.axis[1], &w = s.axis[2];
  const int64_t n = row / (d.out * h.out), od = row / h.out % d.out, oh = row % h.out;
  DepthwiseWeightRow r{};
  r.gy = gy + row * w.out * s.c;
  r.c = s.c;
  r.in_w = w.in;
  r.w = w.out;
  r.left = w.padding;
  r.stride = w.stride;
  r.dilation = w.dilation;
  r.kernel_w = static_cast<int>(w.kernel);
  for (int64_t kd = 0; kd < d.kernel; ++kd)
    for (int64_t kh = 0; kh < h.kernel; ++kh) {
      const int64_t id = d.at(od, kd), ih = h.at(oh, kh);
      if (id < 0 || id >= d.in || ih < 0 || ih >= h.in) continue;
      r.x = x + ((n * d.in + id) * h.in + ih) * w.in * s.c;
      r.sum = sum + (kd * h.kernel + kh) * w.kernel * s.c;
      channel_loops().depthwise_weight(r);
    }
}

void run(const KernelCall& c) {
  const auto& plan = *static_cast<const ConvPlan*>(c.plan);
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.out[0], c.in[1]);
  const float* x = conv_read(c, 0, plan.first);
  const float* gy = conv_read(c, 1, plan.second);
  auto* partial = reinterpret_cast<float*>(conv_scratch(c, plan.parts_at));
  const int64_t size = s.taps * s.c, rows = s.n * s.axis[0].out * s.axis[1].out;
  parallel_for(0, plan.parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      float* sum = partial + p * size;
      std::fill_n(sum, size, 0.0f);
      for (int64_t r = rows * p / plan.parts; r < rows * (p + 1) / plan.parts; ++r)
        add_row(s, x, gy, r, sum);
    }
  });
  auto* gw = c.out[0].as<float>();
  parallel_for(0, s.c, 1 + 8192 / s.taps, [&](int64_t first, int64_t last) {
    for (int64_t t = 0; t < s.taps; ++t) {
      float* sum = partial + t * s.c;
      for (int64_t p = 1; p < plan.parts; ++p)
        for (int64_t i = first; i < last; ++i) sum[i] += sum[p * size + i];
      for (int64_t i = first; i < last; ++i) gw[i * s.taps + t] = sum[i];
    }
  });
}

}  // namespace

void register_depthwise_weight_kernel() {
  register_kernel(DeviceKind::cpu, op::conv_backward_weight, {supports, nullptr, prepare, run});
}

}  // namespace tandem::detail
