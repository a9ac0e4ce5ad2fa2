// SPDX-License-Identifier: Apache-2.0
// Random numbers and dropout in f32 on dense arrays, a block of elements at a time. The same bits
// as the references in ops/random/random.cpp.
#include "tandem/backend/cpu/tile/random_kernels_internal.h"

#include <algorithm>

#include "tandem/backend/cpu/kernels_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/op_def.h"
#include "tandem/ops/random/random.h"

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

bool dense_f32(const KernelCall& k) { return k.in[0].dtype == DType::f32 && k.in[0].contiguous; }

float scale_of(double p) { return p < 1 ? static_cast<float>(1 / (1 - p)) : 0.0f; }

void run_dropout(const KernelCall& k) {
  const double p = k.get_attrs<DropoutAttrs>().p;
  const float* x = k.in[0].as<float>();
  float* y = k.out[0].as<float>();
  bool* mask = k.n_out > 1 ? k.out[1].as<bool>() : nullptr;
  for_each_block(k.in[0].numel, [&](int64_t first, int64_t n) {
    loops().dropout(k.rng, static_cast<uint64_t>(first), n, static_cast<float>(1 - p), scale_of(p),
                    x + first, y + first, mask ? mask + first : nullptr);
  });
}

bool dense_pair(const KernelCall& k) { return dense_f32(k) && k.in[1].contiguous; }

void run_dropout_backward(const KernelCall& k) {
  const float scale = scale_of(k.get_attrs<DropoutAttrs>().p);
  const float* g = k.in[0].as<float>();
  const bool* mask = k.in[1].as<bool>();
  float* y = k.out[0].as<float>();
  parallel_for(0, k.in[0].numel, 4 * kGrain,
               [&](int64_t b, int64_t e) { loops().masked(e - b, scale, g + b, mask + b, y + b); });
}

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
  register_kernel(DeviceKind::cpu, op::dropout, kernel(dense_f32, run_dropout));
  register_kernel(DeviceKind::cpu, op::dropout_backward, kernel(dense_pair, run_dropout_backward));
}

}  // namespace tandem::detail
