// SPDX-License-Identifier: Apache-2.0
// The functions that register_cpu_backend() calls, and what the CPU backend's files share:
// queries on arrays. Later registrations override earlier ones.
#pragma once

#include <string>

#include "tandem/base/processor.h"
#include "tandem/graph/op_def.h"
#include "tandem/graph/run/channels_last.h"

namespace tandem::detail {

void register_transpose_kernels();
void register_cat_kernels();
void register_gemm_kernels();
void register_conv_kernels();
/// As fast as oneDNN's, which are tried first.
void register_direct_conv_kernels();
void register_direct_conv_weight_kernel();
void register_matmul_bf16();
/// Faster than all others for large weights: the derivative by the weight, and the other two.
void register_conv_weight_kernels();
void register_conv_weight_tiles();
void register_conv_weight_bf16();
void register_conv_windows_bf16();
void register_wide_conv_kernels();
void register_depthwise_kernels();
/// For the rows in ops/matmul/packed.h.
void register_packed_kernels();
/// For the rows in ops/matmul/integer.h.
void register_integer_kernels();
/// For the rows in ops/matmul/integer_winograd.h.
void register_integer_winograd();
/// For the rows in ops/matmul/integer_depthwise.h.
void register_integer_depthwise();
/// For the row in ops/matmul/nbits.h.
void register_nbits_kernels();
void register_pool_kernels();
void register_resample_kernels();
void register_norm_kernels();
void register_batch_norm_kernels();
void register_softmax_kernels();
void register_loss_kernels();
void register_running_best_kernels();
void register_kthvalue_kernels();
void register_logsumexp_kernels();
void register_distance_kernels();
void register_fft_kernels();
void register_update_kernels();
void register_attention_kernels();
void register_paged_attention_kernels();
void register_rnn_kernels();
void register_gru_kernels();  // with register_rnn_kernels
/// Built only with oneDNN.
void register_onednn_kernels();
/// "3.2.0, avx512_core_amx"
std::string onednn_version();

/// Scratch bytes rounded up to whole cache lines, so that what follows is aligned.
inline size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }
/// Room for `bytes` at the end of a workspace of `size`: where it begins.
inline size_t take_lines(size_t& size, size_t bytes) {
  const size_t at = size;
  size += whole_lines(bytes);
  return at;
}

/// Copies the elements of `a` to `to` in channels-last order.
void to_channels_last(const Array& a, void* to);
/// The same for a dense array: strides in the order of `like`; false: row-major or not dense.
bool strides_like(const Array& like, Strides& strides);
/// Dense strides of `out` in the order of `like`'s dimensions, the last innermost, so that heads
/// split from one matrix are read and written in place; false: row-major.
bool dense_strides_as(const Array& like, const Array& out, Strides& strides);
/// No element is shared and strides are positive: libraries can read it in place.
bool is_plain(const Array& a);

}  // namespace tandem::detail
