// SPDX-License-Identifier: Apache-2.0
// Optimizers against PyTorch's over 20 steps of given gradients. Those that optim does not have yet
// are driven through their update rows, with the step's factors as PyTorch computes them.
#include <cmath>

#include "tandem/init.h"
#include "tandem/ops/update.h"
#include "tandem/optim/optim.h"
#include "tests/golden/golden_helper.h"

namespace tandem::golden {

namespace {

using Step = std::function<void()>;

template <class O>
Step step_of(std::unique_ptr<O> o) {
  return [o = std::shared_ptr<O>(std::move(o))] { o->step(); };
}

std::array<double, 2> betas(const Case& c) {
  std::array<double, 2> b = {0.9, 0.999};
  if (const io::Json* v = c.attr("betas"))
    for (size_t i = 0; i < 2; ++i) b[i] = *(*v->as_array())[i].as_double();
  return b;
}

// ---- rows without an optimizer of their own

struct RowStep {
  const Case* c;
  std::vector<Param> params;
  std::vector<std::vector<Buffer>> state;
  int64_t t = 0;
  double mu_product = 1;

  RowStep(const Case& c, std::vector<Param> p, size_t moments) : c(&c), params(std::move(p)) {
    for (const Param& q : params) {
      state.emplace_back();
      for (size_t k = 0; k < moments; ++k) state.back().push_back(Buffer(q.value().detach() * 0.0));
    }
  }
  void update(const OpDef& row, const std::vector<double>& numbers) {
    for (size_t i = 0; i < params.size(); ++i) {
      std::vector<Cell*> cells = {params[i].cell().get()};
      for (const Buffer& b : state[i]) cells.push_back(b.cell().get());
      std::vector<Operand> others;
      others.reserve(numbers.size() + 1);
      others.emplace_back(params[i].grad());
      for (double v : numbers) others.emplace_back(v);
      update_(row, nullptr, cells, others, Where::here());
    }
  }
  void step() {
    ++t;
    auto [b1, b2] = betas(*c);
    double n = static_cast<double>(t), decay = c->d("weight_decay"), eps = c->d("eps", 1e-8);
    double bias1 = 1 - std::pow(b1, n), bias2 = 1 - std::pow(b2, n);
    if (c->op == "Adadelta")
      return update(op::adadelta_update,
                    {c->d("lr", 1), c->d("rho", 0.9), c->d("eps", 1e-6), decay});
    if (c->op == "Adamax")
      return update(op::adamax_update, {c->d("lr", 2e-3), b1, b2, eps, decay, bias1});
    double decoupled = c->b("decoupled_weight_decay");
    if (c->op == "NAdam") {
      double psi = c->d("momentum_decay", 4e-3);
      double mu = b1 * (1 - 0.5 * std::pow(0.96, n * psi));
      double next = b1 * (1 - 0.5 * std::pow(0.96, (n + 1) * psi));
      // PyTorch keeps the product in float32.
      mu_product = static_cast<float>(mu_product) * static_cast<float>(mu);
      return update(op::nadam_update,
                    {c->d("lr", 2e-3), b1, b2, eps, decay, decoupled, bias2, mu, next, mu_product});
    }
    double most = 2 / (1 - b2) - 1, length = most - 2 * n * std::pow(b2, n) / bias2;
    double rect =
        length > 5
            ? std::sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
            : 0;
    update(op::radam_update, {c->d("lr", 1e-3), b1, b2, eps, decay, decoupled, bias1, bias2, rect});
  }
};

Step make(const Case& c, const std::vector<Param>& p) {
  double decay = c.d("weight_decay");
  bool maximize = c.b("maximize"), amsgrad = c.b("amsgrad");
  if (c.op == "SGD")
    return step_of(std::make_unique<optim::SGD>(p, optim::SGDOptions{.lr = c.d("lr", 1e-3),
                                                                     .momentum = c.d("momentum"),
                                                                     .dampening = c.d("dampening"),
                                                                     .weight_decay = decay,
                                                                     .nesterov = c.b("nesterov"),
                                                                     .maximize = maximize}));
  if (c.op == "Adam")
    return step_of(std::make_unique<optim::Adam>(p, optim::AdamOptions{.lr = c.d("lr", 1e-3),
                                                                       .betas = betas(c),
                                                                       .eps = c.d("eps", 1e-8),
                                                                       .weight_decay = decay,
                                                                       .amsgrad = amsgrad,
                                                                       .maximize = maximize}));
  if (c.op == "AdamW")
    return step_of(std::make_unique<optim::AdamW>(
        p, optim::AdamWOptions{.lr = c.d("lr", 1e-3),
                               .betas = betas(c),
                               .eps = c.d("eps", 1e-8),
                               .weight_decay = c.d("weight_decay", 1e-2),
                               .amsgrad = amsgrad,
                               .maximize = maximize}));
  if (c.op == "RMSprop")
    return step_of(
        std::make_unique<optim::RMSprop>(p, optim::RMSpropOptions{.lr = c.d("lr", 1e-2),
                                                                  .alpha = c.d("alpha", 0.99),
                                                                  .eps = c.d("eps", 1e-8),
                                                                  .weight_decay = decay,
                                                                  .momentum = c.d("momentum"),
                                                                  .centered = c.b("centered")}));
  if (c.op == "Adagrad")
    return step_of(std::make_unique<optim::Adagrad>(
        p, optim::AdagradOptions{.lr = c.d("lr", 1e-2),
                                 .lr_decay = c.d("lr_decay"),
                                 .weight_decay = decay,
                                 .initial_accumulator_value = c.d("initial_accumulator_value"),
                                 .eps = c.d("eps", 1e-10)}));
  auto row = std::make_shared<RowStep>(c, p, 2);
  return [row] { row->step(); };
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return test_name(info.param.name);
}
class GoldenOptim : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Optim, GoldenOptim, ::testing::ValuesIn(cases_of("optim")), case_name);

TEST_P(GoldenOptim, Matches) {
  Case c = GetParam();
  if (c.has("base_lr")) GTEST_SKIP() << "no learning-rate schedules yet: " << c.op;
  if (c.op == "clip_grad_norm_") {
    if (c.d("norm_type") != 2) GTEST_SKIP() << "clip_grad_norm_ takes the 2-norm only";
    std::vector<Param> p;
    for (size_t i = 0; i < c.n(); ++i) {
      p.push_back(Param(c.t(i) * 0.0));
      p.back().set_grad(c.t(i));
    }
    Ts got = {optim::clip_grad_norm_(p, c.d("max_norm"))}, want = c.list_of("outputs");
    for (const Param& q : p) got.push_back(q.grad());
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(matches(got[i], want[i], c.rtol(), c.atol())) << i;
    return;
  }
  std::vector<Param> params;
  for (const Tensor& t : c.list_of("params")) params.push_back(Param(t.clone()));
  for (size_t i = 0; i < params.size(); ++i) params[i].cell()->name = "p" + std::to_string(i);
  Ts grads = c.list_of("step_grads");
  Step step = make(c, params);
  int compared = 0;
  for (int64_t t = 1; t <= 20; ++t) {
    for (size_t i = 0; i < params.size(); ++i) params[i].set_grad(grads[i].select(0, t - 1));
    step();
    const io::Json* after = c.json().find("after")->find(std::to_string(t));
    if (!after) continue;
    for (size_t i = 0; i < params.size(); ++i, ++compared)
      EXPECT_TRUE(matches(params[i].value().detach(),
                          c.stored(*(*after->as_array())[i].as_string()), c.rtol(), c.atol()))
          << "parameter " << i << " after step " << t;
  }
  EXPECT_EQ(compared, 6);
}

}  // namespace
}  // namespace tandem::golden
