// SPDX-License-Identifier: Apache-2.0
// Random numbers in f32 on dense arrays, and dropout, a block of elements at a time. The same bits
// as the references in ops/random/random.cpp.
#include "tandem/backend/cpu/tile/random_kernels_internal.h"

#include <algorithm>

#include "tandem/backend/cpu/kernels_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/widened_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/op_def.h"
#include "tandem/graph/run/array_walk.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/view/strided_copy_internal.h"

namespace tandem::detail {

namespace {

constexpr int64_t kGrain = 16384;

const RandomLoops& loops() {
#if defined(__x86_64__)
  if (cpu_features().avx2) return kRandomLoopsAvx2;
#endif
  return kRandomLoopsBase;
}

// f(first, n) for blocks of elements.
template <class F>
void for_each_block(int64_t numel, F&& f) {
  parallel_for(0, numel, kGrain, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; i += kRandomBlock) f(i, std::min(kRandomBlock, e - i));
  });
}

bool makes_f32(const KernelCall& k) { return k.out[0].dtype == DType::f32; }

void run_rand(const KernelCall& k) {
  const RandAttrs& a = k.get_attrs<RandAttrs>();
  float* out = k.out[0].as<float>();
  for_each_block(k.out[0].numel, [&](int64_t first, int64_t n) {
    loops().uniform(k.rng, static_cast<uint64_t>(first), n, static_cast<float>(a.a),
                    static_cast<float>(a.b - a.a), out + first);
  });
}

void run_randn(const KernelCall& k) {
  const RandAttrs& a = k.get_attrs<RandAttrs>();
  float* out = k.out[0].as<float>();
  for_each_block(k.out[0].numel, [&](int64_t first, int64_t n) {
    loops().normal(k.rng, static_cast<uint64_t>(first), n, static_cast<float>(a.a),
                   static_cast<float>(a.b), out + first);
  });
}

float scale_of(double p) { return p < 1 ? static_cast<float>(1 / (1 - p)) : 0.0f; }

// Dropout counts elements in row-major order: arrays that lie otherwise are brought into it in
// scratch, and the result goes back to the order of the input.
struct DropoutPlan : Plan {
  size_t read = 0, written = 0;  ///< scratch
};

bool dropout_supports(const KernelCall& k) {
  return k.in[0].dtype == DType::f32 && !k.in[0].is_scalar && (k.n_in < 2 || k.in[1].contiguous);
}

bool dropout_layout(const KernelCall& k, int output, Strides& strides) {
  return output == 0 && strides_like(k.in[0], strides);
}

std::shared_ptr<const Plan> dropout_prepare(const KernelCall& k) {
  auto plan = std::make_shared<DropoutPlan>();
  const auto take = [&](const Array& a) {
    const size_t at = plan->workspace;
    if (!a.contiguous)
      plan->workspace += whole_lines(static_cast<size_t>(k.in[0].numel) * sizeof(float));
    return at;
  };
  plan->read = take(k.in[0]);
  plan->written = take(k.out[0]);
  return plan;
}

// f(x, y) with the input and the place of the result in row-major order.
template <class F>
void in_order(const KernelCall& k, F&& f) {
  const auto& plan = *static_cast<const DropoutPlan*>(k.plan);
  const Array &x = k.in[0], &y = k.out[0];
  const auto scratch = [&](size_t at) {
    return reinterpret_cast<float*>(static_cast<char*>(k.scratch) + at);
  };
  float* read = x.contiguous ? x.as<float>() : scratch(plan.read);
  float* written = y.contiguous ? y.as<float>() : scratch(plan.written);
  const Strides rows = row_major_strides(x);
  if (!x.contiguous)
    strided_copy(read, rows.data(), x.data, x.strides, x.shape, x.rank, sizeof(float));
  f(read, written);
  if (!y.contiguous)
    strided_copy(y.data, y.strides, written, rows.data(), x.shape, x.rank, sizeof(float));
}

void run_dropout(const KernelCall& k) {
  const double p = k.get_attrs<DropoutAttrs>().p;
  bool* mask = k.n_out > 1 ? k.out[1].as<bool>() : nullptr;
  in_order(k, [&](const float* x, float* y) {
    for_each_block(k.in[0].numel, [&](int64_t first, int64_t n) {
      loops().dropout(k.rng, static_cast<uint64_t>(first), n, static_cast<float>(1 - p),
                      scale_of(p), x + first, y + first, mask ? mask + first : nullptr);
    });
  });
}

void run_dropout_backward(const KernelCall& k) {
  const float scale = scale_of(k.get_attrs<DropoutAttrs>().p);
  const bool* mask = k.in[1].as<bool>();
  in_order(k, [&](const float* g, float* y) {
    parallel_for(0, k.in[0].numel, 4 * kGrain, [&](int64_t b, int64_t e) {
      loops().masked(e - b, scale, g + b, mask + b, y + b);
    });
  });
}

constexpr Kernel kDropout{dropout_supports, dropout_layout, dropout_prepare, run_dropout};
constexpr Kernel kDropoutBackward{dropout_supports, dropout_layout, dropout_prepare,
                                  run_dropout_backward};

Kernel kernel(bool (*supports)(const KernelCall&), void (*run)(const KernelCall&)) {
  Kernel k;
  k.supports = supports;
  k.run = run;
  return k;
}

}  // namespace

void register_random_kernels() {
  register_kernel(DeviceKind::cpu, op::rand, kernel(makes_f32, run_rand));
  register_kernel(DeviceKind::cpu, op::randn, kernel(makes_f32, run_randn));
  register_f32_and_widened(op::dropout, kDropout);
  register_f32_and_widened(op::dropout_backward, kDropoutBackward);
}

}  // namespace tandem::detail
