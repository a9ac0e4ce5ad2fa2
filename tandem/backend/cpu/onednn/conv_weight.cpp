// SPDX-License-Identifier: Apache-2.0
// The derivative of a 16-bit convolution with respect to a large weight as matmuls on oneDNN, whose
// own kernels are many times slower there: gy is transposed once so that pixels are innermost; a
// unit of work gathers the patches of some input channels under all taps and multiplies. Sums are
// f32 over all pixels in one matmul on one thread: bits do not depend on the thread count.
#ifdef TANDEM_HAVE_ONEDNN
#include <algorithm>

#include "tandem/backend/cpu/conv/conv_internal.h"
#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/onednn/plans_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/rows/row_internal.h"
#include "tandem/base/half.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/conv/conv.h"
#include "tandem/ops/view/strided_copy_internal.h"

namespace tandem::detail {
namespace {

using namespace onednn;

constexpr int64_t kChannels = 32;  ///< of one unit
constexpr int64_t kFewestWeights = 256 << 10;
constexpr int64_t kMostPatches = 1 << 20;  ///< elements of one unit: they stay in cache

struct MatmulPlan : Plan {
  size_t x = 0, turned = 0, workers_at = 0, worker_bytes = 0;
  size_t result = 0, row = 0, scratch = 0;  ///< in a worker's bytes; patches come first
  bool copy_x = false;
  int workers = 1;
  std::shared_ptr<const Plan> multiply;
};

int64_t pixels_of(const Array& gy) {
  int64_t n = gy.shape[0];
  for (int d = 2; d < gy.rank; ++d) n *= gy.shape[d];
  return n;
}

bool supports(const KernelCall& c) {
  const Array &x = c.in[0], &gy = c.in[1], &gw = c.out[0];
  if (size_of(gw.dtype) != 2 || !is_floating(gw.dtype) || !computes(gw.dtype)) return false;
  int64_t elements = 1, taps = 1;
  for (int d = 0; d < gw.rank; ++d) elements *= gw.shape[d];
  for (int d = 2; d < gw.rank; ++d) taps *= gw.shape[d];
  const int64_t pixels = pixels_of(gy);
  return elements >= kFewestWeights && gw.shape[1] % kChannels == 0 && pixels > 0 &&
         x.shape[0] > 0 && pixels * taps * kChannels <= kMostPatches;
}

std::shared_ptr<const Plan> prepare(const KernelCall& c) {
  auto plan = std::make_shared<MatmulPlan>();
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.out[0], c.in[1]);
  const DType t = c.out[0].dtype;
  const int64_t m = s.group_out(), k = s.n * s.pixels, n = s.taps * kChannels;
  plan->multiply = plan_or_refuse([&](PlanBuilder& b) {
    const Desc a = PlanBuilder::desc_of(t, {m, k}, {k, 1}),
               w = PlanBuilder::desc_of(t, {k, n}, {n, 1}),
               y = PlanBuilder::desc_of(DType::f32, {m, n}, {n, 1});
    dnnl::matmul::primitive_desc pd(engine(), a, w, y, user_scratchpad());
    b.add(pd, dnnl::matmul(pd),
          {{DNNL_ARG_SRC, b.input(0, a)},
           {DNNL_ARG_WEIGHTS, b.input(1, w)},
           {DNNL_ARG_DST, b.output(0, y)}},
          2.0 * static_cast<double>(m * n * k));
  });
  if (!static_cast<const DnnlPlan&>(*plan->multiply).usable) return plan;
  plan->copy_x = !is_channels_last(c.in[0]);
  if (plan->copy_x) plan->x = take_lines(plan->workspace, static_cast<size_t>(c.in[0].numel) * 2);
  plan->turned = take_lines(plan->workspace, static_cast<size_t>(s.o * k) * 2);
  plan->workers = num_threads();
  plan->worker_bytes = whole_lines(static_cast<size_t>(k * n) * 2);
  plan->result = take_lines(plan->worker_bytes, static_cast<size_t>(m * n) * sizeof(float));
  plan->row = take_lines(plan->worker_bytes, static_cast<size_t>(n + 32) * sizeof(float));
  plan->scratch = take_lines(plan->worker_bytes, plan->multiply->workspace);
  plan->workers_at =
      take_lines(plan->workspace, plan->worker_bytes * static_cast<size_t>(plan->workers));
  return plan;
}

void round_row(BFloat16* to, const float* from, int64_t n) { row_loops().to_bf16(to, from, n); }
void round_row(Half* to, const float* from, int64_t n) { row_loops().to_half(to, from, n); }

// gw[o][c0 + ..][tap] from result[o][tap][channel].
template <class T>
void store(const ConvSizes& s, int64_t first_output, int64_t c0, const float* result, float* row,
           T* gw) {
  const int64_t n = s.taps * kChannels;
  for (int64_t o = 0; o < s.group_out(); ++o, result += n) {
    const float* from = result;
    if (s.taps > 1) {
      micro_table<float>().transpose(row, s.taps, result, kChannels, s.taps, kChannels);
      from = row;
    }
    round_row(gw + ((first_output + o) * s.group_in() + c0) * s.taps, from, n);
  }
}

void run_unit(const KernelCall& c, const ConvSizes& s, const MatmulPlan& plan, const char* x,
              const char* turned, int64_t unit, char* own) {
  const int64_t blocks = s.group_in() / kChannels, g = unit / blocks,
                c0 = unit % blocks * kChannels;
  const int64_t k = s.n * s.pixels, n = s.taps * kChannels;
  // Two 16-bit channels are moved as one of 32 bits.
  ConvSizes pairs = s;
  pairs.c /= 2;
  for (int64_t tap = 0; tap < s.taps; ++tap)
    gather_patches(pairs, reinterpret_cast<const float*>(x), g, 0, k,
                   tap * pairs.group_in() + c0 / 2, kChannels / 2,
                   reinterpret_cast<float*>(own) + tap * kChannels / 2, n / 2);
  Array in[2] = {c.in[1], c.in[0]}, out = c.out[0];
  in[0].data = const_cast<char*>(turned) + g * s.group_out() * k * 2;
  in[1].data = own;
  out.data = own + plan.result;
  KernelCall multiply = c;
  multiply.in = in;
  multiply.out = &out;
  multiply.plan = plan.multiply.get();
  multiply.scratch = own + plan.scratch;
  run_plan(multiply);
  auto* result = reinterpret_cast<const float*>(own + plan.result);
  auto* row = reinterpret_cast<float*>(own + plan.row);
  if (c.out[0].dtype == DType::bf16)
    store(s, g * s.group_out(), c0, result, row, c.out[0].as<BFloat16>());
  else
    store(s, g * s.group_out(), c0, result, row, c.out[0].as<Half>());
}

void run(const KernelCall& c) {
  const auto& plan = *static_cast<const MatmulPlan*>(c.plan);
  if (!static_cast<const DnnlPlan&>(*plan.multiply).usable) return c.op.reference_fn(c);
  const ConvSizes s(c.get_attrs<ConvAttrs>(), c.in[0], c.out[0], c.in[1]);
  char* scratch = static_cast<char*>(c.scratch);
  const char* x = c.in[0].as<char>();
  if (plan.copy_x) {
    to_channels_last(c.in[0], scratch + plan.x);
    x = scratch + plan.x;
  }
  // turned[o][sample][pixel]
  const Array& gy = c.in[1];
  int64_t shape[kMaxRank], from[kMaxRank], to[kMaxRank];
  int64_t step = 1;
  for (int i = 0; i < gy.rank; ++i) {
    const int d = i == 0 ? 1 : i == 1 ? 0 : i;
    shape[i] = gy.shape[d];
    from[i] = gy.strides[d];
  }
  for (int i = gy.rank - 1; i >= 0; --i) {
    to[i] = step;
    step *= shape[i];
  }
  strided_copy(scratch + plan.turned, to, gy.data, from, shape, gy.rank, 2);
  const int64_t units = s.groups * (s.group_in() / kChannels);
  parallel_for(0, plan.workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t w = first; w < last; ++w)
      for (int64_t u = units * w / plan.workers; u < units * (w + 1) / plan.workers; ++u)
        run_unit(c, s, plan, x, scratch + plan.turned, u,
                 scratch + plan.workers_at + static_cast<size_t>(w) * plan.worker_bytes);
  });
}

}  // namespace

void register_onednn_conv_weight_kernels() {
  register_kernel(DeviceKind::cpu, op::conv_backward_weight, {supports, nullptr, prepare, run});
}

}  // namespace tandem::detail

#endif
