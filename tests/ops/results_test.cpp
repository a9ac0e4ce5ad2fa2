// SPDX-License-Identifier: Apache-2.0
// Results of several tensors: the names of their fields, and what takes them whole.
#include "tests/ops/values_helper.h"

namespace tandem::testing_ops {
namespace {

using ResultsTest = OpsTest;

template <class Result>
std::string names_of(Result r) {
  std::string names;
  auto add = [&names](const char* name, auto&) {
    if (!names.empty()) names += ' ';
    names += name;
  };
  r.fields(add);
  return names;
}

// As torch.return_types has them; where PyTorch returns a plain tuple, as its documentation.
TEST_F(ResultsTest, FieldsHavePyTorchsNames) {
  manual_seed(1);
  const Tensor x = randn({3, 3}, float64), a = matmul(x, x.t()) + eye(3, 3, float64);
  const Tensor image = randn({1, 1, 4, 4});
  const struct {
    const char* function;
    std::string got, want;
  } kResults[] = {
#define RESULT_OF(call, want) {#call, names_of(call), want}
      RESULT_OF(sort(x), "values indices"),
      RESULT_OF(topk(x, 2), "values indices"),
      RESULT_OF(max(x, 0), "values indices"),
      RESULT_OF(min(x, 0), "values indices"),
      RESULT_OF(median(x, 0), "values indices"),
      RESULT_OF(nanmedian(x, 0), "values indices"),
      RESULT_OF(mode(x, 0), "values indices"),
      RESULT_OF(kthvalue(x, 1, 0), "values indices"),
      RESULT_OF(cummax(x, 0), "values indices"),
      RESULT_OF(cummin(x, 0), "values indices"),
      RESULT_OF(aminmax(x), "min max"),
      RESULT_OF(var_mean(x), "var mean"),
      RESULT_OF(std_mean(x), "std mean"),
      RESULT_OF(frexp(x), "mantissa exponent"),
      RESULT_OF(histogram(x, 2), "hist bin_edges"),
      RESULT_OF(histogramdd(x, {2}), "hist bin_edges"),
      RESULT_OF(unique(x), "output inverse_indices counts"),
      RESULT_OF(unique_consecutive(x), "output inverse_indices counts"),
      RESULT_OF(slogdet(x), "sign logabsdet"),
      RESULT_OF(geqrf(x), "a tau"),
      RESULT_OF(svd(x), "U S V"),
      RESULT_OF(svd_lowrank(x, 2), "U S V"),
      RESULT_OF(pca_lowrank(x), "U S V"),
      RESULT_OF(lobpcg(a), "eigenvalues eigenvectors"),
      RESULT_OF(triangular_solve(x, a), "solution cloned_coefficient"),
      RESULT_OF(lu(x), "LU pivots"),
      RESULT_OF(lu_unpack(x, lu(x).pivots), "P L U"),
      RESULT_OF(linalg::lu(x), "P L U"),
      RESULT_OF(linalg::lu_factor(x), "LU pivots"),
      RESULT_OF(linalg::lu_factor_ex(x), "LU pivots info"),
      RESULT_OF(linalg::ldl_factor(a), "LD pivots"),
      RESULT_OF(linalg::ldl_factor_ex(a), "LD pivots info"),
      RESULT_OF(linalg::cholesky_ex(a), "L info"),
      RESULT_OF(linalg::inv_ex(x), "inverse info"),
      RESULT_OF(linalg::solve_ex(x, a), "result info"),
      RESULT_OF(linalg::qr(x), "Q R"),
      RESULT_OF(linalg::svd(x), "U S Vh"),
      RESULT_OF(linalg::eigh(a), "eigenvalues eigenvectors"),
      RESULT_OF(linalg::polar(x), "U H"),
      RESULT_OF(linalg::lstsq(x, a), "solution residuals rank singular_values"),
      RESULT_OF(max_pool2d_with_indices(image, {2}), "output indices"),
      RESULT_OF(adaptive_max_pool2d_with_indices(image, {2}), "output indices"),
      RESULT_OF(fractional_max_pool2d_with_indices(image, {2}, {.output_size = {2}}),
                "output indices"),
#undef RESULT_OF
  };
  for (const auto& r : kResults) EXPECT_EQ(r.got, r.want) << r.function;
}

TEST_F(ResultsTest, PassWhole) {
  const Tensor x = tensor({{3., 1., 2.}, {5., 6., 4.}});
  const auto [values, indices] = topk(x, 2);
  expect_tensor(values, {2, 2}, {3, 2, 6, 5});
  expect_tensor(indices, {2, 2}, {0, 2, 1, 0});
  const ValuesAndIndices method = x.topk(2), rows = vmap([](Tensor r) { return topk(r, 2); })(x);
  for (const ValuesAndIndices& r : {method, rows}) {
    EXPECT_TRUE(equal(r.values, values));
    EXPECT_TRUE(equal(r.indices, indices));
  }
}

}  // namespace
}  // namespace tandem::testing_ops
