// SPDX-License-Identifier: Apache-2.0
// Searching, order statistics, segments and constructions: what the golden cases lack - second
// derivatives, vmap, traces, empty tensors, ties, error texts.
#include <algorithm>
#include <cmath>

#include "tests/ops/values_helper.h"
#include "tests/support/bits.h"

namespace tandem::testing_ops {
namespace {

using SearchTest = OpsTest;

TEST_F(SearchTest, SetsAndEquality) {
  const Tensor x = tensor({3, 1, 3, 2, 1});
  const UniqueResult u = unique(x);
  expect_tensor(u.output, {3}, {1, 2, 3});
  expect_tensor(u.inverse_indices, {5}, {2, 0, 2, 1, 0});
  expect_tensor(u.counts, {3}, {2, 1, 2});
  EXPECT_EQ(unique(zeros({0})).output.shape(), Shape(0));
  EXPECT_EQ(unique(zeros({0, 3}), 1).output.shape(), Shape(0, 1));
  // NaNs are all distinct.
  EXPECT_EQ(unique(full({3}, std::nan(""))).output.numel(), 3);
  const Tensor y = tensor({2.f, 1.f, 2.f}).requires_grad_();
  unique(y).output.sum().backward();
  EXPECT_EQ(values(y.grad()), (Values{1, 1, 0}));
  expect_tensor(isin(x, tensor({1, 9})), {5}, {0, 1, 0, 0, 1});
  expect_tensor(isin(x, zeros({0}, int64), true), {5}, {1, 1, 1, 1, 1});
  EXPECT_TRUE(allclose(ones({3}), ones({3}) + 1e-9));
  EXPECT_FALSE(allclose(ones({3}), tensor({1.f, 1.f, 1.1f})));
  EXPECT_FALSE(allclose(full({1}, std::nan("")), full({1}, std::nan(""))));
  EXPECT_TRUE(allclose(full({1}, std::nan("")), full({1}, std::nan("")), 1e-5, 1e-8, true));
  EXPECT_TRUE(equal(x, x.clone()));
  EXPECT_FALSE(equal(x, x.unsqueeze(0)));
  auto f = [](std::span<const Tensor> in) -> Tensors { return {unique(in[0]).output}; };
  const Spec spec(float32, Shape(3));
  expect_error(ErrorKind::Unsupported, "unique: the result depends on values", [&] {
    std::vector<Spec> specs{spec};
    trace(f, specs, Captures::refuse);
  });
}

TEST_F(SearchTest, SearchInRows) {
  const Tensor rows = sort(randn({3, 6}), 1).values, v = randn({3, 4});
  expect_vmap([](const Tensor& s, const Tensor& x) { return searchsorted(s, x); }, rows, v);
  const Tensor one = select(rows, 0, 0);
  expect_vmap([&](const Tensor& x) { return bucketize(x, one); }, v);
  expect_error(ErrorKind::DType, "the sequence is float32, values are int64",
               [&] { searchsorted(one, ones({2}, int64)); });
  expect_error(ErrorKind::Shape, "must be a vector or have the leading dimensions", [&] {
    searchsorted(rows, ones({2, 4}));
  });
  expect_error(ErrorKind::Shape, "bucketize: boundaries must be a vector",
               [&] { bucketize(v, rows); });
}

// Sequences of every length with equal values and infinities; NaN among the values goes last.
TEST_F(SearchTest, PositionsAreThoseOfTheStandardLibrary) {
  manual_seed(8);
  const float nan = std::nanf(""), inf = INFINITY;
  for (int64_t n = 0; n < 70; ++n) {
    std::vector<float> s = randint(-9, 9, {n}).to(float32).to_vector<float>(),
                       v = randint(-10, 10, {37}).to(float32).to_vector<float>();
    std::sort(s.begin(), s.end());
    if (n > 3) s.back() = inf;
    if (n > 5) s[0] = -inf;
    v[3] = inf;
    v[36] = -inf;
    const Tensor left = searchsorted(tensor(s), tensor(v)),
                 right = searchsorted(tensor(s), tensor(v), true, true);
    Values want_left, want_right;
    for (const float x : v) {
      want_left.push_back(static_cast<double>(std::lower_bound(s.begin(), s.end(), x) - s.begin()));
      want_right.push_back(
          static_cast<double>(std::upper_bound(s.begin(), s.end(), x) - s.begin()));
    }
    EXPECT_EQ(values(left), want_left) << n;
    EXPECT_EQ(values(right), want_right) << n;
    EXPECT_EQ(values(searchsorted(tensor(s), full({9}, nan))), Values(9, static_cast<double>(n)));
  }
}

TEST_F(SearchTest, OrderStatistics) {
  manual_seed(3);
  const Tensor x = randn({3, 5}, float64);
  auto f = [](std::span<const Tensor> in) -> Tensors {
    return {median(in[0], 1).values, kthvalue(in[0], 2, 0).values, quantile(square(in[0]), 0.3, 1),
            mode(in[0], 1).values};
  };
  EXPECT_TRUE(gradcheck(f, {x}, {.order = 2}));
  expect_vmap([](const Tensor& t) { return median(t); }, x);
  expect_vmap([](const Tensor& t) { return quantile(t, 0.4); }, x);
  const auto [v, i] = mode(tensor({2, 7, 2, 7, 1}));
  EXPECT_EQ(v.item<int64_t>(), 2);
  EXPECT_EQ(i.item<int64_t>(), 2);
  EXPECT_EQ(mode(tensor(4.0)).values.item<float>(), 4);
  EXPECT_EQ(median(tensor(4.0), 0).indices.item<int64_t>(), 0);
  EXPECT_TRUE(std::isnan(nanmedian(full({2}, std::nan(""))).item<float>()));
  expect_tensor(histc(tensor({0.f, 1.f, 2.f, 5.f, -1.f}), 2, 0, 2), {2}, {1, 2});
  expect_tensor(histc(ones({4}), 3), {3}, {0, 4, 0});
  expect_error(ErrorKind::Value, "k must be in 1..5, got 6", [&] { kthvalue(x, 6); });
  expect_error(ErrorKind::Value, "q must be in 0..1, got 1.5", [&] { quantile(x, 1.5); });
  expect_error(ErrorKind::Value, "interpolation 'cubic'",
               [&] { quantile(x, 0.5, 0, false, "cubic"); });
  expect_error(ErrorKind::Shape, "dimension 1 of x [3, 0] is empty", [] {
    median(zeros({3, 0}), 1);
  });
  const Tensor wide = tensor({1.f, INFINITY, 2.f});
  expect_error(ErrorKind::Value, "give the range", [&] { histc(wide, 4); });
  expect_error(ErrorKind::Value, "give the range", [&] { histogram(wide, 4); });
  expect_tensor(histc(wide, 2, 0, 2), {2}, {0, 2});
  EXPECT_TRUE(std::isnan(median(zeros({0, 2})).item<float>()));
  EXPECT_TRUE(std::isnan(nanmedian(zeros({0})).item<float>()));
  expect_error(ErrorKind::Value, "has no elements", [&] { median(zeros({0}, int64)); });
  expect_error(ErrorKind::Value, "bins must be positive", [&] { histc(x, 0); });
  expect_error(ErrorKind::Shape, "fweights must be 5 integers", [&] { cov(x, 1, ones({5})); });
}

// Of equal elements the one that a stable sort puts at the rank, NaNs last.
TEST_F(SearchTest, RanksOfLongLinesAreThoseOfASort) {
  manual_seed(5);
  const auto check = [](const Tensor& x, const ValuesAndIndices& got, int64_t rank, int d) {
    const auto sorted = sort(x, d);
    EXPECT_TRUE(same_bits(got.values, narrow(sorted.values, d, rank, 1))) << rank;
    EXPECT_TRUE(same_bits(got.indices, narrow(sorted.indices, d, rank, 1))) << rank;
  };
  const Tensor x = randn({3, 5000});
  const Tensor lines[] = {x,
                          floor(x * 3.0),
                          x.to(float64),
                          x.to(bfloat16),
                          floor(x * 1e6).to(int64),
                          x.transpose(0, 1).contiguous().transpose(0, 1)};
  for (const Tensor& t : lines) {
    for (const int64_t k : {1, 2, 1777, 5000}) check(t, kthvalue(t, k, 1, true), k - 1, 1);
    check(t, median(t, 1, true), 2499, 1);
  }
  const Tensor some = where(x > 1.0, full({}, std::nan("")), x).slice(0, 0, 1, 1);
  const int64_t nans = sum(isnan(some)).item<int64_t>();
  check(some, median(some, 1, true), 5000 - nans, 1);
  check(some, nanmedian(some, 1, true), (4999 - nans) / 2, 1);
}

TEST_F(SearchTest, ScatterReduceHigherOrders) {
  manual_seed(4);
  const Tensor x = randn({2, 4}, float64), idx = tensor({{0, 2, 0, 0, 3}, {1, 1, 1, 3, 0}});
  Tensor src = randn({2, 5}, float64);
  // Zeros in one place: none, one and two of them.
  src = index_put(src, {0, 0}, 0.0);
  src = index_put(src, {1, 1}, 0.0);
  src = index_put(src, {1, 2}, 0.0);
  for (const char* reduce : {"sum", "prod", "mean"})
    for (bool self : {true, false}) {
      auto f = [&](std::span<const Tensor> in) -> Tensors {
        return {scatter_reduce(in[0], 1, idx, in[1], reduce, self)};
      };
      EXPECT_TRUE(gradcheck(f, {x, src}, {.order = 2})) << reduce;
    }
  const Tensor ids = tensor({0, 2, 2, 0, 2}), data = randn({5, 3}, float64);
  auto f = [&](std::span<const Tensor> in) -> Tensors {
    return {segment_sum(in[0], ids), segment_mean(in[0], ids, 3), segment_prod(in[0], ids, 3)};
  };
  EXPECT_TRUE(gradcheck(
      [&](std::span<const Tensor> in) -> Tensors {
        return {f(in)[0], f(in)[2]};
      },
      {data}, {.order = 2}));
  const double inf = HUGE_VAL;
  expect_tensor(segment_max(tensor({1.f, 3.f, 2.f}), tensor({0, 2, 2})), {3}, {1, -inf, 3});
  expect_tensor(segment_min(tensor({1, 3, 2}), tensor({0, 1, 1}), 2), {2}, {1, 2});
  EXPECT_EQ(segment_sum(zeros({0, 3}), zeros({0}, int64)).shape(), Shape(0, 3));
  expect_error(ErrorKind::Value, "reduce 'max' must be",
               [&] { scatter_reduce(x, 1, idx, src, "max"); });
  expect_error(ErrorKind::Index, "index 9 is out of range",
               [&] { scatter_reduce(x, 1, idx + 9, src, "amax"); });
  expect_error(ErrorKind::Value, "the segments end at 4, data has 5 rows", [&] {
    segment_reduce(data, "sum", tensor({1, 3}));
  });
  expect_error(ErrorKind::Shape, "a row for each of 2 segment ids", [&] {
    segment_sum(data, tensor({0, 1}));
  });
  expect_error(ErrorKind::Value, "either lengths or offsets",
               [&] { segment_reduce(data, "sum", {}); });
}

TEST_F(SearchTest, FlatPositionsAndMasks) {
  const Tensor x = count({2, 3});
  expect_tensor(take(x, tensor({{5, 0}, {-1, 2}})), {2, 2}, {5, 0, 5, 2});
  expect_tensor(put(x, tensor({1, -1}), tensor({9.f, 8.f})), {2, 3}, {0, 9, 2, 3, 4, 8});
  const Tensor mask = tensor({{true, false, true}, {false, false, true}});
  expect_tensor(masked_scatter(x, mask, tensor({7.f, 8.f, 9.f, 6.f})), {2, 3}, {7, 1, 8, 3, 4, 9});
  expect_error(ErrorKind::Index, "masked_scatter", [&] { masked_scatter(x, mask, ones({2})); });
  expect_error(ErrorKind::Value, "source is empty", [&] { masked_scatter(x, mask, ones({0})); });
  expect_error(ErrorKind::Shape, "as many elements", [&] { put(x, tensor({1, 2}), ones({3})); });
}

TEST_F(SearchTest, DistancesAndArrangements) {
  manual_seed(6);
  const Tensor a = randn({3, 4}, float64), b = randn({2, 4}, float64);
  for (double p : {1.0, 2.0, 3.0}) {
    auto f = [&](std::span<const Tensor> in) -> Tensors {
      return {cdist(in[0], in[1], p), pdist(in[0], p)};
    };
    EXPECT_TRUE(gradcheck(f, {a, b}, {.order = 2})) << p;
  }
  const Tensor same = ones({2, 3}).requires_grad_();
  cdist(same, same).sum().backward();
  EXPECT_EQ(values(same.grad()), Values(6, 0));
  EXPECT_EQ(pdist(ones({1, 3})).shape(), Shape(0));
  expect_tensor(block_diag({ones({1, 2}), tensor(5.f)}), {2, 3}, {1, 1, 0, 0, 0, 5});
  expect_tensor(combinations(tensor({1, 2, 3})), {3, 2}, {1, 2, 1, 3, 2, 3});
  EXPECT_EQ(combinations(tensor({1, 2}), 3).shape(), Shape(0, 3));
  expect_tensor(kron(tensor({1, 2}), tensor({{1, 3}})), {1, 4}, {1, 3, 2, 6});
  expect_tensor(diag_embed(tensor({1, 2}), -1), {3, 3}, {0, 0, 0, 1, 0, 0, 0, 2, 0});
  EXPECT_EQ(trace(count({2, 3})).item<float>(), 4);
  expect_error(ErrorKind::Shape, "no dimension of size 3", [&] { cross(a, a, 1); });
  expect_error(ErrorKind::Memory, "too many", [] { combinations(arange(100), 50); });
  expect_error(ErrorKind::Shape, "cdist: x1 is [3, 4]", [&] { cdist(a, ones({2, 3}, float64)); });
  expect_error(ErrorKind::Value, "p must not be negative", [&] { cdist(a, b, -1); });
}

// A function composed of others names itself and the caller's line.
TEST_F(SearchTest, ErrorsNameTheCall) {
  const int line = __LINE__ + 2;
  try {
    segment_sum(ones({2}), tensor({5, 0}), 2);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.op(), "segment_sum");
    EXPECT_NE(std::string(e.loc().file).find("search_test.cpp"), std::string::npos);
    EXPECT_EQ(e.loc().line, line);
  }
}

}  // namespace
}  // namespace tandem::testing_ops
