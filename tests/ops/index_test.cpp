// SPDX-License-Identifier: Apache-2.0
// Indexing, scatter, sorting: values worked out by hand, error texts, derivatives, vmap.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/ops/values_helper.h"

namespace tandem::testing_ops {
namespace {

class IndexTest : public OpsTest {};

// Few of many are selected, many are sorted: the same order, ties by place, NaN largest.
TEST_F(IndexTest, TopkIsTheBeginningOfSort) {
  manual_seed(3);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i32, DType::u8})
    for (const int64_t n : {49, 64, 200, 1000, 5000}) {
      Tensor x = (randn({3, n}) * 20).clamp(0, 100);  // many equal numbers
      if (dtype == DType::f32) x = where(x > 38, full(Shape(), std::nan("")), x);
      x = x.to(dtype);
      for (const bool largest : {true, false}) {
        const ValuesAndIndices sorted = sort(x, 1, largest);
        for (const int64_t k : {int64_t{1}, int64_t{5}, n / 9, n / 2}) {
          const ValuesAndIndices top = topk(x, k, 1, largest);
          EXPECT_EQ(values(top.indices), values(narrow(sorted.indices, 1, 0, k))) << n << " " << k;
          const Tensor turned = x.transpose(0, 1);
          EXPECT_EQ(values(topk(turned, k, 0, largest).indices.transpose(0, 1)),
                    values(top.indices));
        }
      }
    }
}

// Bounds that are found first let through what ties with them, infinities and NaNs.
TEST_F(IndexTest, TopkOfLinesThatAreAlike) {
  const float inf = INFINITY;
  for (const float fill : {0.0f, inf, -inf, NAN})
    for (const float other : {1.0f, -1.0f, inf, -inf, NAN}) {
      Tensor x = full({300}, fill);
      x = where(arange(300) % 97 == 5, full(Shape(), other), x);
      for (const bool largest : {true, false})
        EXPECT_EQ(values(topk(x, 7, 0, largest).indices),
                  values(narrow(sort(x, 0, largest).indices, 0, 0, 7)))
            << fill << " " << other;
    }
}

// Threads share columns or rows, and bins are counted in parts.
TEST_F(IndexTest, LargeScattersAndCountsAreThoseOfALoop) {
  manual_seed(4);
  const int64_t rows = 300, sources = 900, columns = 120;
  const Tensor x = randn({rows, columns}), src = randn({sources, columns});
  const Tensor at = randint(0, rows, {sources, columns});
  const Values xv = values(x), sv = values(src), iv = values(at);
  for (const bool include_self : {true, false}) {
    Values want = xv;
    std::vector<bool> written(want.size());
    for (size_t e = 0; e < sv.size(); ++e) {
      const size_t to = static_cast<size_t>(iv[e]) * columns + e % columns;
      want[to] = !include_self && !written[to] ? sv[e] : std::max(want[to], sv[e]);
      written[to] = true;
    }
    EXPECT_EQ(values(scatter_reduce(x, 0, at, src, "amax", include_self)), want);
    const Tensor turned = scatter_reduce(x.transpose(0, 1), 1, at.transpose(0, 1),
                                         src.transpose(0, 1), "amax", include_self);
    EXPECT_EQ(values(turned.transpose(0, 1)), want);
  }
  const Tensor classes = randint(0, 700, {300000});
  Values counts(700);
  for (double c : values(classes)) ++counts[static_cast<size_t>(c)];
  EXPECT_EQ(values(bincount(classes)), counts);
}

TEST_F(IndexTest, RepeatsOfElements) {
  for (const int64_t n : {1, 2, 3, 4, 5, 17}) {
    const Tensor x = count({3, 70}), at = floor_divide(arange(70 * n), n);
    EXPECT_EQ(values(repeat_interleave(x, n, 1)), values(index_select(x, 1, at))) << n;
    const Tensor odd = x.transpose(0, 1).to(int8);
    EXPECT_EQ(values(repeat_interleave(odd, n, 0)), values(index_select(odd, 0, at))) << n;
  }
}

TEST_F(IndexTest, NumbersSlicesNoneEllipsis) {
  const Tensor x = count({2, 3, 4});
  expect_tensor(index(x, {1, -1, 0}), {}, {20});
  expect_tensor(index(x, {Slice(), 1, Slice(1, 4, 2)}), {2, 2}, {5, 7, 17, 19});
  expect_tensor(index(x, {Ellipsis, 0}), {2, 3}, {0, 4, 8, 12, 16, 20});
  EXPECT_EQ(index(x, {None, Slice(1), Ellipsis, None}).shape(), Shape(1, 1, 3, 4, 1));
  EXPECT_EQ(index(x, {Slice(0, 2), Slice(2, 1)}).shape(), Shape(2, 0, 4));
  expect_error(ErrorKind::Index, "4 indices are too many for x [2, 3, 4]", [&] {
    index(x, {0, 0, 0, 0});
  });
  expect_error(ErrorKind::Index, "index 3 is out of range for dimension 1", [&] {
    index(x, {0, 3});
  });
  expect_error(ErrorKind::Value, "one Ellipsis", [&] { index(x, {Ellipsis, Ellipsis}); });
}

TEST_F(IndexTest, IndexTensors) {
  const Tensor x = count({3, 4});
  expect_tensor(x[tensor({2, 0, -1})], {3, 4}, {8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11});
  expect_tensor(index(x, {tensor({0, 2}), tensor({3, -4})}), {2}, {3, 8});
  expect_tensor(index(x, {tensor({{0}, {2}}), tensor({1, 0})}), {2, 2}, {1, 0, 9, 8});
  expect_tensor(index(x, {Slice(1), tensor({0, 0, 3})}), {2, 3}, {4, 4, 7, 8, 8, 11});
  const Tensor z = count({2, 3, 4});
  // Not adjacent: their dimensions come first.
  expect_tensor(index(z, {tensor({0, 1}), Slice(), tensor({3, 0})}), {2, 3},
                {3, 7, 11, 12, 16, 20});
  // A number is removed before the tensors are considered.
  expect_tensor(index(z, {1, Slice(), tensor({3, 0})}), {3, 2}, {15, 12, 19, 16, 23, 20});
  expect_tensor(index(x, tensor(int64_t{1})), {4}, {4, 5, 6, 7});
  EXPECT_EQ(index(x, zeros({0}, DType::i64)).shape(), Shape(0, 4));
  expect_error(ErrorKind::Index, "index 3 is out of range", [&] { x[tensor({0, 3})]; });
  expect_error(ErrorKind::Index, "index -4 is out of range", [&] { x[tensor({-4})]; });
  expect_error(ErrorKind::DType, "an index must be an integer tensor, got float32",
               [&] { x[tensor({1.0f})]; });
  expect_error(ErrorKind::Index, "out of range", [] { zeros({0, 2})[tensor({0})]; });
}

TEST_F(IndexTest, Masks) {
  const Tensor x = count({2, 3});
  const Tensor m = tensor({{true, false, true}, {false, true, false}});
  expect_tensor(x[m], {3}, {0, 2, 4});
  expect_tensor(index(x, {Slice(), tensor({true, false, true})}), {2, 2}, {0, 2, 3, 5});
  expect_tensor(masked_select(x, m), {3}, {0, 2, 4});
  expect_tensor(masked_select(x, tensor({true, false, false})), {2}, {0, 3});
  expect_tensor(nonzero(m), {3, 2}, {0, 0, 0, 2, 1, 1});
  expect_tensor(nonzero(tensor({0.0f, 0.5f, NAN}), 4, -1), {4, 1}, {1, 2, -1, -1});
  expect_tensor(masked_fill(x, m, -1), {2, 3}, {-1, 1, -1, 3, -1, 5});
  expect_error(ErrorKind::Index, "a mask of shape [2] does not fit x [3, 2]", [&] {
    index(x.t(), tensor({true, false}));
  });
  expect_error(ErrorKind::DType, "mask must be bool, got float32", [&] { masked_fill(x, x, 0); });
}

// More positions than the loops take at a time, in every layout: as the elements one by one.
TEST_F(IndexTest, ManyPositions) {
  const int64_t n = 1500;
  const Tensor at = randint(-7, 7, {n}), rows = randint(0, 5, {n});
  const auto i = at.to_vector<int64_t>(), r = rows.to_vector<int64_t>();
  const Tensor dense = randn({5, 7, 3}), turned = randn({3, 7, 5}).permute({2, 1, 0});
  for (const Tensor& x : {dense, turned}) {
    const auto v = x.to_vector<float>();
    std::vector<float> middle, first, both;
    for (size_t e = 0; e < i.size(); ++e)
      for (int64_t c = 0; c < 3; ++c) both.push_back(v[(r[e] * 7 + (i[e] + 7) % 7) * 3 + c]);
    for (int64_t o = 0; o < 5; ++o)
      for (const int64_t k : i)
        for (int64_t c = 0; c < 3; ++c) middle.push_back(v[(o * 7 + (k + 7) % 7) * 3 + c]);
    for (const int64_t k : r)
      for (int64_t c = 0; c < 21; ++c) first.push_back(v[k * 21 + c]);
    EXPECT_EQ(index(x, {Slice(), at}).to_vector<float>(), middle);
    EXPECT_EQ(index_select(x, 0, rows).to_vector<float>(), first);
    EXPECT_EQ(index(x, {rows, at}).to_vector<float>(), both);
    std::vector<float> sums(v);
    const Tensor add = randn({n, 7, 3});
    const auto a = add.to_vector<float>();
    for (size_t e = 0; e < r.size(); ++e)
      for (size_t c = 0; c < 21; ++c) sums[static_cast<size_t>(r[e]) * 21 + c] += a[e * 21 + c];
    EXPECT_EQ(index_add(x, 0, rows, add).to_vector<float>(), sums);
    EXPECT_EQ(index_add(x, 0, rows, add.permute({2, 1, 0}).contiguous().permute({2, 1, 0}))
                  .to_vector<float>(),
              sums);
  }
}

TEST_F(IndexTest, NonzeroOfManyElements) {
  const Tensor wide = randint(0, 3, {200, 300}).to(DType::b8);
  for (const Tensor& m : {wide, wide.t(), wide.reshape({60000})}) {
    const auto v = m.to(DType::i64).to_vector<int64_t>();
    std::vector<int64_t> want;
    for (int64_t e = 0; e < m.numel(); ++e)
      if (v[static_cast<size_t>(e)]) {
        if (m.dim() == 2) want.push_back(e / m.size(1));
        want.push_back(m.dim() == 2 ? e % m.size(1) : e);
      }
    EXPECT_EQ(nonzero(m).to_vector<int64_t>(), want);
    want.resize(static_cast<size_t>(30000 * m.dim()));
    EXPECT_EQ(nonzero(m, 30000, -1).to_vector<int64_t>(), want);
  }
}

TEST_F(IndexTest, IndexPut) {
  const Tensor x = zeros({2, 3});
  expect_tensor(index_put(x, {1, 2}, 5), {2, 3}, {0, 0, 0, 0, 0, 5});
  expect_tensor(index_put(x, {Slice(), Slice(0, 3, 2)}, tensor({1.f, 2.f})), {2, 3},
                {1, 0, 2, 1, 0, 2});
  expect_tensor(index_put(x, tensor({1, 1}), tensor({{1.f}, {2.f}}), true), {2, 3},
                {0, 0, 0, 3, 3, 3});
  expect_tensor(index_put(x, {Slice(1), tensor({0, 2})}, tensor({7.f, 8.f})), {2, 3},
                {0, 0, 0, 7, 0, 8});
  expect_tensor(index_put(x, {Ellipsis, tensor({-1})}, 4), {2, 3}, {0, 0, 4, 0, 0, 4});
  expect_tensor(index_put(x, tensor({true, false}), 9), {2, 3}, {9, 9, 9, 0, 0, 0});
  expect_tensor(index_put(x, tensor({true, false}), tensor({1.f, 2.f, 3.f})), {2, 3},
                {1, 2, 3, 0, 0, 0});
  expect_tensor(index_put(count({2}), 0, 3, true), {2}, {3, 1});
  // Nonadjacent tensors in a transposed x.
  expect_tensor(
      index_put(zeros({2, 2, 2}).transpose(0, 2), {tensor({0, 1}), Slice(), tensor({1, 0})},
                tensor({{1.f, 2.f}, {3.f, 4.f}})),
      {2, 2, 2}, {0, 1, 0, 2, 3, 0, 4, 0});
  EXPECT_EQ(values(x), Values(6, 0));
  expect_error(ErrorKind::Shape, "expects 3 in dimension 0", [&] {
    index_put(x, 0, tensor({1.f, 2.f}));
  });
}

TEST_F(IndexTest, IndexPutReusesATemporary) {
  Tensor x = zeros({4, 1000});
  const void* data = x.impl()->data;
  x = index_put(std::move(x), 2, 1.0f);
  EXPECT_EQ(x.impl()->data, data);
  x = index_put(std::move(x), tensor({0, 3}), 1.0f);
  EXPECT_EQ(x.impl()->data, data);
  const Tensor held = x;
  x = index_put(std::move(x), 1, 1.0f);
  EXPECT_NE(x.impl()->data, data);
  EXPECT_EQ(held[1][0].item<float>(), 0);
}

TEST_F(IndexTest, SelectAddFillCopy) {
  const Tensor x = count({2, 3});
  expect_tensor(x.index_select(1, tensor({2, 0})), {2, 2}, {2, 0, 5, 3});
  expect_tensor(index_select(x, -1, tensor({1}).to(DType::i32)), {2, 1}, {1, 4});
  expect_tensor(index_add(x, 0, tensor({0, 0}), ones({2, 3}), 2), {2, 3}, {4, 5, 6, 3, 4, 5});
  expect_tensor(index_copy(x, 1, tensor({0}), zeros({2, 1})), {2, 3}, {0, 1, 2, 0, 4, 5});
  expect_tensor(index_fill(x, 1, tensor({0, 2}), -1), {2, 3}, {-1, 1, -1, -1, 4, -1});
  expect_error(ErrorKind::Index, "index -1 is out of range",
               [&] { x.index_select(0, tensor({-1})); });
  expect_error(ErrorKind::Shape, "index must be a vector",
               [&] { x.index_select(0, tensor({{0}})); });
}

TEST_F(IndexTest, Embedding) {
  Tensor w = count({4, 2}).requires_grad_();
  const Tensor ids = tensor({{1, 3}, {1, 0}});
  const Tensor y = embedding(ids, w, 0);
  expect_tensor(y, {2, 2, 2}, {2, 3, 6, 7, 2, 3, 0, 1});
  y.backward(ones({2, 2, 2}));
  expect_tensor(w.grad(), {4, 2}, {0, 0, 2, 2, 0, 0, 1, 1});
  expect_error(ErrorKind::DType, "The order is (input, weight)", [&] { embedding(w, ids); });
  expect_error(ErrorKind::Index, "index 4 is out of range", [&] { embedding(tensor({4}), w); });
  expect_error(ErrorKind::Value, "padding_idx 4 is out of range", [&] { embedding(ids, w, 4); });
}

TEST_F(IndexTest, EmbeddingGradientsAddUpInOrderOnAnyNumberOfThreads) {
  const Tensor g = ((count({4000, 16}, DType::i64) * 7919) % 1000).to(DType::f32) / 1000;
  const Tensor ids = (count({4000}, DType::i64) * 31) % 97;
  std::vector<float> first;
  for (int threads : {1, 2, 8}) {
    ThreadLimitGuard limit(threads);
    Tensor w = zeros({97, 16}).requires_grad_();
    embedding(ids, w).backward(g);
    const std::vector<float> got = w.grad().to_vector<float>();
    if (first.empty()) first = got;
    EXPECT_EQ(got, first) << threads;
  }
}

TEST_F(IndexTest, GatherScatter) {
  const Tensor x = count({2, 3});
  expect_tensor(x.gather(1, tensor({{2, 0}, {1, 1}})), {2, 2}, {2, 0, 4, 4});
  expect_tensor(x.gather(0, tensor({{1, 0, 1}})), {1, 3}, {3, 1, 5});
  expect_tensor(take_along_dim(x, tensor({{0}, {2}}), 1), {2, 1}, {0, 5});
  expect_tensor(scatter(x, 1, tensor({{2, 2}, {0, 1}}), tensor({{7.f, 8.f}, {9.f, 6.f}})), {2, 3},
                {0, 1, 8, 9, 6, 5});
  expect_tensor(scatter(x, 0, tensor({{1, 0}}), -1), {2, 3}, {0, -1, 2, -1, 4, 5});
  expect_tensor(scatter_add(x, 0, tensor({{1, 1, 1}, {1, 0, 1}}), ones({2, 3})), {2, 3},
                {0, 2, 2, 5, 5, 7});
  EXPECT_EQ(values(x), values(count({2, 3})));
  expect_error(ErrorKind::Index, "index 3 is out of range", [&] { x.gather(1, tensor({{3}})); });
  expect_error(ErrorKind::Shape, "index [3, 1] is larger than x [2, 3] in dimension 0", [&] {
    x.gather(1, zeros({3, 1}, DType::i64));
  });
  expect_error(ErrorKind::Shape, "must have as many dimensions", [&] { x.gather(1, tensor({0})); });
  expect_error(ErrorKind::DType, "x is float32, src is int64",
               [&] { scatter(x, 1, tensor({{0}}), tensor({{1}})); });
}

TEST_F(IndexTest, DynamicUpdateAndSlice) {
  const Tensor x = zeros({4, 2}), v = ones({2, 2});
  expect_tensor(dynamic_update(x, 0, 1, v), {4, 2}, {0, 0, 1, 1, 1, 1, 0, 0});
  expect_tensor(dynamic_update(x, 0, tensor(int64_t{2}), v), {4, 2}, {0, 0, 0, 0, 1, 1, 1, 1});
  expect_tensor(dynamic_slice(count({5}), 0, tensor(int64_t{3}), 2), {2}, {3, 4});
  Buffer cache(zeros({3, 1}));
  cache.write_(0, 1, ones({1, 1}));
  expect_tensor(cache.value(), {3, 1}, {0, 1, 0});
  expect_error(ErrorKind::Index, "index 3 is out of range", [&] { dynamic_update(x, 0, 3, v); });
  expect_error(ErrorKind::Shape, "does not fit into dimension 0", [&] {
    dynamic_update(x, 0, 0, ones({5, 2}));
  });
  expect_error(ErrorKind::DType, "start must be an integer", [&] { dynamic_update(x, 0, 1.5, v); });
}

// Lines that are sorted by digits, against a stable sort by comparison: ties, NaN, both zeros.
TEST_F(IndexTest, SortsLongLines) {
  for (const bool descending : {false, true})
    for (const int64_t n : {40, 300, 5000}) {
      std::vector<float> v;
      for (int64_t i = 0; i < n; ++i) {
        const float zero = i % 2 == 0 ? -0.0f : 0.0f;
        const auto number = static_cast<float>((i * 7919) % 101 - 50) * 1e3f;
        v.push_back(i % 11 == 3 ? NAN : i % 5 == 0 ? zero : number);
      }
      const Tensor x = tensor(v).to(DType::bf16);
      v = x.to(DType::f32).to_vector<float>();
      std::vector<int64_t> want(v.size());
      std::iota(want.begin(), want.end(), int64_t{0});
      std::stable_sort(want.begin(), want.end(), [&](int64_t i, int64_t j) {
        const float a = v[static_cast<size_t>(i)], b = v[static_cast<size_t>(j)];
        return descending ? b < a || (a != a && b == b) : a < b || (b != b && a == a);
      });
      for (const DType t : {DType::f32, DType::f64, DType::bf16})
        EXPECT_EQ(argsort(x.to(t), -1, descending).to_vector<int64_t>(), want) << n;
      for (const int64_t k : {n / 20, n / 2})
        EXPECT_EQ(topk(x, k, -1, descending).indices.to_vector<int64_t>(),
                  std::vector<int64_t>(want.begin(), want.begin() + k));
    }
}

TEST_F(IndexTest, SortTopk) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = tensor({3.f, nan, 1.f, 3.f, -INFINITY});
  auto [v, i] = sort(x);
  EXPECT_EQ(i.to_vector<int64_t>(), (std::vector<int64_t>{4, 2, 0, 3, 1}));
  EXPECT_TRUE(std::isnan(v.to_vector<float>().back()));
  EXPECT_EQ(argsort(x, -1, true).to_vector<int64_t>(), (std::vector<int64_t>{1, 0, 3, 2, 4}));
  auto [tv, ti] = topk(tensor({{1, 5, 5}, {2, 0, 9}}), 2);
  expect_tensor(tv, {2, 2}, {5, 5, 9, 2});
  expect_tensor(ti, {2, 2}, {1, 2, 2, 0});
  expect_tensor(topk(tensor({4, 1, 3}), 1, 0, false).values, {1}, {1});
  expect_tensor(sort(count({2, 2}), 0, true).values, {2, 2}, {2, 3, 0, 1});
  EXPECT_EQ(sort(zeros({0, 3})).values.shape(), Shape(0, 3));
  expect_tensor(sort(tensor(2.0f)).values, {}, {2});
  expect_error(ErrorKind::Index, "k is 4, dimension 0 of x [3] has 3 elements", [] {
    topk(tensor({1, 2, 3}), 4);
  });
}

TEST_F(IndexTest, OneHotBincount) {
  expect_tensor(one_hot(tensor({2, 0})), {2, 3}, {0, 0, 1, 1, 0, 0});
  expect_tensor(one_hot(tensor({1}), 4), {1, 4}, {0, 1, 0, 0});
  expect_tensor(bincount(tensor({0, 3, 3}), 5), {5}, {1, 0, 0, 2, 0});
  expect_error(ErrorKind::Index, "index 2 is out of range", [] { one_hot(tensor({2}), 2); });
  // Values of tensors that a trace has not made can be read within it.
  const Tensor labels = tensor({0, 2, 2});
  expect_vmap([&](const Tensor& x) { return x + bincount(labels) + one_hot(labels).sum({0}); },
              count({2, 3}, int64));
  expect_error(ErrorKind::Index, "index -1 is out of range", [] { bincount(tensor({-1})); });
}

Tensor index_input(const Shape& s) { return count(s, DType::f64) * 0.31 - 1.0; }

TEST_F(IndexTest, Gradients) {
  const Tensor x = index_input({3, 4}), v = index_input({2, 4}) + 0.5;
  const Tensor at = tensor({2, 2}), where2 = tensor({{0, 2, 1, 1}, {2, 2, 0, 1}});
  const auto check = [](auto f, const Tensors& in) {
    const auto g = [&](std::span<const Tensor> t) -> Tensors { return {square(f(t))}; };
    EXPECT_TRUE(gradcheck(g, in, {.order = 2}));
  };
  using In = std::span<const Tensor>;
  check([&](In t) { return index(t[0], {at, Slice(1)}); }, {x});
  check([&](In t) { return index(t[0], {at, tensor({1, 3})}); }, {x});
  check([&](In t) { return index_put(t[0], at, t[1], true); }, {x, v});
  check([&](In t) { return index_put(t[0], tensor({2, 0}), t[1]); }, {x, v});
  check([&](In t) { return index_put(t[0], Slice(0, 3, 2), t[1]); }, {x, v});
  check([&](In t) { return t[0].gather(0, where2); }, {x});
  check([&](In t) { return scatter_add(t[0], 0, where2, t[1]); }, {x, v});
  check([&](In t) { return scatter(t[0], 1, tensor({{3, 0}}), t[1]); }, {x, v});
  check([&](In t) { return dynamic_update(t[0], 0, 1, t[1]); }, {x, v});
  check([&](In t) { return dynamic_slice(t[0], 1, tensor(int64_t{2}), 2); }, {x});
  check([&](In t) { return sort(t[0], 0, true).values; }, {x});
  check([&](In t) { return topk(t[0], 2).values; }, {x});
  check([&](In t) { return embedding(tensor({1, 0, 1}), t[0], 2); }, {x});
  check([&](In t) { return masked_fill(t[0], tensor({true, false, true, false}), 0.5); }, {x});
}

TEST_F(IndexTest, Vmap) {
  const Tensor x = count({2, 3, 4}), ids = tensor({{2, 0}, {1, 1}}), v = count({2, 2, 4}) + 100;
  expect_vmap([](const Tensor& x) { return x[tensor({2, 0})]; }, x);
  expect_vmap([](const Tensor& x, const Tensor& i) { return x.index_select(0, i); }, x, ids);
  expect_vmap([](const Tensor& x, const Tensor& i) { return x.index_select(1, i); }, x, ids);
  expect_vmap([&](const Tensor& i) { return embedding(i, count({3, 2})); }, ids);
  expect_vmap([](const Tensor& x, const Tensor& i, const Tensor& v) { return index_put(x, i, v); },
              x, ids, v);
  expect_vmap(
      [](const Tensor& x, const Tensor& i, const Tensor& v) {
        return index_put(x, tensor({0, 0}), v + i.unsqueeze(1), true);
      },
      x, ids, v);
  expect_vmap(
      [](const Tensor& x, const Tensor& i) {
        return x.gather(0, i.unsqueeze(1).expand({2, 4}));
      },
      x, ids);
  expect_vmap(
      [](const Tensor& x, const Tensor& i, const Tensor& v) {
        return scatter_add(x, 0, i.unsqueeze(1).expand({2, 4}), v);
      },
      x, ids, v);
  const Tensor start = tensor({1, 0});
  expect_vmap(
      [](const Tensor& x, const Tensor& s, const Tensor& v) { return dynamic_update(x, 0, s, v); },
      x, start, v);
  expect_vmap([](const Tensor& x, const Tensor& s) { return dynamic_slice(x, 1, s, 3); }, x, start);
  expect_vmap([](const Tensor& x) { return sort(x, -1, true).values; }, x);
  expect_vmap([](const Tensor& i) { return one_hot(i, 3); }, ids);
}

TEST_F(IndexTest, NoSizeFromValuesInATrace) {
  const Spec spec(DType::f32, Shape(3));
  const auto f = [](std::span<const Tensor> in) -> std::vector<Tensor> { return {nonzero(in[0])}; };
  expect_error(ErrorKind::Unsupported, "the size of the result depends on values", [&] {
    trace(f, {&spec, 1}, Captures::as_inputs);
  });
  const auto g = [](std::span<const Tensor> in) -> std::vector<Tensor> {
    return {nonzero(in[0], 2, -1)};
  };
  EXPECT_EQ(trace(g, {&spec, 1}, Captures::as_inputs)->outputs[0].shape(), Shape(2, 1));
}

}  // namespace
}  // namespace tandem::testing_ops
