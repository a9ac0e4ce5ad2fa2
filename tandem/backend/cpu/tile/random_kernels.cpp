// SPDX-License-Identifier: Apache-2.0
// Random numbers in f32 on dense arrays, and dropout, a block of elements at a time. The same bits
// as the references in ops/random/random.cpp.
#include "tandem/backend/cpu/tile/random_kernels_internal.h"

#include <algorithm>

#include "tandem/backend/cpu/kernels_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/op_def.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/view/strided_copy_internal.h"
#include "tandem/tensor/strided.h"

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

// Dropout counts elements in row-major order. Arrays that lie otherwise, and 16-bit ones, are
// brought into that order and f32 in scratch; the result goes back to where the input lies.
struct RowMajorPlan : Plan {
  size_t read = 0, written = 0, narrow = 0;  ///< scratch; `narrow` for 16-bit elements in order
};

Strides row_major_strides(const Array& a) {
  Strides s;
  int64_t step = 1;
  for (int d = a.rank; d-- > 0; step *= a.shape[d]) s[d] = step;
  return s;
}
bool as_it_is(const Array& a) { return a.dtype == DType::f32 && a.contiguous; }

bool dropout_supports(const KernelCall& k) {
  const DType d = k.in[0].dtype;
  const bool dtypes = d == DType::f32 || d == DType::bf16 || d == DType::f16;
  return dtypes && !k.in[0].is_scalar && (k.n_in < 2 || k.in[1].contiguous);
}

bool dropout_layout(const KernelCall& k, int output, Strides& strides) {
  return output == 0 && strides_like(k.in[0], strides);
}

std::shared_ptr<const Plan> dropout_prepare(const KernelCall& k) {
  auto plan = std::make_shared<RowMajorPlan>();
  const auto take = [&](bool needed, size_t size) {
    const size_t at = plan->workspace;
    if (needed) plan->workspace += whole_lines(static_cast<size_t>(k.in[0].numel) * size);
    return at;
  };
  const bool moves = !as_it_is(k.in[0]) || !as_it_is(k.out[0]);
  plan->read = take(moves, sizeof(float));
  plan->written = take(moves, sizeof(float));
  plan->narrow = take(moves && k.in[0].dtype != DType::f32, sizeof(uint16_t));
  return plan;
}

constexpr int64_t kConvertGrain = 1 << 15;

void convert_all(const void* from, DType source, void* to, DType target, int64_t n) {
  const size_t in = size_of(source), out = size_of(target);
  parallel_for(0, n, kConvertGrain, [&](int64_t b, int64_t e) {
    convert_elements(static_cast<const char*>(from) + static_cast<size_t>(b) * in, source,
                     static_cast<char*>(to) + static_cast<size_t>(b) * out, target, e - b);
  });
}

const float* row_major(const KernelCall& k, const RowMajorPlan& plan) {
  const Array& x = k.in[0];
  if (as_it_is(x)) return x.as<float>();
  auto* scratch = static_cast<char*>(k.scratch);
  auto* read = reinterpret_cast<float*>(scratch + plan.read);
  const bool wide = x.dtype == DType::f32;
  const void* dense = x.data;
  if (!x.contiguous) {
    void* to = wide ? static_cast<void*>(read) : scratch + plan.narrow;
    strided_copy(to, row_major_strides(x).data(), x.data, x.strides, x.shape, x.rank,
                 size_of(x.dtype));
    dense = to;
  }
  if (!wide) convert_all(dense, x.dtype, read, DType::f32, x.numel);
  return read;
}
float* row_major_result(const KernelCall& k, const RowMajorPlan& plan) {
  if (as_it_is(k.out[0])) return k.out[0].as<float>();
  return reinterpret_cast<float*>(static_cast<char*>(k.scratch) + plan.written);
}
void put_result(const KernelCall& k, const RowMajorPlan& plan, const float* from) {
  const Array& y = k.out[0];
  if (as_it_is(y)) return;
  const void* dense = from;
  if (y.dtype != DType::f32) {
    void* to = y.contiguous ? y.data : static_cast<char*>(k.scratch) + plan.narrow;
    convert_all(from, DType::f32, to, y.dtype, k.in[0].numel);
    if (y.contiguous) return;
    dense = to;
  }
  strided_copy(y.data, y.strides, dense, row_major_strides(y).data(), y.shape, y.rank,
               size_of(y.dtype));
}

void run_dropout(const KernelCall& k) {
  const auto& plan = *static_cast<const RowMajorPlan*>(k.plan);
  const double p = k.get_attrs<DropoutAttrs>().p;
  const float* x = row_major(k, plan);
  float* y = row_major_result(k, plan);
  bool* mask = k.n_out > 1 ? k.out[1].as<bool>() : nullptr;
  for_each_block(k.in[0].numel, [&](int64_t first, int64_t n) {
    loops().dropout(k.rng, static_cast<uint64_t>(first), n, static_cast<float>(1 - p), scale_of(p),
                    x + first, y + first, mask ? mask + first : nullptr);
  });
  put_result(k, plan, y);
}

void run_dropout_backward(const KernelCall& k) {
  const auto& plan = *static_cast<const RowMajorPlan*>(k.plan);
  const float scale = scale_of(k.get_attrs<DropoutAttrs>().p);
  const float* g = row_major(k, plan);
  const bool* mask = k.in[1].as<bool>();
  float* y = row_major_result(k, plan);
  parallel_for(0, k.in[0].numel, 4 * kGrain,
               [&](int64_t b, int64_t e) { loops().masked(e - b, scale, g + b, mask + b, y + b); });
  put_result(k, plan, y);
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
  register_kernel(DeviceKind::cpu, op::dropout,
                  {dropout_supports, dropout_layout, dropout_prepare, run_dropout});
  register_kernel(DeviceKind::cpu, op::dropout_backward,
                  {dropout_supports, dropout_layout, dropout_prepare, run_dropout_backward});
}

}  // namespace tandem::detail
