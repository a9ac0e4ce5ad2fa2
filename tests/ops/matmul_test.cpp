// SPDX-License-Identifier: Apache-2.0
// Matmuls: hand values, PyTorch's cases, derivatives to order two, vmap, error texts.
#include "contraction_helper.h"

namespace tandem {
namespace {

using namespace testing;

class MatmulTest : public ::testing::Test {
 protected:
  void SetUp() override { init_once(); }
};

TEST_F(MatmulTest, HandValues) {
  Tensor a = tensor({{1., 2.}, {3., 4.}}), b = tensor({{5., 6.}, {7., 8.}});
  expect_close(matmul(a, b), tensor({{19., 22.}, {43., 50.}}));
  expect_close(matmul(a, b, {true, false}), tensor({{26., 30.}, {38., 44.}}));
  expect_close(matmul(a, b, {false, true}), tensor({{17., 23.}, {39., 53.}}));
  expect_close(matmul(a, b, {true, true}), tensor({{23., 31.}, {34., 46.}}));
  expect_close(linear(tensor({1., 2.}), b, tensor({10., 20.})), tensor({27., 43.}));
}

TEST_F(MatmulTest, IntegersWrap) {
  Tensor a = tensor({{int64_t{1} << 62, int64_t{1} << 62}});
  expect_close(matmul(a, tensor({{int64_t{2}}, {int64_t{2}}})), tensor({{int64_t{0}}}));
}

TEST_F(MatmulTest, StridedOperands) {
  Tensor a = ramp({4, 3}), b = ramp({3, 5}, 0.7);
  Tensor want = matmul(a, b);
  Tensor at = a.t().contiguous().t(), bt = b.t().contiguous().t();
  expect_close(matmul(at, bt), want);
  Tensor wide = ramp({4, 6}).slice(1, 0, 6, 2);
  expect_close(matmul(wide, b), matmul(wide.contiguous(), b));
  expect_close(matmul(a.unsqueeze(0).expand({2, 4, 3}), b).select(0, 1), want);
}

TEST_F(MatmulTest, EmptySizes) {
  EXPECT_EQ(matmul(ramp({0, 3}), ramp({3, 2})).shape(), Shape(0, 2));
  expect_close(matmul(zeros({2, 0}, float64), zeros({0, 3}, float64)), zeros({2, 3}, float64));
  EXPECT_EQ(linear(ramp({0, 3}), ramp({2, 3})).shape(), Shape(0, 2));
}

TEST_F(MatmulTest, Gradients) {
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      auto f = [=](std::span<const Tensor> x) {
        return Tensors{matmul(x[0], x[1], MatmulAttrs{ta, tb})};
      };
      Tensor a = ramp(ta ? Shape(3, 2) : Shape(2, 3)), b = ramp(tb ? Shape(2, 3) : Shape(3, 2), .8);
      expect_gradients(f, {a, b});
      expect_gradients(f, {a.unsqueeze(0).expand({2, a.size(0), a.size(1)}).contiguous(), b});
    }
  auto lin = [](std::span<const Tensor> x) { return Tensors{linear(x[0], x[1], x[2])}; };
  expect_gradients(lin, {ramp({2, 2, 3}), ramp({2, 3}, .6), ramp({2}, .3)});
  expect_gradients(lin, {ramp({3}), ramp({2, 3}, .6), ramp({2}, .3)});
}

TEST_F(MatmulTest, Vmap) {
  auto mm = [](std::span<const Tensor> x) { return matmul(x[0], x[1]); };
  Tensor a = ramp({3, 2, 4}), b = ramp({3, 4, 2}, .5);
  expect_vmap(mm, {a, b}, {true, true});
  expect_vmap(mm, {a, b.select(0, 0)}, {true, false});
  expect_vmap(mm, {a.select(0, 0), b}, {false, true});
  expect_vmap(mm, {ramp({3, 2, 2, 4}), b}, {true, true});
  auto lin = [](std::span<const Tensor> x) { return linear(x[0], x[1], x[2]); };
  Tensor x = ramp({3, 2, 4}), w = ramp({3, 5, 4}, .5), bias = ramp({3, 5});
  expect_vmap(lin, {x, w, bias}, {true, true, true});
  expect_vmap(lin, {x, w.select(0, 0), bias}, {true, false, true});
  expect_vmap(lin, {x.select(0, 0), w, bias.select(0, 0)}, {false, true, false});
  auto dw = [](std::span<const Tensor> v) {
    auto f = [&](const Tensor& weight) { return linear(v[0], weight, v[2]).square().sum(); };
    return grad(f)(v[1]);
  };
  expect_vmap(dw, {x, w.select(0, 0), bias.select(0, 0)}, {true, false, false});
}

TEST_F(MatmulTest, Errors) {
  expect_error(ErrorKind::Shape, "a [2, 3] has inner size 3, b [2, 3] has 2", [] {
    matmul(ramp({2, 3}), ramp({2, 3}));
  });
  expect_error(ErrorKind::DType, "a is float64, b is float32", [] {
    matmul(ramp({2, 3}), ramp({3, 2}).to(float32));
  });
  expect_error(ErrorKind::Shape, "both expect at least one dimension",
               [] { matmul(tensor(1.0), ramp({3})); });
  expect_error(ErrorKind::Shape, "linear: weight expects 4 input features, x is [2, 3] (3)", [] {
    linear(ramp({2, 3}), ramp({5, 4}));
  });
  expect_error(ErrorKind::Shape, "bias is [4], expected [5]", [] {
    linear(ramp({2, 4}), ramp({5, 4}), ramp({4}));
  });
  expect_error(ErrorKind::Shape, "mm: a is [3], expected 2 dimensions", [] {
    mm(ramp({3}), ramp({3, 2}));
  });
  expect_error(ErrorKind::Shape, "bmm: a [2, 3, 4] has 2 matrices, b [3, 4, 5] has 3", [] {
    bmm(ramp({2, 3, 4}), ramp({3, 4, 5}));
  });
  expect_error(ErrorKind::Shape, "dot: a is [2, 3], expected 1 dimension", [] {
    dot(ramp({2, 3}), ramp({3}));
  });
  expect_error(ErrorKind::DType, "bool", [] { matmul(ramp({2, 2}) > 0, ramp({2, 2}) > 0); });
  expect_error(ErrorKind::Value, "names 2 operands, 1 are given", [] {
    einsum("ij,jk->ik", {ramp({2, 3})});
  });
  expect_error(ErrorKind::Shape, "for one letter", [] {
    einsum("ij,jk->ik", {ramp({2, 3}), ramp({4, 2})});
  });
}

TEST_F(MatmulTest, Golden) {
  auto scalar = [](const Golden& g, const char* k) { return Scalar(g.number(k, 1)); };
  std::map<std::string, GoldenFn> t;
  t["matmul"] = [](const Golden& g) { return Tensors{matmul(g.at(0), g.at(1))}; };
  t["mm"] = [](const Golden& g) { return Tensors{mm(g.at(0), g.at(1))}; };
  t["bmm"] = [](const Golden& g) { return Tensors{bmm(g.at(0), g.at(1))}; };
  t["mv"] = [](const Golden& g) { return Tensors{mv(g.at(0), g.at(1))}; };
  t["dot"] = [](const Golden& g) { return Tensors{dot(g.at(0), g.at(1))}; };
  t["outer"] = [](const Golden& g) { return Tensors{outer(g.at(0), g.at(1))}; };
  t["addmm"] = [=](const Golden& g) {
    return Tensors{addmm(g.at(0), g.at(1), g.at(2), scalar(g, "beta"), scalar(g, "alpha"))};
  };
  t["baddbmm"] = [=](const Golden& g) {
    return Tensors{baddbmm(g.at(0), g.at(1), g.at(2), scalar(g, "beta"), scalar(g, "alpha"))};
  };
  t["linear"] = [](const Golden& g) { return Tensors{linear(g.at(0), g.at(1), g.at(2))}; };
  t["bilinear"] = [](const Golden& g) {
    return Tensors{bilinear(g.at(0), g.at(1), g.at(2), g.at(3))};
  };
  t["tensordot"] = [](const Golden& g) {
    IntList a, b;
    for (int64_t v : g.attrs["dims"][0]) a.push_back(v);
    for (int64_t v : g.attrs["dims"][1]) b.push_back(v);
    return Tensors{tensordot(g.at(0), g.at(1), a, b)};
  };
  t["einsum"] = [](const Golden& g) { return Tensors{einsum(g.text("equation", ""), g.in)}; };
  EXPECT_GE(run_golden("contraction", t), 40);
}

}  // namespace
}  // namespace tandem
