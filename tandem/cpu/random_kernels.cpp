// SPDX-License-Identifier: Apache-2.0
// Random numbers and dropout in f32 on dense arrays: words of Philox a block at a time, then one
// plain loop. The same bits as the references in ops/random.cpp.
#include "tandem/cpu/random_kernels_internal.h"

#include <algorithm>

#include "tandem/base/parallel.h"
#include "tandem/base/philox.h"
#include "tandem/cpu/kernels_internal.h"
#include "tandem/cpu/registry_internal.h"
#include "tandem/graph/op_def.h"
#include "tandem/ops/random.h"

namespace tandem::detail {

void philox_words_base(uint64_t seed, uint32_t offset, uint64_t first, int64_t n, uint32_t* w0,
                       uint32_t* w1) {
  for (int64_t i = 0; i < n; ++i) {
    const PhiloxBlock b = philox(seed, offset, first + static_cast<uint64_t>(i));
    w0[i] = b.w[0];
    if (w1) w1[i] = b.w[1];
  }
}

namespace {

constexpr int64_t kBlock = 1024, kGrain = 16384;

// f(first, n, w0, w1) for blocks of elements.
template <bool kTwo, class F>
void for_each_block(const KernelCall& k, int64_t numel, F&& f) {
  const PhiloxWordsFn words = cpu_features().avx2 ? philox_words_avx2 : philox_words_base;
  parallel_for(0, numel, kGrain, [&](int64_t b, int64_t e) {
    alignas(64) uint32_t w0[kBlock], w1[kTwo ? kBlock : 1];
    for (int64_t i = b; i < e; i += kBlock) {
      const int64_t n = std::min(kBlock, e - i);
      words(k.rng.seed, k.rng.offset, static_cast<uint64_t>(i), n, w0, kTwo ? w1 : nullptr);
      f(i, n, w0, w1);
    }
  });
}

bool dense_f32(const KernelCall& k) { return k.out[0].dtype == DType::f32; }

void run_rand(const KernelCall& k) {
  const RandAttrs& a = k.get_attrs<RandAttrs>();
  const float low = static_cast<float>(a.a), span = static_cast<float>(a.b - a.a);
  float* out = k.out[0].as<float>();
  for_each_block<false>(k, k.out[0].numel,
                        [&](int64_t first, int64_t n, const uint32_t* w, const uint32_t*) {
                          for (int64_t i = 0; i < n; ++i)
                            out[first + i] = low + uniform_f32(w[i]) * span;
                        });
}

void run_randn(const KernelCall& k) {
  const RandAttrs& a = k.get_attrs<RandAttrs>();
  const float mean = static_cast<float>(a.a), std = static_cast<float>(a.b);
  float* out = k.out[0].as<float>();
  for_each_block<true>(k, k.out[0].numel,
                       [&](int64_t first, int64_t n, const uint32_t* w0, const uint32_t* w1) {
                         for (int64_t i = 0; i < n; ++i) {
                           const PhiloxBlock b{{w0[i], w1[i], 0, 0}};
                           out[first + i] = mean + normal_f32(b) * std;
                         }
                       });
}

bool same_layout(const KernelCall& k) {
  const Array& x = k.in[0];
  return x.dtype == DType::f32 && x.contiguous;
}

void run_dropout(const KernelCall& k) {
  const double p = k.get_attrs<DropoutAttrs>().p;
  const float keep = static_cast<float>(1 - p);
  const float scale = p < 1 ? static_cast<float>(1 / (1 - p)) : 0.0f;
  const float* x = k.in[0].as<float>();
  float* y = k.out[0].as<float>();
  bool* mask = k.n_out > 1 ? k.out[1].as<bool>() : nullptr;
  for_each_block<false>(k, k.in[0].numel,
                        [&](int64_t first, int64_t n, const uint32_t* w, const uint32_t*) {
                          for (int64_t i = 0; i < n; ++i)
                            y[first + i] = uniform_f32(w[i]) < keep ? x[first + i] * scale : 0.0f;
                          for (int64_t i = 0; mask && i < n; ++i)
                            mask[first + i] = uniform_f32(w[i]) < keep;
                        });
}

bool dropout_backward_fits(const KernelCall& k) { return same_layout(k) && k.in[1].contiguous; }
void run_dropout_backward(const KernelCall& k) {
  const double p = k.get_attrs<DropoutAttrs>().p;
  const float scale = p < 1 ? static_cast<float>(1 / (1 - p)) : 0.0f;
  const float* g = k.in[0].as<float>();
  const bool* mask = k.in[1].as<bool>();
  float* y = k.out[0].as<float>();
  parallel_for(0, k.in[0].numel, 4 * kGrain, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) y[i] = mask[i] ? g[i] * scale : 0.0f;
  });
}

Kernel kernel(bool (*supports)(const KernelCall&), void (*run)(const KernelCall&)) {
  Kernel k;
  k.supports = supports;
  k.run = run;
  return k;
}

}  // namespace

void register_random_kernels() {
  register_kernel(DeviceKind::cpu, op::rand, kernel(dense_f32, run_rand));
  register_kernel(DeviceKind::cpu, op::randn, kernel(dense_f32, run_randn));
  register_kernel(DeviceKind::cpu, op::dropout, kernel(same_layout, run_dropout));
  register_kernel(DeviceKind::cpu, op::dropout_backward,
                  kernel(dropout_backward_fits, run_dropout_backward));
}

}  // namespace tandem::detail
