// SPDX-License-Identifier: Apache-2.0
// Recurrent layers: the whole-sequence row against single steps, direction, derivatives to order
// two, vmap, error texts.
#include "contraction_helper.h"

namespace tandem {
namespace {

using namespace testing;

class RnnTest : public ::testing::Test {
 protected:
  void SetUp() override { init_once(); }
  Tensor x = ramp({3, 2, 2}), h0 = ramp({2, 2}, .3), c0 = ramp({2, 2}, .5);
  Tensor w_ih = ramp({8, 2}, .5), w_hh = ramp({8, 2}, .4), b_ih = ramp({8}, .1),
         b_hh = ramp({8}, .2);
};

TEST_F(RnnTest, HandValues) {
  // All sums are 0: i = f = o = 1/2, g = 0, so c halves and h = tanh(c) / 2.
  Tensor z = zeros({4, 1}, float64), c = tensor({{2.}}, float64);
  LstmResult r = lstm(zeros({1, 1, 1}, float64), {}, c, z, z);
  expect_close(r.c, tensor({{1.}}, float64));
  expect_close(r.h, tensor({{0.5 * std::tanh(1.)}}, float64));
}

TEST_F(RnnTest, SequenceEqualsSteps) {
  for (bool reverse : {false, true}) {
    LstmResult r = lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, reverse);
    Tensor h = h0, c = c0;
    for (int64_t k = 0; k < 3; ++k) {
      int64_t t = reverse ? 2 - k : k;
      auto [hn, cn] = lstm_cell(x.select(0, t), h, c, w_ih, w_hh, b_ih, b_hh);
      h = hn;
      c = cn;
      expect_close(r.y.select(0, t).contiguous(), h);
    }
    expect_close(r.h, h);
    expect_close(r.c, c);
  }
}

TEST_F(RnnTest, StepFormulas) {
  Tensor g = linear(x.select(0, 0), w_ih, b_ih) + linear(h0, w_hh, b_hh);
  std::vector<Tensor> p = g.chunk(4, 1);
  Tensor c = p[1].sigmoid() * c0 + p[0].sigmoid() * p[2].tanh();
  auto [hn, cn] = lstm_cell(x.select(0, 0), h0, c0, w_ih, w_hh, b_ih, b_hh);
  expect_close(cn, c);
  expect_close(hn, p[3].sigmoid() * c.tanh());
}

TEST_F(RnnTest, GradientsThroughTheRowEqualThoseThroughSteps) {
  auto leaf = [](const Tensor& t) { return t.clone().requires_grad_(); };
  Tensors a = {leaf(x), leaf(h0), leaf(c0), leaf(w_ih), leaf(w_hh), leaf(b_ih), leaf(b_hh)};
  LstmResult r = lstm(a[0], a[1], a[2], a[3], a[4], a[5], a[6], true);
  Tensors got = grad({r.y, r.h, r.c}, a, {.grad_outputs = {ramp({3, 2, 2}), ramp({2, 2}), c0}});
  Tensor h = a[1], c = a[2];
  Tensors ys(3);
  for (size_t t = 3; t-- > 0;) {
    auto [hn, cn] = lstm_cell(a[0].select(0, int64_t(t)), h, c, a[3], a[4], a[5], a[6]);
    ys[t] = h = hn;
    c = cn;
  }
  Tensors want = grad({stack(ys), h, c}, a, {.grad_outputs = {ramp({3, 2, 2}), ramp({2, 2}), c0}});
  for (size_t i = 0; i < a.size(); ++i) expect_close(got[i], want[i], 1e-11, 1e-12);
}

TEST_F(RnnTest, Gradients) {
  for (bool reverse : {false, true}) {
    auto f = [=](std::span<const Tensor> v) {
      LstmResult r = lstm(v[0], v[1], v[2], v[3], v[4], v[5], v[6], reverse);
      return Tensors{r.y, r.h, r.c};
    };
    expect_gradients(f, {x.narrow(0, 0, 2).contiguous(), h0, c0, w_ih, w_hh, b_ih, b_hh});
  }
  auto only_c = [=, this](std::span<const Tensor> v) {
    return Tensors{lstm(v[0], {}, {}, w_ih, v[1]).c};
  };
  expect_gradients(only_c, {x, w_hh});
  auto gru_all = [](std::span<const Tensor> v) {
    RnnResult r = gru(v[0], {}, v[1], v[2], v[3], v[3]);
    return Tensors{r.y, r.h};
  };
  expect_gradients(gru_all, {x, ramp({6, 2}, .5), ramp({6, 2}, .4), ramp({6}, .1)}, 1);
  auto simple = [](std::span<const Tensor> v) {
    return Tensors{rnn_tanh(v[0], {}, v[1], v[2], {}, {}, true).y};
  };
  expect_gradients(simple, {x, ramp({2, 2}, .5), ramp({2, 2}, .4)});
}

TEST_F(RnnTest, Vmap) {
  auto f = [=, this](std::span<const Tensor> v) {
    return lstm(v[0], h0, c0, w_ih, w_hh, b_ih, b_hh).y;
  };
  expect_vmap(f, {ramp({2, 3, 2, 2})}, {true});
  auto g = [=, this](std::span<const Tensor> v) {
    auto one = [&](const Tensor& w) { return lstm(v[0], h0, c0, w_ih, w).y.square().sum(); };
    return grad(one)(v[1]);
  };
  expect_vmap(g, {ramp({2, 3, 2, 2}), w_hh}, {true, false});
}

TEST_F(RnnTest, Projection) {
  Tensor w_hr = ramp({1, 2}, .7), narrow_hh = ramp({8, 1}, .4);
  LstmResult r = lstm_projected(x, {}, {}, w_ih, narrow_hh, b_ih, b_hh, w_hr);
  EXPECT_EQ(r.y.shape(), Shape(3, 2, 1));
  auto [h, c] = lstm_cell(x.select(0, 0), zeros({2, 2}, float64), {}, w_ih, zeros({8, 2}, float64),
                          b_ih, b_hh);
  expect_close(r.y.select(0, 0).contiguous(), linear(h, w_hr));
}

TEST_F(RnnTest, Errors) {
  expect_error(ErrorKind::Shape, "lstm: x is [0, 2, 2]: a sequence without steps", [&] {
    lstm(zeros({0, 2, 2}, float64), h0, c0, w_ih, w_hh);
  });
  expect_error(ErrorKind::Shape, "h0 is [3, 2], expected [2, 2]", [&] {
    lstm(x, zeros({3, 2}, float64), c0, w_ih, w_hh);
  });
  expect_error(ErrorKind::Shape, "w_ih is [8, 2], expected [8, 3]", [&] {
    lstm(zeros({3, 2, 3}, float64), h0, c0, w_ih, w_hh);
  });
  expect_error(ErrorKind::DType, "x is float32", [&] { lstm(x.to(float32), h0, c0, w_ih, w_hh); });
  expect_error(ErrorKind::Shape, "gru: x is [2, 2], expected [steps, n, features]",
               [&] { gru(h0, {}, w_ih, w_hh); });
}

}  // namespace
}  // namespace tandem
