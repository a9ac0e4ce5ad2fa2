// SPDX-License-Identifier: Apache-2.0
// Kernels of softmax, log_softmax, layer_norm, rms_norm and their backward rows: each passes its
// arrays to a row program. f32 is left to softmax_kernels.cpp and norm_kernels.cpp, which take
// copies of what is not row-major: the two round differently, and how a tensor lies must not decide
// between them.
#include "tandem/backend/cpu/rows/row_kernels_internal.h"
#include "tandem/codegen/row_programs.h"
#include "tandem/ops/nn/norm.h"
#include "tandem/ops/nn/softmax.h"

namespace tandem::detail {
namespace {

// What those take, as it lies or in copies.
bool is_f32(const KernelCall& c) {
  if (c.in[0].rank == 0 || c.in[0].numel == 0) return false;
  for (int i = 0; i < c.n_in; ++i)
    if (c.in[i].present() && (c.in[i].dtype != DType::f32 || c.in[i].is_scalar)) return false;
  return true;
}
bool softmax_supports(const KernelCall& c) { return !is_f32(c); }
template <bool log>
void softmax_run(const KernelCall& c) {
  codegen::run_softmax(c.in[0], c.out[0], static_cast<int>(c.get_attrs<SoftmaxAttrs>().dim), log);
}
template <bool log>
void softmax_backward_run(const KernelCall& c) {
  codegen::run_softmax_backward(c.in[0], c.in[1], c.out[0],
                                static_cast<int>(c.get_attrs<SoftmaxAttrs>().dim), log);
}

template <bool centred>
codegen::NormArrays forward_arrays(const KernelCall& c) {
  const auto& attrs = c.get_attrs<NormAttrs>();
  return codegen::norm_arrays(c, centred, static_cast<int>(attrs.dims), attrs.eps);
}
template <bool centred>
codegen::NormArrays backward_arrays(const KernelCall& c) {
  const auto& attrs = c.get_attrs<NormBackwardAttrs>();
  return codegen::norm_backward_arrays(c, centred, static_cast<int>(attrs.dims));
}

template <bool centred>
constexpr Kernel kNorm{[](const KernelCall& c) {
                         return !is_f32(c) && codegen::norm_supported(forward_arrays<centred>(c));
                       },
                       nullptr, nullptr,
                       [](const KernelCall& c) { codegen::run_norm(forward_arrays<centred>(c)); }};
template <bool centred>
constexpr Kernel kNormBackward{
    [](const KernelCall& c) {
      return !is_f32(c) && codegen::norm_supported(backward_arrays<centred>(c));
    },
    nullptr, nullptr,
    [](const KernelCall& c) { codegen::run_norm_backward(backward_arrays<centred>(c)); }};

}  // namespace

void register_row_kernels() {
  constexpr DeviceKind cpu = DeviceKind::cpu;
  register_kernel(cpu, op::softmax, {softmax_supports, nullptr, nullptr, softmax_run<false>});
  register_kernel(cpu, op::log_softmax, {softmax_supports, nullptr, nullptr, softmax_run<true>});
  register_kernel(cpu, op::softmax_backward,
                  {softmax_supports, nullptr, nullptr, softmax_backward_run<false>});
  register_kernel(cpu, op::log_softmax_backward,
                  {softmax_supports, nullptr, nullptr, softmax_backward_run<true>});
  register_kernel(cpu, op::layer_norm, kNorm<true>);
  register_kernel(cpu, op::rms_norm, kNorm<false>);
  register_kernel(cpu, op::layer_norm_backward, kNormBackward<true>);
  register_kernel(cpu, op::rms_norm_backward, kNormBackward<false>);
}

}  // namespace tandem::detail
