// SPDX-License-Identifier: Apache-2.0
// bf16 convolutions of images whose windows do not overlap: how vision transformers and ConvNeXt
// cut an image into patches. Each window is copied into a row of its own; the result, and the
// derivative with respect to the weight, are one matmul of these rows. With few channels, since
// tiles of single taps would be mostly empty then.
#include <algorithm>

#include "tandem/backend/cpu/conv/conv_internal.h"
#include "tandem/backend/cpu/conv/pixels_bf16_internal.h"
#include "tandem/backend/cpu/gemm/matmul_bf16_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/conv/conv.h"

namespace tandem::detail {
namespace {

constexpr int64_t kFewChannels = 16;

struct WindowsPlan : Bf16MatmulPlan {
  size_t windows_at = 0;
  Pixels gy;           ///< of the derivative
  ConvActivation y{};  ///< of the result
};

bool are_windows(const KernelCall& c, const ConvSizes& s) {
  for (int i = 0; i < c.n_in; ++i)
    if (c.in[i].present() && c.in[i].dtype != DType::bf16) return false;
  for (const ConvSizes::Axis& a : s.axis)
    if (a.kernel > a.stride || a.padding != 0 || (a.dilation != 1 && a.kernel != 1) ||
        (a.out - 1) * a.stride + a.kernel > a.in)
      return false;
  return s.groups == 1 && s.c < kFewChannels && s.taps > 1;
}

// to[n, od, oh, ow][c, kd, kh, kw], the order of a row of the weight.
void gather_windows(const ConvSizes& s, const Array& x, uint16_t* to) {
  const ConvSizes::Axis &d = s.axis[0], &h = s.axis[1], &w = s.axis[2];
  const auto stride = [&](int back) { return x.rank - back >= 2 ? x.strides[x.rank - back] : 0; };
  const int64_t sd = stride(3), sh = stride(2), sw = stride(1), row = s.c * s.taps;
  const auto* data = x.as<uint16_t>();
  parallel_for(0, s.n * s.pixels, 1 + 16384 / row, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const int64_t ow = r % w.out, oh = r / w.out % h.out, od = r / (w.out * h.out) % d.out;
      const uint16_t* window = data + r / s.pixels * x.strides[0] + od * d.stride * sd +
                               oh * h.stride * sh + ow * w.stride * sw;
      uint16_t* at = to + r * row;
      for (int64_t c = 0; c < s.c; ++c)
        for (int64_t kd = 0; kd < d.kernel; ++kd)
          for (int64_t kh = 0; kh < h.kernel; ++kh, at += w.kernel) {
            const uint16_t* from = window + c * x.strides[1] + kd * sd + kh * sh;
            if (sw == 1)
              std::copy_n(from, w.kernel, at);
            else
              for (int64_t kw = 0; kw < w.kernel; ++kw) at[kw] = from[kw * sw];
          }
    }
  });
}

// Room for the windows, and the plan of the matmul; `more` is the room that its operands take.
void finish_plan(WindowsPlan& plan, const ConvSizes& s, const MatmulProblem& p, size_t more) {
  plan.windows_at = more;
  more += whole_lines(static_cast<size_t>(s.n * s.pixels * s.c * s.taps) * sizeof(uint16_t));
  plan_matmul_bf16(plan, p);
  for (size_t* at : {&plan.gy.at, &plan.y.offset, &plan.windows_at}) *at += plan.workspace;
  plan.workspace += more;
}

const uint16_t* read_windows(const KernelCall& c, const WindowsPlan& plan, const ConvSizes& s) {
  auto* to = reinterpret_cast<uint16_t*>(conv_scratch(c, plan.windows_at));
  gather_windows(s, c.in[0], to);
  return to;
}

// ---- the result

ConvSizes forward_sizes(const KernelCall& c) {
  return ConvSizes(c.get_attrs<ConvAttrs>(), c.in[0], c.in[1], c.out[0]);
}

MatmulProblem forward_problem(const ConvSizes& s) {
  MatmulProblem p;
  p.m = s.n * s.pixels;
  p.n = s.o;
  p.k = p.am = p.bn = s.c * s.taps;
  p.ak = p.bk = 1;
  return p;
}

bool forward_supports(const KernelCall& c) {
  if (!conv_supports_floats(c) || !c.in[1].contiguous) return false;
  const ConvSizes s = forward_sizes(c);
  return are_windows(c, s) && takes_matmul_bf16(forward_problem(s));
}

std::shared_ptr<const Plan> forward_prepare(const KernelCall& c) {
  auto plan = std::make_shared<WindowsPlan>();
  ConvPlan room;
  plan->y = room.activation(c.out[0]);
  const ConvSizes s = forward_sizes(c);
  finish_plan(*plan, s, forward_problem(s), whole_lines(room.workspace));
  return plan;
}

void forward_run(const KernelCall& c) {
  const auto& plan = *static_cast<const WindowsPlan*>(c.plan);
  const uint16_t* bias = c.n_in > 2 && c.in[2].present() ? c.in[2].as<uint16_t>() : nullptr;
  const uint16_t* windows = read_windows(c, plan, forward_sizes(c));
  run_matmul_bf16(plan, windows, c.in[1].as<uint16_t>(), bias,
                  static_cast<uint16_t*>(conv_written_any(c, plan.y)), c.scratch, nullptr);
  conv_store(c, plan.y);
}

// ---- the derivative with respect to the weight

MatmulProblem weight_problem(const ConvSizes& s, int64_t gy_step) {
  MatmulProblem p;
  p.m = s.o;
  p.n = p.bk = s.c * s.taps;
  p.k = s.n * s.pixels;
  p.am = p.bn = 1;
  p.ak = gy_step;
  return p;
}

bool weight_supports(const KernelCall& c) {
  if (!conv_supports_floats(c) || c.out[0].dtype != DType::bf16) return false;
  const ConvSizes s = weight_sizes(c);
  return are_windows(c, s) && takes_matmul_bf16(weight_problem(s, s.o));
}

std::shared_ptr<const Plan> weight_prepare(const KernelCall& c) {
  auto plan = std::make_shared<WindowsPlan>();
  size_t more = 0;
  plan->gy = pixels_of(c.in[1], more);
  const ConvSizes s = weight_sizes(c);
  finish_plan(*plan, s, weight_problem(s, plan->gy.step), more);
  return plan;
}

void weight_run(const KernelCall& c) {
  const auto& plan = *static_cast<const WindowsPlan*>(c.plan);
  const uint16_t* gy = read_pixels(c, 1, plan.gy);
  const uint16_t* windows = read_windows(c, plan, weight_sizes(c));
  run_matmul_bf16(plan, gy, windows, nullptr, c.out[0].as<uint16_t>(), c.scratch, nullptr);
}

}  // namespace

void register_conv_windows_bf16() {
  if (!bf16_loops()) return;
  register_kernel(DeviceKind::cpu, op::conv,
                  {forward_supports, conv_layout, forward_prepare, forward_run});
  register_kernel(DeviceKind::cpu, op::conv_backward_weight,
                  {weight_supports, nullptr, weight_prepare, weight_run});
}

}  // namespace tandem::detail
