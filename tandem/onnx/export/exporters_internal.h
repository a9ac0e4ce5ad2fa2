// SPDX-License-Identifier: Apache-2.0
// The exporters of rows, by family (export/*.cpp); the rows that name them are in import/*.cpp.
#pragma once

#include "tandem/onnx/import/build_internal.h"
#include "tandem/ops/index/index.h"

namespace tandem::onnx {

// ---- control.cpp
bool export_cond(OnnxExportCall&c), export_while(OnnxExportCall&c), export_scan(OnnxExportCall&c);
// ---- index.cpp
bool export_index(OnnxExportCall&c), export_index_put(OnnxExportCall&c),
    export_index_backward(OnnxExportCall&c), export_region_put(OnnxExportCall&c),
    export_gather(OnnxExportCall&c), export_scatter(OnnxExportCall&c),
    export_scatter_add(OnnxExportCall&c), export_scatter_extreme(OnnxExportCall&c),
    export_dynamic_update(OnnxExportCall&c), export_dynamic_slice(OnnxExportCall&c),
    export_sort(OnnxExportCall&c), export_topk(OnnxExportCall&c), export_nonzero(OnnxExportCall&c),
    export_one_hot(OnnxExportCall&c), export_bincount(OnnxExportCall&c),
    export_searchsorted(OnnxExportCall&c), export_cdist(OnnxExportCall&c);
// ---- math.cpp
bool export_cast(OnnxExportCall&c), export_leaky_relu(OnnxExportCall&c),
    export_elu(OnnxExportCall&c), export_celu(OnnxExportCall&c), export_selu(OnnxExportCall&c),
    export_hardsigmoid(OnnxExportCall&c), export_hardswish(OnnxExportCall&c),
    export_mish(OnnxExportCall&c), export_gelu(OnnxExportCall&c),
    export_gelu_tanh(OnnxExportCall&c), export_softplus(OnnxExportCall&c),
    export_relu6(OnnxExportCall&c), export_clamp(OnnxExportCall&c),
    export_clamp_min(OnnxExportCall&c), export_clamp_max(OnnxExportCall&c),
    export_matmul(OnnxExportCall&c), export_linear(OnnxExportCall&c);
// ---- norm.cpp
bool export_layer_norm(OnnxExportCall&c), export_batch_norm(OnnxExportCall&c),
    export_softmax(OnnxExportCall&c), export_log_softmax(OnnxExportCall&c),
    export_cross_entropy(OnnxExportCall&c), export_cross_entropy_backward(OnnxExportCall&c),
    export_nll_loss(OnnxExportCall&c), export_nll_loss_backward(OnnxExportCall&c),
    export_lstm(OnnxExportCall&c), export_gru(OnnxExportCall&c), export_rnn(OnnxExportCall&c),
    export_lstm_cell(OnnxExportCall&c), export_lstm_cell_backward(OnnxExportCall&c);
// ---- quant.cpp
bool export_quantize(OnnxExportCall&c), export_dequantize(OnnxExportCall&c),
    export_fake_quantize(OnnxExportCall&c), export_dynamic_quantize(OnnxExportCall&c),
    export_matmul_integer(OnnxExportCall&c), export_matmul_nbits(OnnxExportCall&c);
// ---- random.cpp
bool export_rand(OnnxExportCall&c), export_randn(OnnxExportCall&c),
    export_randint(OnnxExportCall&c), export_randperm(OnnxExportCall&c),
    export_bernoulli(OnnxExportCall&c), export_dropout(OnnxExportCall&c),
    export_dropout_backward(OnnxExportCall&c), export_multinomial(OnnxExportCall&c);
// ---- reduce.cpp
bool export_sum(OnnxExportCall&c), export_mean(OnnxExportCall&c), export_prod(OnnxExportCall&c),
    export_norm(OnnxExportCall&c), export_logsumexp(OnnxExportCall&c),
    export_amax(OnnxExportCall&c), export_amin(OnnxExportCall&c),
    export_count_nonzero(OnnxExportCall&c), export_any(OnnxExportCall&c),
    export_all(OnnxExportCall&c), export_argmax(OnnxExportCall&c), export_argmin(OnnxExportCall&c),
    export_max_dim(OnnxExportCall&c), export_min_dim(OnnxExportCall&c),
    export_var(OnnxExportCall&c), export_sum_to(OnnxExportCall&c), export_cumsum(OnnxExportCall&c),
    export_cumprod(OnnxExportCall&c), export_logcumsumexp(OnnxExportCall&c),
    export_cummax(OnnxExportCall&c), export_cummin(OnnxExportCall&c),
    export_linear_scan(OnnxExportCall&c);
// ---- shape.cpp
bool export_alias(OnnxExportCall&c), export_with_vjp(OnnxExportCall&c),
    export_view(OnnxExportCall&c), export_permute(OnnxExportCall&c),
    export_expand(OnnxExportCall&c), export_slice(OnnxExportCall&c),
    export_select(OnnxExportCall&c), export_diagonal(OnnxExportCall&c),
    export_diagonal_backward(OnnxExportCall&c), export_unfold(OnnxExportCall&c),
    export_unfold_backward(OnnxExportCall&c), export_slice_backward(OnnxExportCall&c),
    export_pad(OnnxExportCall&c), export_cat(OnnxExportCall&c), export_flip(OnnxExportCall&c),
    export_roll(OnnxExportCall&c), export_tril(OnnxExportCall&c), export_triu(OnnxExportCall&c),
    export_fill(OnnxExportCall&c), export_made(OnnxExportCall&c), export_arange(OnnxExportCall&c),
    export_linspace(OnnxExportCall&c), export_eye(OnnxExportCall&c);
// ---- signal.cpp
bool export_fft(OnnxExportCall&c), export_rfft(OnnxExportCall&c), export_irfft(OnnxExportCall&c),
    export_det(OnnxExportCall&c);
// ---- window.cpp
bool export_conv(OnnxExportCall&c), export_conv_backward_input(OnnxExportCall&c),
    export_conv_backward_weight(OnnxExportCall&c), export_avg_pool(OnnxExportCall&c),
    export_avg_pool_backward(OnnxExportCall&c), export_max_pool(OnnxExportCall&c),
    export_max_pool_backward(OnnxExportCall&c), export_interpolate(OnnxExportCall&c),
    export_interpolate_backward(OnnxExportCall&c), export_grid_sample(OnnxExportCall&c),
    export_im2col(OnnxExportCall&c), export_col2im(OnnxExportCall&c),
    export_roi_align(OnnxExportCall&c), export_nms(OnnxExportCall&c);

// ---- shared
// Index tensors for the dimensions from `dim` on.
IndexAttrs index_at(int64_t dim);
/// Sizes, possibly more than a shape can have, as a vector of int64.
std::string dim_list(OnnxBuilder& b, const std::vector<Dim>& all);
/// The rows found, padded with `fill` to `shape` or truncated to it.
std::string padded_rows(OnnxBuilder& b, const std::string& rows, const Shape& shape, int64_t fill);

}  // namespace tandem::onnx
