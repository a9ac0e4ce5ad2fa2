// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/cpu/cpu.h"

#include <algorithm>

#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/jit/jit_internal.h"
#include "tandem/backend/cpu/kernels_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/rows/row_kernels_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/codegen/pointwise.h"
#include "tandem/codegen/reduce.h"
#include "tandem/ops/view/strided_copy_internal.h"

namespace tandem {
namespace detail {
void to_channels_last(const Array& a, void* to) {
  const int64_t c = a.shape[1];
  const bool planes = a.contiguous && a.dtype == DType::f32 && c % 16 == 0;
  if (!planes) {
    Strides s = channels_last_strides(a.shape, a.rank);
    strided_copy(to, s.data(), a.data, a.strides, a.shape, a.rank, size_of(a.dtype));
    return;
  }
  const int64_t n = a.shape[0], pixels = n ? a.numel / (n * c) : 0;
  const MicroTable<float>& t = micro_table<float>();
  parallel_for(
      0, n, 1 + 16384 / std::max<int64_t>(pixels * c, 1), [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          const int64_t at = i * pixels * c;
          t.transpose(static_cast<float*>(to) + at, c, a.as<float>() + at, pixels, c, pixels);
        }
      });
}

namespace {

// Dimensions with size above 1 by increasing stride; returns how many.
int by_stride(const Array& a, int* order) {
  int n = 0;
  for (int d = 0; d < a.rank; ++d) {
    if (a.shape[d] == 1) continue;
    int at = n++;
    for (; at > 0 && a.strides[order[at - 1]] > a.strides[d]; --at) order[at] = order[at - 1];
    order[at] = d;
  }
  return n;
}

}  // namespace

bool strides_like(const Array& like, Strides& strides) {
  if (like.contiguous || !like.strides) return false;
  int order[kMaxRank], n = by_stride(like, order);
  int64_t expect = 1;
  for (int i = 0; i < n; ++i) {
    if (like.strides[order[i]] != expect) return false;
    expect *= like.shape[order[i]];
  }
  for (int d = 0; d < like.rank; ++d) strides[d] = like.strides[d];
  return true;
}

bool dense_strides_as(const Array& like, const Array& out, Strides& strides) {
  if (like.contiguous || like.rank != out.rank || like.strides[like.rank - 1] != 1) return false;
  int order[kMaxRank];  // outermost first; the last dimension stays innermost
  for (int d = 0; d < out.rank; ++d) {
    int at = d;
    if (d + 1 < out.rank && out.shape[d] != 1)
      while (at > 0 && out.shape[order[at - 1]] != 1 &&
             like.strides[order[at - 1]] < like.strides[d] && like.strides[order[at - 1]] > 0)
        --at;
    std::copy_backward(order + at, order + d, order + d + 1);
    order[at] = d;
  }
  int64_t step = 1;
  bool same = true;
  for (int i = out.rank; i-- > 0;) {
    strides[order[i]] = step;
    step *= out.shape[order[i]];
    same = same && order[i] == i;
  }
  return !same;
}

bool is_plain(const Array& a) {
  int order[kMaxRank], n = by_stride(a, order);
  for (int i = 0; i < n; ++i) {
    if (a.strides[order[i]] <= 0) return false;
    if (i > 0 && a.strides[order[i]] < a.strides[order[i - 1]] * a.shape[order[i - 1]])
      return false;
  }
  return true;
}

}  // namespace detail

void register_cpu_backend() {
  register_family_kernel(DeviceKind::cpu, Family::pointwise, codegen::pointwise_kernel());
  register_family_kernel(DeviceKind::cpu, Family::reduce, codegen::reduce_kernel());
  register_family_kernel(DeviceKind::cpu, Family::scan, codegen::scan_kernel());
  set_fast_f32_provider(codegen::fast_f32_of);
  detail::register_jit();
  detail::register_random_kernels();
  detail::register_row_kernels();
  detail::register_transpose_kernels();
  detail::register_cat_kernels();
  detail::register_gemm_kernels();
  detail::register_conv_kernels();
  detail::register_direct_conv_kernels();
  detail::register_packed_kernels();
  detail::register_integer_kernels();
  detail::register_integer_winograd();
  detail::register_integer_depthwise();
  detail::register_nbits_kernels();
  detail::register_pool_kernels();
  detail::register_resample_kernels();
  detail::register_norm_kernels();
  detail::register_loss_kernels();
  detail::register_running_best_kernels();
  detail::register_kthvalue_kernels();
  detail::register_logsumexp_kernels();
  detail::register_distance_kernels();
  detail::register_fft_kernels();
  detail::register_update_kernels();
  detail::register_attention_kernels();
  detail::register_paged_attention_kernels();
  detail::register_rnn_kernels();
#ifdef TANDEM_HAVE_ONEDNN
  detail::register_onednn_kernels();
#endif
  detail::register_matmul_bf16();
  detail::register_direct_conv_weight_kernel();
  detail::register_conv_weight_kernels();
  detail::register_conv_weight_tiles();
  detail::register_conv_weight_bf16();
  detail::register_conv_windows_bf16();
  detail::register_wide_conv_kernels();
  detail::register_depthwise_kernels();
}

}  // namespace tandem
