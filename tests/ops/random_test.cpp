// SPDX-License-Identifier: Apache-2.0
// Random ops: what a draw consists of, statistics with wide margins, derivatives, error texts.
#include <algorithm>
#include <cmath>

#include "tandem/base/philox.h"
#include "tests/ops/values_helper.h"

namespace tandem::testing_ops {
namespace {

class RandomTest : public OpsTest {
 protected:
  void SetUp() override { manual_seed(42); }
};

double mean_of(const std::vector<double>& v) {
  double s = 0;
  for (double x : v) s += x;
  return s / static_cast<double>(v.size());
}

TEST_F(RandomTest, ElementIsPhiloxOfSeedOffsetElement) {
  rand({3});
  const std::vector<float> got = rand({40, 50}).to_vector<float>();
  for (size_t e = 0; e < got.size(); ++e)
    ASSERT_EQ(got[e], uniform_f32(philox(42, 1, e).w[0])) << e;
  const std::vector<float> n = normal(2, 3, {1000}).to_vector<float>();
  for (size_t e = 0; e < n.size(); ++e) ASSERT_EQ(n[e], 2 + normal_f32(philox(42, 2, e)) * 3) << e;
  EXPECT_EQ(generator_state().offset, 3u);
}

TEST_F(RandomTest, ThreadsDoNotMatter) {
  std::vector<float> first;
  for (int threads : {1, 2, 8}) {
    ThreadLimitGuard limit(threads);
    manual_seed(7);
    std::vector<float> got = randn({100003}).to_vector<float>();
    const std::vector<float> d = dropout(ones({70001}), 0.3).to_vector<float>();
    got.insert(got.end(), d.begin(), d.end());
    if (first.empty()) first = got;
    EXPECT_TRUE(got == first) << threads;
  }
}

TEST_F(RandomTest, RangesAndMeans) {
  for (DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const Values u = values(rand({20000}, dtype));
    EXPECT_GE(*std::min_element(u.begin(), u.end()), 0) << to_string(dtype);
    EXPECT_LT(*std::max_element(u.begin(), u.end()), 1) << to_string(dtype);
    EXPECT_NEAR(mean_of(u), 0.5, 0.02) << to_string(dtype);
    Values n = values(randn({20000}, dtype));
    EXPECT_NEAR(mean_of(n), 0, 0.05) << to_string(dtype);
    for (double& x : n) x *= x;
    EXPECT_NEAR(mean_of(n), 1, 0.08) << to_string(dtype);
  }
  const Values u = values(uniform({20000}, -3, 5));
  EXPECT_GE(*std::min_element(u.begin(), u.end()), -3);
  EXPECT_NEAR(mean_of(u), 1, 0.15);
  Values i = values(randint(-2, 3, {5000}));
  EXPECT_EQ(*std::min_element(i.begin(), i.end()), -2);
  EXPECT_EQ(*std::max_element(i.begin(), i.end()), 2);
  Values p = values(randperm(100));
  std::sort(p.begin(), p.end());
  EXPECT_EQ(p, values(arange(100)));
  EXPECT_EQ(randperm(0).shape(), Shape(0));
  expect_error(ErrorKind::DType, "expected a floating dtype, got int64",
               [] { rand({2}, DType::i64); });
  expect_error(ErrorKind::Value, "low 3 must be below high 3", [] { randint(3, 3, {1}); });
  expect_error(ErrorKind::Value, "numbers from 0 to 299 do not fit uint8",
               [] { randint(300, {1}, DType::u8); });
  expect_error(ErrorKind::Value, "low 1 must not be above high 0", [] { uniform({1}, 1, 0); });
  expect_error(ErrorKind::Value, "must not be negative, got -1", [] { normal(0, -1, {1}); });
}

TEST_F(RandomTest, DropoutScalesWhatItKeeps) {
  Tensor x = full({200, 100}, 3.0).requires_grad_();
  const Tensor y = dropout(x, 0.25);
  const std::vector<float> v = y.to_vector<float>();
  int64_t kept = 0;
  for (float a : v) {
    ASSERT_TRUE(a == 0 || a == 4) << a;
    kept += a != 0;
  }
  EXPECT_NEAR(static_cast<double>(kept) / 20000, 0.75, 0.02);
  y.backward(ones({200, 100}));
  const std::vector<float> g = x.grad().to_vector<float>();
  for (size_t i = 0; i < g.size(); ++i) ASSERT_EQ(g[i], v[i] == 0 ? 0 : 1 / 0.75f) << i;
  EXPECT_EQ(dropout(x, 0.5, false).impl(), x.impl());
  expect_tensor(dropout(ones({3}), 1), {3}, {0, 0, 0});
  expect_error(ErrorKind::Value, "p must be in 0..1, got 1.5", [&] { dropout(x, 1.5); });
  expect_error(ErrorKind::DType, "expected a floating dtype",
               [] { dropout(ones({2}, DType::i64)); });
}

TEST_F(RandomTest, DropoutIsTheSameInEveryLayout) {
  const Tensor x = count({30, 40}) + 1.0f;
  manual_seed(3);
  const std::vector<float> dense = dropout(x, 0.4).to_vector<float>();
  manual_seed(3);
  EXPECT_EQ(dropout(x.t().contiguous().t(), 0.4).to_vector<float>(), dense);
  manual_seed(3);
  const std::vector<double> wide = values(dropout(x.to(DType::f64), 0.4));
  for (size_t i = 0; i < wide.size(); ++i) ASSERT_EQ(wide[i] == 0, dense[i] == 0) << i;
}

// 16-bit numbers and images with channels last: the values of row-major f32, rounded once; the
// layout stays, of the gradient too.
TEST_F(RandomTest, DropoutOfImagesAnd16Bits) {
  const Tensor plain = count({2, 5, 7, 300}) + 1.0f;
  const Tensor turned = plain.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
  for (DType d : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor rounded = plain.to(d).to(DType::f32).detach().requires_grad_();
    manual_seed(5);
    const Tensor want = dropout(rounded, 0.3);
    (want * want).sum().backward();
    for (const Tensor& source : {plain, turned}) {
      const Tensor x = source.to(d).detach().requires_grad_();
      manual_seed(5);
      const Tensor y = dropout(x, 0.3);
      EXPECT_EQ(y.to(DType::f32).to_vector<float>(), want.to(d).to(DType::f32).to_vector<float>());
      EXPECT_EQ(y.is_contiguous(), x.is_contiguous());
      (y * y).sum().backward();
      EXPECT_TRUE(((x.grad() == 0) == (rounded.grad() == 0)).all().item<bool>());
    }
  }
}

TEST_F(RandomTest, Bernoulli) {
  const Values v = values(bernoulli(full({10000}, 0.2)));
  EXPECT_NEAR(mean_of(v), 0.2, 0.02);
  expect_tensor(bernoulli(tensor({0.f, 1.f})), {2}, {0, 1});
  EXPECT_NEAR(mean_of(values(bernoulli(zeros({10000}), 0.7))), 0.7, 0.02);
  expect_error(ErrorKind::Value, "probability at element 1 is not in 0..1", [] {
    bernoulli(tensor({0.5f, 1.5f}));
  });
}

TEST_F(RandomTest, Multinomial) {
  const Tensor w = tensor({{0.f, 1.f, 3.f}, {1.f, 0.f, 0.f}});
  const Tensor s = multinomial(w, 8000, true);
  EXPECT_EQ(s.shape(), Shape(2, 8000));
  const Values v = values(s[0]);
  EXPECT_EQ(std::count(v.begin(), v.end(), 0.0), 0);
  EXPECT_NEAR(static_cast<double>(std::count(v.begin(), v.end(), 2.0)) / 8000, 0.75, 0.03);
  EXPECT_EQ(values(s[1]), Values(8000, 0));
  for (int i = 0; i < 20; ++i) {
    Values two = values(multinomial(tensor({0.f, 1.f, 3.f, 2.f}), 3));
    std::sort(two.begin(), two.end());
    EXPECT_EQ(two, (Values{1, 2, 3}));
  }
  int first = 0;
  for (int i = 0; i < 2000; ++i) first += multinomial(tensor({1.f, 3.f}), 1).item<int64_t>() == 1;
  EXPECT_NEAR(first / 2000.0, 0.75, 0.05);
  expect_error(ErrorKind::Value, "4 samples of 3 without replacement", [&] { multinomial(w, 4); });
  expect_error(ErrorKind::Value, "row 0 has a weight that is negative", [] {
    multinomial(tensor({-1.f, 1.f}), 1);
  });
  expect_error(ErrorKind::Value, "row 0 has too few weights above 0", [] {
    multinomial(tensor({0.f, 1.f}), 2);
  });
}

TEST_F(RandomTest, DropoutSecondOrder) {
  const Tensor x = (count({4, 3}, DType::f64) + 1.0) * 0.2;
  const auto f = [](std::span<const Tensor> in) -> Tensors {
    const GeneratorState s = generator_state();
    const Tensor y = dropout(square(in[0]), 0.4);
    set_generator_state(s);
    return {y};
  };
  EXPECT_TRUE(gradcheck(f, {x}, {.order = 2}));
}

}  // namespace
}  // namespace tandem::testing_ops
