// SPDX-License-Identifier: Apache-2.0
// Views, concatenation and rearrangement: values worked out by hand, error texts, derivatives.
#include "tests/ops/values_helper.h"

namespace tandem::testing_ops {
namespace {

class ViewTest : public OpsTest {};

TEST_F(ViewTest, ReshapeSharesBytesWhereStridesAllow) {
  const Tensor x = count({2, 3, 4});
  expect_tensor(x.reshape({6, 4}), {6, 4}, values(x));
  EXPECT_EQ(x.reshape({4, -1}).shape(), Shape(4, 6));
  EXPECT_EQ(x.view({24}).impl()->data, x.impl()->data);
  const Tensor t = x.transpose(0, 1);
  EXPECT_EQ(t.reshape({3, 2, 2, 2}).impl()->data, x.impl()->data);
  expect_tensor(t.reshape({6, 4}), {6, 4}, {0,  1,  2,  3,  12, 13, 14, 15, 4,  5,  6,  7,
                                            16, 17, 18, 19, 8,  9,  10, 11, 20, 21, 22, 23});
  EXPECT_EQ(zeros({0, 3}).reshape({3, 0, 2}).shape(), Shape(3, 0, 2));
  EXPECT_EQ(tensor(2.0f).reshape({1, 1}).shape(), Shape(1, 1));
}

TEST_F(ViewTest, ReshapeErrors) {
  const Tensor x = count({2, 3});
  expect_error(ErrorKind::Shape, "shape [4, 2] expects 8 elements, x is [2, 3] (6)", [&] {
    x.reshape({4, 2});
  });
  expect_error(ErrorKind::Shape, "has two sizes -1", [&] { x.reshape({-1, -1}); });
  expect_error(ErrorKind::Shape, "size -2 of shape [-2, 3] is negative", [&] {
    x.reshape({-2, 3});
  });
  expect_error(ErrorKind::Shape, "size -1 of shape [-1, 0] can be anything", [&] {
    zeros({0, 3}).reshape({-1, 0});
  });
  expect_error(ErrorKind::Shape, "shape [-1, 4] expects a multiple of 4 elements, x is [2, 3] (6)",
               [&] {
                 x.reshape({-1, 4});
               });
  expect_error(ErrorKind::Value, "input 'x' is an undefined tensor",
               [] { reshape(Tensor(), {1}); });
}

TEST_F(ViewTest, FlattenUnflatten) {
  const Tensor x = count({2, 3, 4});
  EXPECT_EQ(x.flatten().shape(), Shape(24));
  EXPECT_EQ(x.flatten(1).shape(), Shape(2, 12));
  EXPECT_EQ(x.flatten(0, 1).shape(), Shape(6, 4));
  EXPECT_EQ(tensor(1.0f).flatten().shape(), Shape(1));
  EXPECT_EQ(unflatten(x, 2, {-1, 2}).shape(), Shape(2, 3, 2, 2));
  expect_error(ErrorKind::Value, "start_dim 2 comes after end_dim 1", [&] { x.flatten(2, 1); });
  expect_error(ErrorKind::Shape, "do not make dimension 2", [&] { unflatten(x, 2, {3, 2}); });
}

TEST_F(ViewTest, PermuteTransposeMovedim) {
  const Tensor x = count({2, 3});
  expect_tensor(x.t(), {3, 2}, {0, 3, 1, 4, 2, 5});
  expect_tensor(x.transpose(-1, 0), {3, 2}, {0, 3, 1, 4, 2, 5});
  EXPECT_EQ(count({2, 3, 4}).permute({2, 0, 1}).shape(), Shape(4, 2, 3));
  EXPECT_EQ(count({2, 3, 4}).permute({-1, 0, -2}).shape(), Shape(4, 2, 3));
  EXPECT_EQ(movedim(count({2, 3, 4}), {0, 1}, {2, 0}).shape(), Shape(3, 4, 2));
  expect_error(ErrorKind::Shape, "expected 2 dims for x [2, 3], got [0]", [&] { x.permute({0}); });
  expect_error(ErrorKind::Value, "dimension 0 appears twice", [&] { x.permute({0, 0}); });
  expect_error(ErrorKind::Index, "dimension 2 is out of range", [&] { x.transpose(0, 2); });
  expect_error(ErrorKind::Shape, "t: expected at most 2 dimensions", [] { count({1, 2, 3}).t(); });
}

TEST_F(ViewTest, SqueezeUnsqueezeExpand) {
  const Tensor y = count({1, 3, 1});
  EXPECT_EQ(y.squeeze().shape(), Shape(3));
  EXPECT_EQ(y.squeeze(0).shape(), Shape(3, 1));
  EXPECT_EQ(y.squeeze(1).shape(), Shape(1, 3, 1));
  EXPECT_EQ(y.unsqueeze(-1).shape(), Shape(1, 3, 1, 1));
  expect_tensor(y.expand({2, -1, 2}), {2, 3, 2}, {0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2});
  EXPECT_EQ(y.expand({4, 2, 3, 1}).shape(), Shape(4, 2, 3, 1));
  expect_error(ErrorKind::Shape, "expects 4 in dimension 1, x is [1, 3, 1] (3)", [&] {
    y.expand({1, 4, 1});
  });
  expect_error(ErrorKind::Shape, "has fewer dimensions than x", [&] { y.expand({3}); });
  expect_error(ErrorKind::Shape, "has -1 for dimension 0", [&] { y.expand({-1, 1, 3, 1}); });
  expect_error(ErrorKind::Index, "out of range", [&] { y.unsqueeze(5); });
}

TEST_F(ViewTest, SliceSelectNarrow) {
  const Tensor x = count({9});
  expect_tensor(x.slice(0, 2, Slice::kEnd), {7}, {2, 3, 4, 5, 6, 7, 8});
  expect_tensor(x.slice(0, 0, -2), {7}, {0, 1, 2, 3, 4, 5, 6});
  expect_tensor(x.slice(0, 1, 8, 3), {3}, {1, 4, 7});
  expect_tensor(x.slice(0, -4, 100, 2), {2}, {5, 7});
  EXPECT_EQ(x.slice(0, 5, 5).shape(), Shape(0));
  EXPECT_EQ(x.slice(0, 7, 2).shape(), Shape(0));
  EXPECT_EQ(x.slice(0, 20, 30).shape(), Shape(0));
  EXPECT_EQ(x.slice(0, INT64_MIN, -100).shape(), Shape(0));
  expect_tensor(x[Slice(1, 5, 2)], {2}, {1, 3});
  EXPECT_EQ(x[-1].item<float>(), 8);
  expect_tensor(count({2, 3}).select(1, -1), {2}, {2, 5});
  expect_tensor(x.narrow(0, -3, 2), {2}, {6, 7});
  expect_error(ErrorKind::Value, "step must be positive, got 0", [&] { x.slice(0, 0, 5, 0); });
  expect_error(ErrorKind::Index, "index 9 is out of range for dimension 0 of size 9",
               [&] { x.select(0, 9); });
  expect_error(ErrorKind::Index, "narrow: 5 elements from 6 go past dimension 0 of x [9]",
               [&] { x.narrow(0, 6, 5); });
  expect_error(ErrorKind::Index, "the tensor is a scalar", [] { tensor(1.0f)[0]; });
}

TEST_F(ViewTest, SplitChunkUnbind) {
  const Tensor x = count({7, 2});
  std::vector<Tensor> p = x.split(3);
  ASSERT_EQ(p.size(), 3u);
  expect_tensor(p[2], {1, 2}, {12, 13});
  p = split(x, {2, 4, 1});
  ASSERT_EQ(p.size(), 3u);
  EXPECT_EQ(p[1].shape(), Shape(4, 2));
  EXPECT_EQ(x.chunk(3).back().shape(), Shape(1, 2));
  EXPECT_EQ(x.chunk(2, 1).size(), 2u);
  EXPECT_EQ(count({2, 3}).unbind(1)[2].to_vector<float>(), (std::vector<float>{2, 5}));
  EXPECT_EQ(split(zeros({0, 2}), 3).size(), 1u);
  expect_error(ErrorKind::Shape, "sizes add up to 6, dimension 0 of x [7, 2] is 7", [&] {
    split(x, {2, 4});
  });
  expect_error(ErrorKind::Value, "must be positive, got 0", [&] { x.split(0); });
}

TEST_F(ViewTest, DiagonalUnfoldDiag) {
  const Tensor x = count({3, 4});
  expect_tensor(diagonal(x), {3}, {0, 5, 10});
  expect_tensor(diagonal(x, 1), {3}, {1, 6, 11});
  expect_tensor(diagonal(x, -2), {1}, {8});
  EXPECT_EQ(diagonal(x, 9).shape(), Shape(0));
  expect_tensor(unfold(count({5}), 0, 3, 2), {2, 3}, {0, 1, 2, 2, 3, 4});
  expect_tensor(diag(count({2}), 1), {3, 3}, {0, 0, 0, 0, 0, 1, 0, 0, 0});
  expect_error(ErrorKind::Shape, "windows of 6 do not fit", [] { unfold(count({5}), 0, 6, 1); });
  expect_error(ErrorKind::Value, "dim1 and dim2 must differ", [&] { diagonal(x, 0, 1, 1); });
}

TEST_F(ViewTest, CatStack) {
  const Tensor a = count({2, 2}), b = count({2, 1}) * 10;
  expect_tensor(cat({a, b}, 1), {2, 3}, {0, 1, 0, 2, 3, 10});
  expect_tensor(cat({a, a.t()}, 0), {4, 2}, {0, 1, 2, 3, 0, 2, 1, 3});
  expect_tensor(cat({a, zeros({0})}, 0), {2, 2}, {0, 1, 2, 3});
  EXPECT_EQ(cat({tensor({1, 2}), tensor({0.5f})}).dtype(), DType::f32);
  expect_tensor(stack({count({2}), count({2}) + 5}, 1), {2, 2}, {0, 5, 1, 6});
  expect_error(ErrorKind::Shape, "tensor 0 is [2, 2], tensor 1 is [2, 1]: sizes must be equal",
               [&] {
                 cat({a, b}, 0);
               });
  expect_error(ErrorKind::Value, "the list is empty", [] { cat({}); });
  expect_error(ErrorKind::Shape, "tensor 0 is [2, 2], tensor 1 is [2, 1]: shapes must be equal",
               [&] {
                 stack({a, b});
               });
  expect_error(ErrorKind::Shape, "tensors of 0 dimensions cannot be concatenated", [] {
    cat({tensor(1.0f), tensor(2.0f)});
  });
}

TEST_F(ViewTest, PadInAllModes) {
  const Tensor x = tensor({{1.f, 2.f, 3.f}});
  expect_tensor(pad(x, {1, 2}, "constant", 9), {1, 6}, {9, 1, 2, 3, 9, 9});
  expect_tensor(pad(x, {-1, 1, 1, 0}), {2, 3}, {0, 0, 0, 2, 3, 0});
  expect_tensor(pad(x, {2, 1}, "reflect"), {1, 6}, {3, 2, 1, 2, 3, 2});
  expect_tensor(pad(x, {2, 1}, "replicate"), {1, 6}, {1, 1, 1, 2, 3, 3});
  expect_tensor(pad(x, {2, 1}, "circular"), {1, 6}, {2, 3, 1, 2, 3, 1});
  expect_error(ErrorKind::Shape, "padding -4 and 0 leaves -1 elements", [&] { pad(x, {-4, 0}); });
  expect_error(ErrorKind::Shape, "reflect padding of 3 and 0 is too large", [&] {
    pad(x, {3, 0}, "reflect");
  });
  expect_error(ErrorKind::Value, "mode 'edge' must be", [&] { pad(x, {1, 1}, "edge"); });
  expect_error(ErrorKind::Shape, "for at most 2 dimensions", [&] { pad(x, {1, 1, 1}); });
}

TEST_F(ViewTest, FlipRollRotate) {
  const Tensor x = count({2, 3});
  expect_tensor(flip(x, {1}), {2, 3}, {2, 1, 0, 5, 4, 3});
  expect_tensor(flip(x, {0, -1}), {2, 3}, {5, 4, 3, 2, 1, 0});
  expect_tensor(roll(x, {1}, {1}), {2, 3}, {2, 0, 1, 5, 3, 4});
  expect_tensor(roll(x, {-1, 4}, {0, 1}), {2, 3}, {5, 3, 4, 2, 0, 1});
  expect_tensor(roll(x, {2}), {2, 3}, {4, 5, 0, 1, 2, 3});
  expect_tensor(rot90(x), {3, 2}, {2, 5, 1, 4, 0, 3});
  expect_tensor(rot90(x, -1), {3, 2}, {3, 0, 4, 1, 5, 2});
  expect_error(ErrorKind::Value, "one shift per dimension", [&] { roll(x, {1, 2}, {0}); });
}

TEST_F(ViewTest, Triangles) {
  const Tensor x = ones({3, 3});
  expect_tensor(tril(x), {3, 3}, {1, 0, 0, 1, 1, 0, 1, 1, 1});
  expect_tensor(triu(x, 1), {3, 3}, {0, 1, 1, 0, 0, 1, 0, 0, 0});
  expect_tensor(tril(x, INT64_MAX), {3, 3}, values(x));
  expect_tensor(triu(x, INT64_MIN), {3, 3}, values(x));
  expect_tensor(triu(x, INT64_MAX), {3, 3}, values(zeros({3, 3})));
  expect_tensor(tril(count({2, 3}).t()), {3, 2}, {0, 0, 1, 4, 2, 5});
  expect_error(ErrorKind::Shape, "at least 2 dimensions, x is [3]", [] { tril(ones({3})); });
}

TEST_F(ViewTest, Repeats) {
  const Tensor x = count({2, 2});
  expect_tensor(repeat(x, {1, 2}), {2, 4}, {0, 1, 0, 1, 2, 3, 2, 3});
  expect_tensor(repeat(x, {2, 1, 1}), {2, 2, 2}, {0, 1, 2, 3, 0, 1, 2, 3});
  expect_tensor(tile(x, {2}), {2, 4}, {0, 1, 0, 1, 2, 3, 2, 3});
  expect_tensor(repeat_interleave(x, 2, 1), {2, 4}, {0, 0, 1, 1, 2, 2, 3, 3});
  expect_tensor(repeat_interleave(x, tensor({0, 3}), 0), {3, 2}, {2, 3, 2, 3, 2, 3});
  const std::vector<Tensor> g = meshgrid({count({3}), count({2})}, "xy");
  expect_tensor(g[0], {2, 3}, {0, 1, 2, 0, 1, 2});
  expect_tensor(pixel_shuffle(count({1, 4, 1, 2}), 2), {1, 1, 2, 4}, {0, 2, 1, 3, 4, 6, 5, 7});
  expect_tensor(pixel_unshuffle(pixel_shuffle(count({1, 4, 1, 2}), 2), 2), {1, 4, 1, 2},
                values(count({1, 4, 1, 2})));
}

TEST_F(ViewTest, CopiesOfStridedLayouts) {
  // Sizes above the tile and thread limits, odd remainders, every element size.
  for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::u8}) {
    const Tensor x = (count({3, 67, 130}, DType::i64) % 251).to(dtype);
    const Tensor y = x.permute({2, 0, 1}).contiguous();
    const std::vector<int64_t> a = x.to_vector<int64_t>(), b = y.to_vector<int64_t>();
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 67; ++j)
        for (int64_t k = 0; k < 130; ++k)
          ASSERT_EQ(a[static_cast<size_t>((i * 67 + j) * 130 + k)],
                    b[static_cast<size_t>((k * 3 + i) * 67 + j)])
              << to_string(dtype);
  }
}

TEST_F(ViewTest, NamedInputsKeepTheirValues) {
  const Tensor x = count({2, 3});
  const Values before = values(x);
  triu(x), flip(x, {0}), roll(x, {1}, {0}), pad(x, {1, 1}), cat({x, x}), contiguous(x.t());
  EXPECT_EQ(values(x), before);
}

Tensor view_input(const Shape& s) { return count(s, DType::f64) * 0.37 - 1.0; }

// Gradients to order 2 through a nonlinear function, so that the second order is not zero.
template <class F>
void expect_gradient(F f, const Tensor& x) {
  const auto g = [&](std::span<const Tensor> in) -> Tensors { return {square(f(in[0]))}; };
  EXPECT_TRUE(gradcheck(g, {x}, {.order = 2}));
}

TEST_F(ViewTest, Gradients) {
  const Tensor x = view_input({2, 3, 4});
  expect_gradient([](const Tensor& x) { return x.transpose(0, 1).reshape({6, 4}); }, x);
  expect_gradient([](const Tensor& x) { return x.slice(2, 1, 4, 2); }, x);
  expect_gradient([](const Tensor& x) { return x.select(1, -1); }, x);
  expect_gradient([](const Tensor& x) { return diagonal(x, 1, 1, 2); }, x);
  expect_gradient([](const Tensor& x) { return unfold(x, 2, 3, 1); }, x);
  expect_gradient([](const Tensor& x) { return cat({x, x * 2.0, x.slice(1, 0, 1)}, 1); }, x);
  expect_gradient([](const Tensor& x) { return pad(x, {-1, 2, 1, 0}); }, x);
  expect_gradient([](const Tensor& x) { return pad(x, {2, 1}, "reflect"); }, x);
  expect_gradient([](const Tensor& x) { return roll(flip(x, {0, 2}), {1, -2}, {1, 2}); }, x);
  expect_gradient([](const Tensor& x) { return tril(x, 1); }, x);
  expect_gradient([](const Tensor& x) { return repeat(x, {1, 2, 1}); }, x);
  expect_gradient([](const Tensor& x) { return x.select(0, 0).expand({2, 3, 4}); }, x);
}

TEST_F(ViewTest, Vmap) {
  const Tensor x = count({2, 3, 4});
  expect_vmap([](const Tensor& x) { return x.t().reshape({2, 6}); }, x);
  expect_vmap([](const Tensor& x) { return x.permute({-1, 0}); }, x);
  expect_vmap([](const Tensor& x) { return x.unsqueeze(0).expand({2, 3, 4}); }, x);
  expect_vmap([](const Tensor& x) { return x.slice(-1, 1, 3); }, x);
  expect_vmap([](const Tensor& x) { return x.select(-1, 2); }, x);
  expect_vmap([](const Tensor& x) { return diagonal(x, 1); }, x);
  expect_vmap([](const Tensor& x) { return unfold(x, 1, 2, 1); }, x);
  expect_vmap([](const Tensor& x) { return cat({x, x.flatten().reshape({3, 4})}, -1); }, x);
  expect_vmap([](const Tensor& x) { return pad(x, {1, 0, 0, 2}); }, x);
  expect_vmap([](const Tensor& x) { return roll(flip(x, {-1}), {1}, {0}); }, x);
  expect_vmap([](const Tensor& x) { return triu(x); }, x);
}

TEST_F(ViewTest, SymbolicSizes) {
  const Dim b = Dim::symbol("b");
  const auto f = [](std::span<const Tensor> in) -> std::vector<Tensor> {
    const Tensor& x = in[0];
    return {x.flatten(1), x.slice(0, 1, Slice::kEnd), x.reshape({x.shape(0), -1, 2}),
            cat({x, x}, 0)};
  };
  const Spec spec(DType::f32, Shape(b, 3, 4));
  const Ref<Graph> g = trace(f, {&spec, 1}, Captures::as_inputs);
  EXPECT_EQ(g->outputs[0].shape().to_string(), "[b, 12]");
  EXPECT_EQ(g->outputs[2].shape().to_string(), "[b, 6, 2]");
  EXPECT_EQ(g->outputs[3].shape()[1], Dim(3));
  // The same graph at another size.
  for (int64_t n : {1, 5}) {
    const Tensor x = count({n, 3, 4});
    const Tensors got = run(*g, {&x, 1}), want = f({&x, 1});
    for (size_t i = 0; i < want.size(); ++i)
      expect_tensor(got[i], want[i].shape(), values(want[i]));
  }
}

}  // namespace
}  // namespace tandem::testing_ops
