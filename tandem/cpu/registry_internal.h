// SPDX-License-Identifier: Apache-2.0
// What the files of the CPU backend give to register_cpu_backend(), and what they share: the
// processor's features and small questions about arrays. Later registrations win over earlier ones.
#pragma once

#include <string>

#include "tandem/graph/op_def.h"

namespace tandem::detail {

/// Instruction sets that this process may use.
struct CpuFeatures {
  bool avx2 = false;    ///< with FMA
  bool avx512 = false;  ///< F, DQ, BW, VL
  bool bf16 = false;    ///< AVX-512 BF16
  bool f16 = false;     ///< AVX-512 FP16
  bool amx = false;     ///< tiles with bf16
};
const CpuFeatures& cpu_features();

void register_transpose_kernels();
void register_gemm_kernels();
void register_conv_kernels();
/// As fast as oneDNN's, which are tried first.
void register_direct_conv_kernels();
void register_direct_conv_weight_kernel();
void register_turned_bf16();
/// Faster than all others for large weights: the derivative by the weight, and the other two.
void register_conv_weight_kernels();
void register_wide_conv_kernels();
/// Of the rows in ops/packed.h.
void register_packed_kernels();
void register_pool_kernels();
void register_resample_kernels();
void register_norm_kernels();
void register_batch_norm_kernels();
void register_loss_kernels();
void register_update_kernels();
void register_attention_kernels();
void register_rnn_kernels();
void register_gru_kernels();  // with register_rnn_kernels
/// Built only with oneDNN.
void register_onednn_kernels();
/// "3.2.0, avx512_core_amx"
std::string onednn_version();

/// Scratch bytes in whole cache lines, so that what follows begins at one.
inline size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

/// Are the strides those of a dense array whose channels (dimension 1) lie innermost? Dimensions
/// of size 1 do not count.
bool is_channels_last(const Array& a);
/// Channels-last strides of a shape [n, c, ...].
Strides channels_last_strides(const int64_t* shape, int rank);
/// The elements of `a` at `to`, which is channels-last.
void to_channels_last(const Array& a, void* to);
/// Same, for a dense array: strides in the order of `like`; false: it is row-major or not dense.
bool strides_like(const Array& like, Strides& strides);
/// Dense strides of `out` in the order in which the dimensions of `like` lie, the last innermost,
/// so that heads split from one matrix are read and written where they lie; false: row-major.
bool dense_strides_as(const Array& like, const Array& out, Strides& strides);
/// No element is shared and strides are positive; what libraries can read in place.
bool is_plain(const Array& a);

}  // namespace tandem::detail
