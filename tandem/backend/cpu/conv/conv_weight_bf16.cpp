// SPDX-License-Identifier: Apache-2.0
// The bf16 derivative of 1x1 convolutions with respect to the weight: over rows of
// channels it is one matmul, gy^T x, whose depth is the pixels of all samples.
#include <cstring>

#include "tandem/backend/cpu/conv/conv_internal.h"
#include "tandem/backend/cpu/conv/pixels_bf16_internal.h"
#include "tandem/backend/cpu/gemm/matmul_bf16_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/conv/conv.h"

namespace tandem::detail {

Pixels pixels_of(const Array& a, size_t& workspace) {
  Pixels p;
  p.step = a.strides[a.rank - 1];
  int64_t expected = p.step;
  bool rows = a.strides[1] == 1 && p.step >= a.shape[1];
  for (int d = a.rank - 1; d >= 0; --d) {
    if (d == 1) continue;
    rows = rows && (a.shape[d] == 1 || a.strides[d] == expected);
    expected *= a.shape[d];
  }
  if (rows) return p;
  p = {true, workspace, a.shape[1]};
  workspace += whole_lines(static_cast<size_t>(a.numel) * sizeof(uint16_t));
  return p;
}
const uint16_t* read_pixels(const KernelCall& c, int i, const Pixels& p) {
  if (!p.copied) return c.in[i].as<uint16_t>();
  char* to = static_cast<char*>(c.scratch) + p.at;
  to_channels_last(c.in[i], to);
  return reinterpret_cast<const uint16_t*>(to);
}

ConvSizes weight_sizes(const KernelCall& c) {
  return ConvSizes(c.get_attrs<ConvAttrs>(), c.in[0], c.out[0], c.in[1]);
}

namespace {

constexpr int64_t kMostPixels = 4096;  ///< the panels of more would leave the second-level cache

struct PointPlan : Bf16MatmulPlan {
  Pixels x, gy;
  bool gathers = false;
  size_t pixels_at = 0;  ///< the pixels of x that a stride leaves, as rows
};

MatmulProblem problem_of(const ConvSizes& s, int64_t x_step, int64_t gy_step) {
  MatmulProblem p;
  p.m = s.o;
  p.n = s.c;
  p.k = s.n * s.pixels;
  p.am = p.bn = 1;
  p.ak = gy_step;
  p.bk = x_step;
  return p;
}

bool supports(const KernelCall& c) {
  const Array* const all[] = {&c.in[0], &c.in[1], &c.out[0]};
  for (const Array* a : all)
    if (a->dtype != DType::bf16) return false;
  if (!conv_supports_floats(c)) return false;
  const ConvSizes s = weight_sizes(c);
  for (const ConvSizes::Axis& a : s.axis)
    if (a.kernel != 1 || a.padding != 0 || (a.out - 1) * a.stride >= a.in) return false;
  return s.groups == 1 && s.n * s.pixels <= kMostPixels &&
         takes_matmul_bf16(problem_of(s, s.c, s.o));
}

std::shared_ptr<const Plan> prepare(const KernelCall& c) {
  auto plan = std::make_shared<PointPlan>();
  const ConvSizes s = weight_sizes(c);
  size_t more = 0;
  plan->x = pixels_of(c.in[0], more);
  plan->gy = pixels_of(c.in[1], more);
  plan->gathers = s.pixels != s.in_pixels;
  plan->pixels_at = more;
  if (plan->gathers)
    more += whole_lines(static_cast<size_t>(s.n * s.pixels * s.c) * sizeof(uint16_t));
  plan_matmul_bf16(*plan, problem_of(s, plan->gathers ? s.c : plan->x.step, plan->gy.step));
  for (size_t* at : {&plan->x.at, &plan->gy.at, &plan->pixels_at}) *at += plan->workspace;
  plan->workspace += more;
  return plan;
}

// The pixels of x that outputs read, in their order.
void gather_pixels(const ConvSizes& s, const uint16_t* x, int64_t step, uint16_t* to) {
  const ConvSizes::Axis &d = s.axis[0], &h = s.axis[1], &w = s.axis[2];
  parallel_for(0, s.n * d.out * h.out, 1 + 16384 / (w.out * s.c), [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const int64_t n = r / (d.out * h.out), od = r / h.out % d.out, oh = r % h.out;
      const int64_t row = ((n * d.in + od * d.stride) * h.in + oh * h.stride) * w.in;
      for (int64_t ow = 0; ow < w.out; ++ow)
        std::memcpy(to + (r * w.out + ow) * s.c, x + (row + ow * w.stride) * step,
                    static_cast<size_t>(s.c) * sizeof(uint16_t));
    }
  });
}

void run(const KernelCall& c) {
  const auto& plan = *static_cast<const PointPlan*>(c.plan);
  const uint16_t *x = read_pixels(c, 0, plan.x), *gy = read_pixels(c, 1, plan.gy);
  if (plan.gathers) {
    auto* to = reinterpret_cast<uint16_t*>(static_cast<char*>(c.scratch) + plan.pixels_at);
    gather_pixels(weight_sizes(c), x, plan.x.step, to);
    x = to;
  }
  run_matmul_bf16(plan, gy, x, nullptr, c.out[0].as<uint16_t>(), c.scratch, nullptr);
}

}  // namespace

void register_conv_weight_bf16() {
  register_kernel(DeviceKind::cpu, op::conv_backward_weight, {supports, nullptr, prepare, run});
}

}  // namespace tandem::detail
