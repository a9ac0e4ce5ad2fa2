// SPDX-License-Identifier: Apache-2.0
// Creation, constants, identities and printing.
#include <cmath>

#include "tests/ops/values_helper.h"

namespace tandem::testing_ops {
namespace {

class CreateTest : public OpsTest {};

TEST_F(CreateTest, Fills) {
  expect_tensor(zeros({2, 1}), {2, 1}, {0, 0});
  expect_tensor(ones(3, DType::i32), {3}, {1, 1, 1});
  EXPECT_EQ(full({2}, 3).dtype(), DType::i64);
  EXPECT_EQ(full({2}, 3.5).dtype(), DType::f32);
  EXPECT_EQ(full({2}, true).dtype(), DType::b8);
  expect_tensor(full({2}, 2.75, DType::bf16), {2}, {2.75, 2.75});
  expect_tensor(full({}, 300, DType::u8), {}, {44});
  EXPECT_EQ(zeros_like(ones({2, 3}, DType::f64)).dtype(), DType::f64);
  expect_tensor(full_like(ones({2}, DType::i64), 7), {2}, {7, 7});
  EXPECT_EQ(empty({4, 5}).shape(), Shape(4, 5));
  expect_error(ErrorKind::Shape, "sizes must not be negative, got [-1]", [] { zeros({-1}); });
  expect_error(ErrorKind::Shape, "sizes must not be negative", [] { empty({2, -3}); });
}

TEST_F(CreateTest, Ranges) {
  expect_tensor(arange(4), {4}, {0, 1, 2, 3});
  EXPECT_EQ(arange(4).dtype(), DType::i64);
  expect_tensor(arange(1, 7, 2), {3}, {1, 3, 5});
  expect_tensor(arange(5, 0, -2), {3}, {5, 3, 1});
  expect_tensor(arange(0, 1, 0.25), {4}, {0, 0.25, 0.5, 0.75});
  EXPECT_EQ(arange(0.0).shape(), Shape(0));
  expect_tensor(arange(3, DType::f64), {3}, {0, 1, 2});
  expect_tensor(linspace(0, 1, 5), {5}, {0, 0.25, 0.5, 0.75, 1});
  expect_tensor(linspace(3, 9, 1), {1}, {3});
  EXPECT_EQ(linspace(0, 0.1, 7).to_vector<float>().back(), 0.1f);
  expect_tensor(logspace(0, 2, 3), {3}, {1, 10, 100});
  expect_tensor(eye(2, 3), {2, 3}, {1, 0, 0, 0, 1, 0});
  expect_tensor(tril_indices(2, 2), {2, 3}, {0, 1, 1, 0, 0, 1});
  expect_error(ErrorKind::Value, "cannot be reached from 3 by steps of 1", [] { arange(3, 0); });
  expect_error(ErrorKind::Value, "step must not be 0", [] { arange(0, 3, 0); });
  expect_error(ErrorKind::Value, "must be finite", [] { arange(0.0, INFINITY, 1); });
  expect_error(ErrorKind::Value, "steps must not be negative", [] { linspace(0, 1, -1); });
}

TEST_F(CreateTest, FromNumbers) {
  expect_tensor(tensor({1.f, 2.f}), {2}, {1, 2});
  EXPECT_EQ(tensor({1.0, 2.0}).dtype(), DType::f32);
  EXPECT_EQ(tensor({1, 2}).dtype(), DType::i64);
  EXPECT_EQ(tensor({true, false}).dtype(), DType::b8);
  EXPECT_EQ(tensor({1, 2}, DType::f64).dtype(), DType::f64);
  EXPECT_EQ(tensor(5).dim(), 0);
  expect_tensor(tensor({{1, 2, 3}, {4, 5, 6}}), {2, 3}, {1, 2, 3, 4, 5, 6});
  expect_tensor(tensor({{{1}, {2}}, {{3}, {4}}}), {2, 2, 1}, {1, 2, 3, 4});
  EXPECT_EQ(tensor(std::vector<double>{1, 2}).dtype(), DType::f64);
  EXPECT_EQ(tensor(std::vector<int32_t>{1, 2}).dtype(), DType::i32);
  EXPECT_EQ(tensor(std::vector<uint32_t>{1, 4000000000u}).to_vector<int64_t>()[1], 4000000000);
  expect_tensor(tensor(std::vector<bool>{true, false}, {2, 1}), {2, 1}, {1, 0});
  expect_error(ErrorKind::Shape, "rows at level 1 have 2 and 1 entries", [] {
    tensor({{1, 2}, {3}});
  });
  expect_error(ErrorKind::Shape, "3 numbers do not make the shape [2, 2]", [] {
    tensor(std::vector<float>{1, 2, 3}, {2, 2});
  });
}

TEST_F(CreateTest, ConstantsInsideATrace) {
  const Tensor outer = tensor({1.f, 2.f});
  const auto f = [&](std::span<const Tensor> in) -> std::vector<Tensor> {
    return {in[0] + constant(outer) + tensor({10.f, 20.f}) + ones({2})};
  };
  const Spec spec(DType::f32, Shape(2));
  const Ref<Graph> g = trace(f, {&spec, 1}, Captures::refuse);
  const Tensor x = tensor({0.5f, 0.5f});
  expect_tensor(run(*g, {&x, 1})[0], {2}, {12.5, 23.5});
  EXPECT_EQ(constant(outer).impl(), outer.impl());
}

TEST_F(CreateTest, IdentityAndDebugPrint) {
  const Tensor x = tensor({1.f, 2.f});
  const Tensor y = identity(x);
  EXPECT_NE(y.impl(), x.impl());
  EXPECT_EQ(y.impl()->data, x.impl()->data);
  ::testing::internal::CaptureStderr();
  expect_tensor(debug_print(x, "x is"), {2}, {1, 2});
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.substr(0, 5), "x is ");
  EXPECT_NE(text.find("2."), std::string::npos) << text;
}

TEST_F(CreateTest, OwnDerivative) {
  struct Halve : VjpClosure {
    std::vector<Tensor> backward(std::span<const Tensor> x, std::span<const Tensor> y,
                                 std::span<const Tensor> g) override {
      EXPECT_EQ(values(x[0]), (Values{3}));
      EXPECT_EQ(values(y[0]), (Values{9}));
      return {g[0] * 0.5};
    }
  };
  Tensor x = tensor({3.f}).requires_grad_();
  Tensor y;
  {
    NoGradGuard no_grad;
    y = x * x;
  }
  const Tensor out = with_vjp({&x, 1}, {&y, 1}, make_ref<Halve>())[0];
  expect_tensor(out, {1}, {9});
  out.backward();
  expect_tensor(x.grad(), {1}, {0.5});
}

}  // namespace
}  // namespace tandem::testing_ops
