// SPDX-License-Identifier: Apache-2.0
// Matmuls that go to cuBLASLt (mock/libcublaslt.cpp): transposes, lines, batches and biases as rows
// describe them, what own kernels run, and how errors arrive.
#include "tests/gpu/vendor_mocks_helper.h"

namespace tandem::gpu {
namespace {

class MatmulsOnAMock : public OnVendorMocks {
 protected:
  MatmulsOnAMock() : OnVendorMocks("mock_lt") {}
  // a b on the device is what the CPU gives, by this many calls of the library.
  void expect_matmul(const Tensor& a, const Tensor& b, int calls) {
    SCOPED_TRACE(a.shape().to_string() + " " + b.shape().to_string());
    expect_near(matmul(there(a), there(b)), matmul(a, b), calls);
  }
  void expect_near(const Tensor& got, const Tensor& want, int calls) {
    EXPECT_EQ(new_runs(), calls);
    EXPECT_TRUE(allclose(got.cpu(), want, 1e-5, 1e-4)) << last();
  }
};

TEST_F(MatmulsOnAMock, Matrices) {
  for (const DType t : {float32, float64}) {
    const Tensor a = randn({9, 13}).to(t), b = randn({13, 11}).to(t);
    expect_matmul(a, b, 1);
    // Column-major: our b is its first factor, and rows are its columns.
    EXPECT_EQ(last(), "11x13/11 13x9/13 11x9/11");
    const Tensor at = there(a.t().contiguous()).t(), bt = there(b.t().contiguous()).t();
    expect_near(matmul(at, there(b)), matmul(a, b), 1);
    EXPECT_EQ(last(), "11x13/11 9x13/9^T 11x9/11");
    expect_near(matmul(there(a), bt), matmul(a, b), 1);
    EXPECT_EQ(last(), "13x11/13^T 13x9/13 11x9/11");
    expect_near(matmul(at, bt), matmul(a, b), 1);
    EXPECT_EQ(last(), "13x11/13^T 9x13/9^T 11x9/11");
  }
  expect_matmul(randn({1, 13}), randn({13, 11}), 1);
  expect_matmul(randn({9, 1}), randn({1, 11}), 1);
  expect_matmul(randn({9, 13}), randn({13, 1}), 1);
}

TEST_F(MatmulsOnAMock, PartsOfLargerMatrices) {
  const Tensor a = randn({10, 16}), b = randn({13, 24});
  const auto rows = [](const Tensor& x) { return x.slice(0, 1, 8, 1).slice(1, 0, 13, 1); };
  const auto columns = [](const Tensor& x) { return x.slice(1, 4, 15, 1); };
  expect_near(matmul(rows(there(a)), columns(there(b))), matmul(rows(a), columns(b)), 1);
  EXPECT_EQ(last(), "11x13/24 13x7/16 11x7/11");
}

TEST_F(MatmulsOnAMock, Batches) {
  expect_matmul(randn({3, 6, 7}), randn({3, 7, 5}), 1);
  EXPECT_EQ(last(), "5x7/5*3/35 7x6/7*3/42 5x6/5*3/30");
  // One b for all rows of a is one matmul, one a for all is a batch that stays where it is.
  expect_matmul(randn({3, 6, 7}), randn({7, 5}), 1);
  EXPECT_EQ(last(), "5x7/5 7x18/7 5x18/5");
  expect_matmul(randn({6, 7}), randn({3, 7, 5}), 1);
  EXPECT_EQ(last(), "5x7/5*3/35 7x6/7*3/0 5x6/5*3/30");
  expect_matmul(randn({2, 3, 6, 7}), randn({2, 3, 7, 5}), 1);
  // A batch whose outer dimension has another stride is a call for each.
  expect_matmul(randn({2, 4, 4, 8}), randn({4, 8, 4}), 2);
  expect_matmul(randn({2, 1, 4, 8}), randn({1, 4, 8, 4}), 2);
  const Tensor heads = randn({2, 6, 3, 4});  // [batch, position, head, feature]
  const auto scores = [](const Tensor& x) {
    const Tensor q = x.transpose(1, 2);
    return matmul(q, q.transpose(2, 3));
  };
  expect_near(scores(there(heads)), scores(heads), 2);
  EXPECT_EQ(last(), "4x6/12*3/4^T 4x6/12*3/4 6x6/6*3/36");
}

TEST_F(MatmulsOnAMock, LinearLayers) {
  const Tensor w = randn({5, 7}), b = randn({5});
  for (const Shape& s : {Shape(4, 7), Shape(2, 3, 7), Shape{7}}) {
    const Tensor x = randn(s);
    expect_near(linear(there(x), there(w)), linear(x, w), 1);
    EXPECT_FALSE(has(last(), "bias")) << last();
    expect_near(linear(there(x), there(w), there(b)), linear(x, w, b), 1);
    EXPECT_TRUE(has(last(), "bias")) << last();
  }
  const Tensor x = randn({4, 7}).requires_grad_(), v = w.clone().requires_grad_(),
               c = b.clone().requires_grad_(), g = randn({4, 5});
  linear(x, v, c).backward(g);
  const Tensor tx = there(x.detach()).requires_grad_(), tv = there(v.detach()).requires_grad_(),
               tc = there(c.detach()).requires_grad_();
  linear(tx, tv, tc).backward(there(g));
  EXPECT_EQ(new_runs(), 3);
  EXPECT_TRUE(allclose(tx.grad().cpu(), x.grad(), 1e-5, 1e-5));
  EXPECT_TRUE(allclose(tv.grad().cpu(), v.grad(), 1e-5, 1e-5));
  EXPECT_TRUE(allclose(tc.grad().cpu(), c.grad(), 1e-5, 1e-5));
}

TEST_F(MatmulsOnAMock, TypesAndPrecision) {
  const Tensor a = randn({9, 16}), b = randn({16, 11}), want = matmul(a, b);
  for (const DType t : {bfloat16, float16}) {
    const Tensor got = matmul(there(a.to(t)), there(b.to(t)));
    EXPECT_EQ(new_runs(), 1);
    EXPECT_TRUE(allclose(got.cpu().to(float32), matmul(a.to(t), b.to(t)).to(float32), 2e-2, 2e-2));
  }
  set_float32_matmul_precision(MatmulPrecision::tf32);
  const Tensor rounded = matmul(there(a), there(b)).cpu();
  EXPECT_TRUE(has(last(), "tf32")) << last();
  EXPECT_FALSE(allclose(rounded, want, 1e-6, 1e-6));
  EXPECT_TRUE(allclose(rounded, want, 1e-2, 1e-2));
  matmul(there(a.to(float64)), there(b.to(float64))).cpu();
  EXPECT_FALSE(has(last(), "tf32")) << last();
}

TEST_F(MatmulsOnAMock, OwnKernelsRunTheRest) {
  // Lines that overlap, matrices whose elements are apart on both sides, addresses not aligned.
  const Tensor row = randn({1, 7}), b = randn({7, 5}), wide = randn({12, 14}), c = randn({3, 5, 7});
  expect_near(matmul(there(row).expand({6, 7}), there(b)), matmul(row.expand({6, 7}), b), 0);
  const auto apart = [](const Tensor& x) { return x.slice(0, 0, 12, 2).slice(1, 0, 14, 2); };
  expect_near(matmul(apart(there(wide)), there(b)), matmul(apart(wide), b), 0);
  expect_near(matmul(there(c)[1], there(b)), matmul(c[1], b), 0);
  EXPECT_TRUE(matmul(there(zeros({4, 0})), there(zeros({0, 3}))).cpu().equal(zeros({4, 3})));
  const Tensor i = arange(12).reshape({3, 4}).to(int32);
  EXPECT_TRUE(matmul(there(i), there(i.t())).cpu().equal(matmul(i, i.t())));
  EXPECT_EQ(new_runs(), 0);
}

TEST_F(MatmulsOnAMock, ErrorsArriveAndNothingIsLost) {
  VendorMocks& mocks = VendorMocks::get();
  EXPECT_EQ(mocks.lt.report.version, "13.4.5");
  const Tensor a = there(randn({3, 17})), b = there(randn({17, 4}));
  fail("cublasLtMatmulAlgoGetHeuristic", 14);
  std::string text = thrown([&] { matmul(a, b); });
  EXPECT_TRUE(has(text, "fake:0: cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_14")) << text;
  fail("cublasLtMatmul", 13);
  text = thrown([&] { matmul(a, b); });
  EXPECT_TRUE(has(text, "fake:0: cublasLtMatmul: CUBLAS_STATUS_13")) << text;
  // What it does not support own kernels run.
  const Tensor wide = there(randn({17, 6}));
  fail("cublasLtMatmulAlgoGetHeuristic", 15);
  expect_near(matmul(a, wide), matmul(a.cpu(), wide.cpu()), 0);
  const int before = live();
  std::unique_ptr<MatmulLibrary> own;
  ASSERT_OK(open_cublaslt(mocks.lt, mocks.api, nullptr, own));
  const MatmulProblem p{
      .a_along_k = true, .m = 2, .n = 2, .k = 2, .a_line = 2, .b_line = 2, .y_line = 2};
  std::unique_ptr<MatmulPlan> plan;
  ASSERT_OK(own->plan(p, plan));
  EXPECT_GT(live(), before + 1);
  plan.reset();
  own.reset();
  EXPECT_EQ(live(), before);
}

}  // namespace
}  // namespace tandem::gpu
