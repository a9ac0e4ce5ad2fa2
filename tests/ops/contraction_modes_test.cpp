// SPDX-License-Identifier: Apache-2.0
// The rows of matmul, conv, pool, norm, loss, attention and rnn under modes: a symbolic batch in a
// trace, autocast, and gradients through vmap of gradients (hidden outputs stay on the tape).
#include "contraction_helper.h"
#include "tandem/graph/trace.h"

namespace tandem {
namespace {

using namespace testing;

struct Model {
  const char* name;
  std::function<Tensor(const Tensor& x)> f;  ///< x [n, ...] -> anything, differentiable
  Shape sample;                              ///< of x without n
};

std::vector<Model> models() {
  Tensor w = ramp({4, 2, 3, 3}, .3), b = ramp({4}, .2), lin = ramp({3, 6}, .4);
  auto labels = [](const Tensor& x) { return (x.select(1, 0) > 0.0).to(int64); };
  return {
      {"linear", [=](const Tensor& x) { return linear(x, lin); }, {6}},
      {"matmul", [=](const Tensor& x) { return matmul(x, lin.t()); }, {2, 6}},
      {"conv",
       [=](const Tensor& x) {
         return conv2d(x, w, b, {2, 1}, 1);
       },
       {2, 5, 4}},
      {"conv_transpose",
       [=](const Tensor& x) { return conv_transpose2d(x, w, {}, 2, 1, 1); },
       {4, 3, 2}},
      {"max_pool", [](const Tensor& x) { return max_pool2d(x, 2); }, {2, 4, 4}},
      {"avg_pool", [](const Tensor& x) { return avg_pool2d(x, 3, 2, 1, true, false); }, {2, 4, 4}},
      {"adaptive",
       [](const Tensor& x) {
         return adaptive_avg_pool2d(x, {3, 2});
       },
       {2, 4, 5}},
      {"softmax", [](const Tensor& x) { return softmax(x, -1); }, {4}},
      {"log_softmax", [](const Tensor& x) { return log_softmax(x, 1); }, {4}},
      {"layer_norm", [](const Tensor& x) { return layer_norm(x, {4}, ramp({4}, .3, 1)); }, {4}},
      {"rms_norm",
       [](const Tensor& x) {
         return rms_norm(x, {2, 3});
       },
       {2, 3}},
      {"batch_norm",
       [](const Tensor& x) { return batch_norm(x, {}, {}, ramp({2}, .3, 1)).y; },
       {2, 3}},
      {"group_norm", [](const Tensor& x) { return group_norm(x, 2); }, {4, 3}},
      {"cross_entropy", [=](const Tensor& x) { return cross_entropy(x, labels(x.detach())); }, {3}},
      {"smooth_cross_entropy",
       [=](const Tensor& x) {
         return cross_entropy(x, labels(x.detach()),
                              {.weight = ramp({3}, .2, 1), .label_smoothing = 0.1});
       },
       {3}},
      {"nll_loss",
       [=](const Tensor& x) { return nll_loss(log_softmax(x, 1), labels(x.detach())); },
       {3}},
      {"mse_loss", [](const Tensor& x) { return mse_loss(x, (x > 0.0).to(float64)); }, {3}},
      {"attention",
       [](const Tensor& x) { return scaled_dot_product_attention(x, x * 0.5, x, {}, 0, true); },
       {2, 3, 4}},
      {"lstm",
       [](const Tensor& x) {
         return lstm(x.transpose(0, 1), {}, {}, ramp({8, 3}, .4), ramp({8, 2}, .3)).y;
       },
       {3, 3}},
      {"gru",
       [](const Tensor& x) {
         return gru(x.transpose(0, 1), {}, ramp({6, 3}, .4), ramp({6, 2}, .3)).y;
       },
       {2, 3}},
  };
}

Shape with_front(Dim n, const Shape& sample) {
  Shape s = sample;
  s.insert(0, n);
  return s;
}

class ModesTest : public ::testing::Test {
 protected:
  void SetUp() override { init_once(); }
};

TEST_F(ModesTest, SymbolicBatchRunsAtEverySize) {
  for (const Model& m : models()) {
    SCOPED_TRACE(m.name);
    auto both = [&](std::span<const Tensor> v) {
      Tensor y = m.f(v[0]);
      return Tensors{y, grad(y.square().sum(), v[0])};
    };
    Spec spec(float64, with_front(Dim::symbol("n"), m.sample));
    bool asks[] = {true};
    Ref<Graph> g;
    try {
      g = trace(both, {&spec, 1}, Captures::as_inputs, asks);
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
      continue;
    }
    for (int64_t n : {2, 5}) {
      Tensor x = ramp(with_front(n, m.sample));
      std::vector<Tensor> got = run(*g, {&x, 1});
      Tensor leaf = x.clone().requires_grad_();
      std::vector<Tensor> want = both({&leaf, 1});
      for (size_t i = 0; i < want.size(); ++i)
        expect_close(got[i].detach(), want[i].detach(), 1e-12, 1e-12, m.name);
    }
  }
}

TEST_F(ModesTest, GradientThroughVmapOfGradient) {
  for (const Model& m : models()) {
    SCOPED_TRACE(m.name);
    // Sum of squared per-example gradients, differentiated: by vmap and by a loop.
    auto one = [&](const Tensor& x) {
      auto f = [&](const Tensor& u) { return (m.f(u) * 0.7).square().sum(); };
      return grad(f)(x);
    };
    Tensor x = ramp(with_front(3, with_front(2, m.sample)));
    auto penalty = [&](const Tensor& v) { return vmap(one)(v).square().sum(); };
    auto looped = [&](const Tensor& v) {
      Tensors parts;
      for (int64_t i = 0; i < 3; ++i) parts.push_back(one(v.select(0, i)).square().sum());
      return stack(parts).sum();
    };
    try {
      expect_close(grad(penalty)(x), grad(looped)(x), 1e-9, 1e-9, m.name);
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

TEST_F(ModesTest, Autocast) {
  Tensor x = ramp({2, 6}).to(float32), w = ramp({3, 6}, .4).to(float32).requires_grad_();
  Tensor image = ramp({1, 2, 4, 4}).to(float32), k = ramp({3, 2, 3, 3}, .3).to(float32);
  AutocastGuard guard(bfloat16);
  Tensor y = linear(x, w);
  EXPECT_EQ(y.dtype(), bfloat16);
  EXPECT_EQ(conv2d(image, k).dtype(), bfloat16);
  EXPECT_EQ(matmul(x, w.t()).dtype(), bfloat16);
  Tensor loss = cross_entropy(y, tensor({0, 2}));
  EXPECT_EQ(loss.dtype(), float32);
  EXPECT_EQ(mse_loss(y, zeros({2, 3}, bfloat16)).dtype(), float32);
  loss.backward();
  EXPECT_EQ(w.grad().dtype(), float32);
  expect_close(linear(x.to(float64), w.detach().to(float64)),
               matmul(x.to(float64), w.detach().to(float64).t()));
}

}  // namespace
}  // namespace tandem
