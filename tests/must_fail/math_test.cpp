// SPDX-License-Identifier: Apache-2.0
// Wrong arguments to linear algebra, searching, segments, transforms and distributions.
#include <cmath>

#include "tandem/distributions/distributions.h"
#include "tests/must_fail/must_fail_helper.h"
#include "tests/support/init.h"

namespace tandem::must_fail {
namespace {

// clang-format off
TEST(MustFail, LinearAlgebra) {
  Tensor m = ones({2, 3}), one = ones({2, 2}), v = ones({3});
  check({
    FAILS(cholesky_indefinite, Value, "cholesky|matrix 0|not positive definite", linalg::cholesky(one * -1.0)),
    FAILS_PLAIN(cholesky_shape, Shape, "cholesky|square|[2, 3]", linalg::cholesky(m)),
    FAILS(inv_singular, Value, "inv|matrix 0|singular", linalg::inv(one)),
    FAILS(solve_singular, Value, "solve|matrix 0|singular", linalg::solve(one, one)),
    FAILS(solve_rows, Shape, "solve|[2, 2]|[3, 1]", linalg::solve(one, v)),
    FAILS(solve_dtype, DType, "solve|float32|float64", linalg::solve(eye(2), one.to(float64))),
    FAILS(det_dtype, DType, "det|int64|float32 or float64", linalg::det(ones({2, 2}, int64))),
    FAILS_PLAIN(svd_vector, Shape, "svd|[3]", linalg::svd(v)),
    FAILS_PLAIN(svd_nan, Value, "svd|matrix 0|NaN", linalg::svd(one * std::nan(""))),
    FAILS_PLAIN(eigh_triangle, Value, "eigh|UPLO 'x'", linalg::eigh(one, "x")),
    FAILS(eig_complex, Unsupported, "eig|complex", linalg::eig(one)),
    FAILS_PLAIN(qr_mode, Value, "qr|full", linalg::qr(m, "full")),
    FAILS_PLAIN(power_shape, Shape, "matrix_power|[2, 3]", linalg::matrix_power(m, 2)),
    FAILS_PLAIN(norm_order, Value, "matrix_norm|3", linalg::matrix_norm(m, 3.0)),
    FAILS_PLAIN(multi_dot_one, Value, "multi_dot|1", linalg::multi_dot({m})),
    FAILS_PLAIN(scan_scalar, Shape, "linear_scan|one dimension", linear_scan(ones({}), ones({}), 0)),
    FAILS(scan_dtype, DType, "linear_scan|float32|int64", linear_scan(v, ones({3}, int64), 0)),
  });
}

TEST(MustFail, SpecialFunctions) {
  Tensor x = ones({3}), a = full({3}, 2.0).requires_grad_();
  check({
    FAILS(polygamma_order, Value, "polygamma|-1", polygamma(-1, x)),
    FAILS(mvlgamma_dimension, Value, "mvlgamma|0", mvlgamma(x, 0)),
    FAILS(zeta_exponent_gradient, Unsupported, "zeta|no derivative|'a'", zeta(a, x).sum().backward()),
    FAILS(gammainc_shape_gradient, Unsupported, "gammainc|no derivative|'a'", gammainc(a, x).sum().backward()),
    FAILS(gammaincc_shapes, Shape, "gammaincc|[3]|[2]", gammaincc(x, ones({2}))),
    FAILS_ANYWHERE(binomial_entropy_count, Unsupported, "Binomial|entropy|1e6",
          distributions::Binomial(1e9, {.probs = full({1}, 0.5)}).entropy()),
  });
}

TEST(MustFail, SearchingAndSegments) {
  Tensor x = ones({2, 3}), ids = tensor({0, 1, 1});
  check({
    FAILS(search_dtype, DType, "searchsorted|float32|int64", searchsorted(ones({3}), ids)),
    FAILS_PLAIN(search_rows, Shape, "searchsorted|[2, 3]|[4]", searchsorted(x, ones({4}))),
    FAILS_PLAIN(bucket_edges, Shape, "bucketize|[2, 3]", bucketize(x, x)),
    FAILS_PLAIN(kth_range, Value, "kthvalue|1..3|4", kthvalue(x, 4)),
    FAILS_PLAIN(median_empty, Shape, "median|empty", median(ones({2, 0}), 1)),
    FAILS_PLAIN(quantile_range, Value, "quantile|0..1|2", quantile(x, 2.0)),
    FAILS_PLAIN(quantile_dtype, DType, "quantile|int64", quantile(ids, 0.5)),
    FAILS_PLAIN(histc_range, Value, "histc|increasing", histc(x, 4, 2, 1)),
    FAILS_PLAIN(scatter_word, Value, "scatter_reduce|'max'", scatter_reduce(x, 1, zeros({2, 3}, int64), x, "max")),
    FAILS_PLAIN(scatter_index, Index, "scatter_reduce|7|out of range", scatter_reduce(x, 1, full({2, 3}, 7), x, "amax")),
    FAILS_PLAIN(segment_rows, Shape, "segment_sum|[2, 3]|3", segment_sum(x, ids)),
    FAILS_PLAIN(segment_ids, Shape, "segment_max|float32", segment_max(x, ones({2}))),
    FAILS_PLAIN(segment_end, Value, "segment_reduce|1|2", segment_reduce(x, "sum", tensor({1}))),
    FAILS_PLAIN(mask_dtype, DType, "masked_scatter|float32", masked_scatter(x, x, x)),
    FAILS(cdist_sizes, Shape, "cdist|[2, 3]|[2, 4]", cdist(x, ones({2, 4}))),
    FAILS_PLAIN(cross_size, Shape, "cross|[2, 2]", cross(ones({2, 2}), ones({2, 2}))),
    FAILS_PLAIN(trace_rank, Shape, "trace|[3]", trace(ones({3}))),
  });
}

TEST(MustFail, TransformsAndDistributions) {
  using namespace distributions;
  Tensor x = ones({4});
  check({
    FAILS(fft_real, Shape, "fft|[4]|last dimension of 2", fft::fft(x)),
    FAILS(fft_half, DType, "rfft|float16", fft::rfft(x.to(float16))),
    FAILS_PLAIN(fft_norm, Value, "rfft|'unit'", fft::rfft(x, {}, -1, "unit")),
    FAILS_PLAIN(fft_length, Value, "rfft|positive|0", fft::rfft(x, 0)),
    FAILS_PLAIN(fft_huge, Memory, "rfft|too long", fft::rfft(x, int64_t{1} << 50)),
    FAILS_PLAIN(stft_short, Shape, "stft|32", stft(x, 64)),
    FAILS_PLAIN(istft_rows, Shape, "istft|9 frequencies", istft(ones({4, 3, 2}), 16)),
    FAILS_PLAIN(window_dtype, DType, "hann_window|int64", hann_window(4, true, int64)),
    FAILS_PLAIN(gamma_draw, Value, "sample_gamma|element 0|positive", sample_gamma(x * -1.0)),
    FAILS_PLAIN(poisson_rate, Value, "poisson|element 0|negative", poisson(x * -1.0)),
    FAILS_ANYWHERE(normal_scale, Value, "Normal|scale", Normal(0.0, 0.0)),
    FAILS_ANYWHERE(categorical_probs, Value, "Categorical|negative", Categorical({.probs = x * -1.0})),
    FAILS_ANYWHERE(kl_pair, Unsupported, "Normal|Gamma", kl_divergence(Normal(0.0, 1.0), Gamma(1.0, 1.0))),
  });
}
// clang-format on

}  // namespace
}  // namespace tandem::must_fail
