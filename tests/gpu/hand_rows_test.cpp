// SPDX-License-Identifier: Apache-2.0
// Kernels by hand at sizes that the op driver's rows do not reach: lanes longer than a block sorts
// by counting, matrices larger than a block of threads, and what kernels report.
#include <functional>

#include "tandem/graph/backend.h"
#include "tandem/ops/random/sampling.h"
#include "tandem/tandem.h"
#include "tests/gpu/tensors_helper.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"

namespace tandem::gpu {
namespace {

class HandRows : public OverDevices {
 protected:
  void SetUp() override {
    OverDevices::SetUp();
    if (IsSkipped()) return;
    manual_seed(5);
    reset_host_runs();
  }
  // Nothing that ran since SetUp() was the host's.
  static void expect_native() {
    const HostRuns runs = host_runs();
    EXPECT_EQ(runs.calls, 0) << (runs.calls ? runs.by_op[0].first : "") << " ran on the host";
  }
};
TD_OVER_DEVICES(HandRows);

// 1,500 elements, of which many are equal, and NaN.
Tensor crowded() {
  const Tensor x = floor(randn({2, 1500}) * 3.0);
  return where(x == 2.0, full({}, NAN), x);
}

TEST_P(HandRows, LongLanesAreSorted) {
  const Tensor x = crowded(), there = x.to(device_);
  for (const bool descending : {false, true}) {
    const auto want = sort(x, 1, descending), got = sort(there, 1, descending);
    EXPECT_TRUE(same_bits(got.values, want.values)) << descending;
    EXPECT_TRUE(same_bits(got.indices, want.indices)) << descending;
  }
  const auto want = topk(x.t(), 9, 0), got = topk(there.t(), 9, 0);
  EXPECT_TRUE(same_bits(got.values, want.values));
  EXPECT_TRUE(same_bits(got.indices, want.indices));
  expect_native();
}

TEST_P(HandRows, WhatLooksForValues) {
  const Tensor x = floor(rand({7, 60}) * 3.0), there = x.to(device_);
  EXPECT_TRUE(same_bits(nonzero(there, 300, -7), nonzero(x, 300, -7)));
  EXPECT_TRUE(same_bits(nonzero(there, 20, -7), nonzero(x, 20, -7)));
  const Tensor labels = x.to(int64).flatten();
  EXPECT_TRUE(same_bits(bincount(labels.to(device_), 5), bincount(labels, 5)));
  const Tensor line = sort(randn({700})).values, at = randn({3, 40});
  EXPECT_TRUE(same_bits(searchsorted(line.to(device_), at.to(device_)), searchsorted(line, at)));
  expect_native();
}

// Rows of images read and write channels-last arrays, and parts of such, as they lie.
TEST_P(HandRows, ImagesKeepTheirOrder) {
  const auto last = [](const Tensor& x) {
    return x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
  };
  const Tensor x = randn({2, 7, 9, 6});
  const auto whole = [](const Tensor& t) { return t; };
  const auto part = [](const Tensor& t) { return t.narrow(1, 1, 5); };
  const auto largest = [](const Tensor& t) { return max_pool2d(t, 3, {2}, {1}); };
  const auto mean = [](const Tensor& t) { return avg_pool2d(t, {2, 3}, {2}, {1, 0}); };
  const auto coarse = [](const Tensor& t) { return adaptive_avg_pool2d(t, {4, 3}); };
  const auto padded = [](const Tensor& t) { return pad(t, {1, 2, 0, 1}); };
  const auto twice = [](const Tensor& t) { return cat({t, t}, 1); };
  const auto dropped = [](const Tensor& t) {
    manual_seed(4);
    return dropout(t, 0.3);
  };
  using Change = std::function<Tensor(const Tensor&)>;
  const std::vector<Change> rows{largest, mean, coarse, padded, twice, dropped};
  for (const Change& take : {Change(whole), Change(part)}) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const Tensor here = x.clone().requires_grad_(),
                   there = last(x.to(device_)).detach().requires_grad_();
      const Tensor want = rows[i](take(here)), got = rows[i](take(there));
      EXPECT_TRUE(same_bits(got, want)) << i;
      EXPECT_TRUE(got.permute({0, 2, 3, 1}).is_contiguous()) << i;
      const Tensor g = randn(want.shape());
      want.backward(g);
      got.backward(last(g.to(device_)));
      EXPECT_TRUE(same_bits(there.grad(), here.grad())) << i;
    }
  }
  expect_native();
}

TEST_P(HandRows, LargeMatrices) {
  const Tensor x = randn({150, 150}), b = randn({150, 3});
  const Tensor spd = matmul(x, x.t()) / 150.0 + eye(150), there = x.to(device_);
  const auto near = [](const Tensor& got, const Tensor& want) {
    return allclose(got.cpu(), want, 1e-3, 1e-3);
  };
  EXPECT_TRUE(near(linalg::cholesky(spd.to(device_)), linalg::cholesky(spd)));
  EXPECT_TRUE(near(matmul(spd.to(device_), linalg::solve(spd.to(device_), b.to(device_))), b));
  EXPECT_TRUE(near(matmul(linalg::inv(spd.to(device_)), spd.to(device_)), eye(150)));
  EXPECT_TRUE(near(linalg::slogdet(there).logabsdet, linalg::slogdet(x).logabsdet));
  EXPECT_TRUE(same_bits(linalg::slogdet(there).sign, linalg::slogdet(x).sign));
  const auto qr = linalg::qr(there.slice(1, 0, 140, 1));
  EXPECT_TRUE(near(matmul(qr.Q, qr.R), x.slice(1, 0, 140, 1)));
  EXPECT_TRUE(near(matmul(qr.Q.t(), qr.Q), eye(140)));
  EXPECT_TRUE(same_bits(linalg::det(zeros({3, 0, 0}).to(device_)), ones({3})));
  EXPECT_EQ(linalg::inv(zeros({0, 0}).to(device_)).numel(), 0);
  expect_native();
}

// Their rules make unit matrices and zeros.
TEST_P(HandRows, DerivativesOfDecompositions) {
  const Tensor x = randn({4, 4}) + eye(4) * 4.0;
  const auto gradient = [&](const Tensor& at, const std::function<Tensor(const Tensor&)>& f) {
    Tensor leaf = at.clone().requires_grad_();
    square(f(leaf)).sum().backward();
    return leaf.grad().cpu();
  };
  const std::function<Tensor(const Tensor&)> kAll[] = {
      [](const Tensor& a) { return linalg::lu_factor(a).LU; },
      [](const Tensor& a) { return linalg::qr(a).R; },
      [](const Tensor& a) { return linalg::cholesky(matmul(a, a.t())); },
      [](const Tensor& a) { return linalg::inv(a); },
  };
  for (const auto& f : kAll) {
    EXPECT_TRUE(allclose(gradient(x.to(device_), f), gradient(x, f), 1e-3, 1e-3));
  }
}

TEST_P(HandRows, DrawsHaveTheCpusBits) {
  const Tensor w = rand({3, 200}), rate = rand({100}) * 30.0, p = rand({100});
  const auto draws = [&](const Tensor& weights, const Tensor& r, const Tensor& q) {
    manual_seed(9);
    return std::vector<Tensor>{multinomial(weights, 50), multinomial(weights, 50, true),
                               sample_gamma(r), poisson(r), binomial(floor(r * 5.0), q)};
  };
  const std::vector<Tensor> want = draws(w, rate, p);
  const std::vector<Tensor> got = draws(w.to(device_), rate.to(device_), p.to(device_));
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << i;
  expect_native();
}

TEST_P(HandRows, WhatTheyReport) {
  const auto report = [&](const char* want, const std::function<Tensor()>& call) {
    const std::string text = thrown([&] { call().to_vector<double>(); });
    EXPECT_TRUE(has(text, want)) << text << "\nwanted " << want;
  };
  report("matrix 0 of the stack is singular", [&] {
    return linalg::inv(zeros({1, 3, 3}).to(device_));
  });
  report("positive definite", [&] { return linalg::cholesky((eye(3) * -1.0).to(device_)); });
  report("rate at element 1", [&] { return poisson(tensor({1.f, -1.f}).to(device_)); });
  report("row 1", [&] { return multinomial(tensor({{1.f, 2.f}, {0.f, 0.f}}).to(device_), 1); });
  EXPECT_EQ(ones({2}).to(device_).sum().item<float>(), 2) << "the device still works";
}

}  // namespace
}  // namespace tandem::gpu
