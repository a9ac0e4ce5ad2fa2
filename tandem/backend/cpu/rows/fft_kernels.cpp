// SPDX-License-Identifier: Apache-2.0
// Fourier transforms: the loops for this processor, whose bits are those of the reference.
#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/rows/fft_loops_internal.h"
#include "tandem/ops/linalg/fft.h"

namespace tandem::detail {
namespace {

FftLoops chosen_loops() {
  FftLoops loops = cpu_features().avx512 ? kFftAvx512
                   : cpu_features().avx2 ? kFftAvx2
                                         : kFftReference;
  loops.transpose_f32 = micro_table<float>().transpose;
  loops.transpose_f64 = micro_table<double>().transpose;
  return loops;
}
const FftLoops& fft_loops() {
  static const FftLoops loops = chosen_loops();
  return loops;
}

}  // namespace

void register_fft_kernels() {
  const auto add = [](const OpDef& row, void (*run)(const KernelCall&)) {
    register_kernel(DeviceKind::cpu, row, {nullptr, nullptr, nullptr, run});
  };
  add(op::fft, [](const KernelCall& k) { run_fft(k, fft_loops()); });
  add(op::rfft, [](const KernelCall& k) { run_rfft(k, fft_loops()); });
  add(op::irfft, [](const KernelCall& k) { run_irfft(k, fft_loops()); });
}

}  // namespace tandem::detail
