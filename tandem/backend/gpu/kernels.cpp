// SPDX-License-Identifier: Apache-2.0
// Bodies are written for a type T, which the first line of each defines.
#include "tandem/backend/gpu/kernels.h"

#include <fmt/format.h>

namespace tandem::gpu {
namespace {

using P = Parameter;

constexpr const char* kFill = R"td_text(
  const td_i64 i = (td_i64)td_block(x) * td_threads(x) + td_thread(x);
  if (i < n) y[i] = v;
)td_text";

constexpr const char* kAxpy = R"td_text(
  const td_i64 i = (td_i64)td_block(x) * td_threads(x) + td_thread(x);
  if (i < n) y[i] = a * x[i] + y[i];
)td_text";

constexpr const char* kBlockSum = R"td_text(
  const td_u32 t = td_thread(x);
  const td_i64 first = ((td_i64)td_block(x) * td_threads(x) + t) * 4;
  T sum = 0;
  for (td_i64 i = first; i < first + 4 && i < n; ++i) sum += x[i];
  partial[t] = sum;
  for (td_u32 distance = td_threads(x) / 2; distance > 0; distance /= 2) {
    td_barrier();
    if (t < distance) partial[t] += partial[t + distance];
  }
  if (t == 0) y[td_block(x)] = partial[0];
)td_text";

constexpr const char* kStridedCopy = R"td_text(
  const td_i64 i = (td_i64)td_block(x) * td_threads(x) + td_thread(x);
  if (i < n0 * n1 * n2) y[i] = x[i / (n1 * n2) * s0 + i / n2 % n1 * s1 + i % n2 * s2];
)td_text";

constexpr const char* kReversedLines = R"td_text(
  const td_i64 i = (td_i64)td_block(x) * td_threads(x) + td_thread(x);
  if (i >= n) return;
  td_line(T, there, N);
  td_line(T, back, N);
  td_load(N, there, x, i);
  td_unroll
  for (td_i32 e = 0; e < N; ++e) back[e] = there[N - 1 - e];
  td_store(N, y, i, back);
)td_text";

constexpr const char* kArithmetic = R"td_text(
  const td_i64 i = (td_i64)td_block(x) * td_threads(x) + td_thread(x);
  if (i >= n) return;
  y[i] = a[i] * b[i] + c[i];
  y[n + i] = FMA(a[i], b[i], c[i]);
  y[2 * n + i] = a[i] / b[i];
  y[3 * n + i] = a[i] - b[i];
  y[4 * n + i] = SQRT(a[i]);
  y[5 * n + i] = (T)(td_i32)i;
)td_text";

std::string body_for(DType type, const char* body) {
  return fmt::format("#undef T\n#define T td_{}\n{}", short_name(type), body);
}

}  // namespace

std::string kernel_name(const char* base, DType type) {
  return fmt::format("{}_{}", base, short_name(type));
}

KernelSource fill_kernel(DType type) {
  return {kernel_name("fill", type),
          {{P::out, type, "y"}, {P::value, type, "v"}, {P::value, DType::i64, "n"}},
          {},
          body_for(type, kFill)};
}

KernelSource axpy_kernel(DType type) {
  return {
      kernel_name("axpy", type),
      {{P::out, type, "y"}, {P::in, type, "x"}, {P::value, type, "a"}, {P::value, DType::i64, "n"}},
      {},
      body_for(type, kAxpy)};
}

KernelSource block_sum_kernel(DType type) {
  return {kernel_name("block_sum", type),
          {{P::out, type, "y"}, {P::in, type, "x"}, {P::value, DType::i64, "n"}},
          {{type, "partial", kSumThreads}},
          body_for(type, kBlockSum),
          kSumThreads};
}

KernelSource strided_copy_kernel(DType type) {
  KernelSource k{kernel_name("strided_copy", type),
                 {{P::out, type, "y"}, {P::in, type, "x"}},
                 {},
                 body_for(type, kStridedCopy)};
  for (const char* name : {"n0", "n1", "n2", "s0", "s1", "s2"}) {
    k.parameters.push_back({P::value, DType::i64, name});
  }
  return k;
}

KernelSource reversed_lines_kernel(DType type) {
  const std::string elements = std::to_string(16 / size_of(type));
  std::string body = kReversedLines;
  for (size_t at = 0; (at = body.find('N', at)) != body.npos; at += elements.size()) {
    body.replace(at, 1, elements);
  }
  return {kernel_name("reversed_lines", type),
          {{P::out, type, "y"}, {P::in, type, "x"}, {P::value, DType::i64, "n"}},
          {},
          body_for(type, body.c_str())};
}

KernelSource arithmetic_kernel(DType type) {
  const char* t = short_name(type);
  return {kernel_name("arithmetic", type),
          {{P::out, type, "y"},
           {P::in, type, "a"},
           {P::in, type, "b"},
           {P::in, type, "c"},
           {P::value, DType::i64, "n"}},
          {},
          fmt::format("#undef FMA\n#undef SQRT\n#define FMA td_fma_{}\n#define SQRT td_sqrt_{}\n{}",
                      t, t, body_for(type, kArithmetic))};
}

std::vector<KernelSource> all_kernels(bool f64) {
  std::vector<KernelSource> all;
  for (const DType type : {DType::f32, DType::f64, DType::i32, DType::u8}) {
    if (type == DType::f64 && !f64) continue;
    all.push_back(fill_kernel(type));
    all.push_back(strided_copy_kernel(type));
    all.push_back(reversed_lines_kernel(type));
    if (type == DType::u8) continue;
    all.push_back(axpy_kernel(type));
    all.push_back(block_sum_kernel(type));
    if (type != DType::i32) all.push_back(arithmetic_kernel(type));
  }
  return all;
}

}  // namespace tandem::gpu
