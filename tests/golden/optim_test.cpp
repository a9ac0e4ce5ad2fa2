// SPDX-License-Identifier: Apache-2.0
// Optimizers, schedules, averages and clipping against PyTorch's over 20 steps. Each optimizer also
// steps in a trace and through a saved state, with equal bits.
#include <cmath>
#include <memory>

#include "tandem/graph/trace.h"
#include "tandem/init.h"
#include "tandem/nn/linear.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"
#include "tandem/optim/optim.h"
#include "tests/golden/golden_helper.h"

namespace tandem::golden {

namespace {

double value_of(const io::Json& v) {
  return v.as_int() ? static_cast<double>(*v.as_int()) : *v.as_double();
}
std::array<double, 2> pair_of(const io::Json& v) {
  return {value_of((*v.as_array())[0]), value_of((*v.as_array())[1])};
}
// Sets the fields that a case has, by name.
struct FromCase : QuietVisitor {
  const Case& c;
  explicit FromCase(const Case& of) : c(of) {}
  void number(const char* name, double& v, const Field&) override {
    if (name == std::string("eps1") || name == std::string("eps2"))
      set_eps(name, v);
    else if (c.has(name))
      v = c.d(name);
  }
  void flag(const char* name, bool& v, const Field&) override { v = c.b(name, v); }
  void text(const char* name, std::string& v, const Field&) override {
    if (c.has(name)) v = c.s(name);
  }
  void numbers(const char* name, std::vector<double>& v, const Field&) override {
    if (const io::Json* given = c.attr(name)) {
      const auto pair = pair_of(*given);
      v.assign(pair.begin(), pair.end());
    }
  }
  bool has_value(const char*, bool, const Field&) override { return c.attr("eps") != nullptr; }

 private:
  // Adafactor's two are one pair in PyTorch.
  void set_eps(const std::string& name, double& v) const {
    if (const io::Json* given = c.attr("eps")) v = pair_of(*given)[name == "eps2"];
  }
};

std::unique_ptr<optim::Optimizer> make_optimizer(const Case& c, optim::ParamList p) {
  for (const optim::OptimizerRow* row : optim::optimizers().rows()) {
    if (c.op != row->type) continue;
    const std::shared_ptr<void> options = row->options->make();
    FromCase fill(c);
    row->options->visit(options.get(), fill);
    return row->make(std::move(p), options.get());
  }
  return nullptr;
}

// One group for each parameter, as the case's "groups" say.
optim::ParamList groups_of(const Case& c, const std::vector<Param>& params) {
  const io::Json* groups = c.json().find("groups");
  if (!groups) return params;
  std::vector<optim::ParamGroup> list;
  for (size_t i = 0; i < params.size(); ++i) {
    optim::ParamGroup g{{params[i]}};
    for (const auto& [key, v] : *(*groups->as_array())[i].as_object()) {
      if (key == "betas") g.betas = pair_of(v);
      if (key == "lr") g.lr = value_of(v);
      if (key == "weight_decay") g.weight_decay = value_of(v);
      if (key == "eps") g.eps = value_of(v);
      if (key == "alpha") g.alpha = value_of(v);
      if (key == "momentum") g.momentum = value_of(v);
      if (key == "amsgrad") g.amsgrad = *v.as_bool();
      if (key == "centered") g.centered = *v.as_bool();
    }
    list.push_back(std::move(g));
  }
  return list;
}

std::vector<Param> params_of(const Case& c) {
  std::vector<Param> params;
  for (const Tensor& t : c.list_of("params")) params.push_back(Param(t.clone()));
  for (size_t i = 0; i < params.size(); ++i) params[i].cell()->name = "p" + std::to_string(i);
  return params;
}

// ---- schedules

using Schedules = std::vector<std::unique_ptr<optim::LRScheduler>>;

double number(const io::Json& o, const char* key, double otherwise) {
  const io::Json* v = o.find(key);
  return v ? value_of(*v) : otherwise;
}
std::string text(const io::Json& o, const char* key, const char* otherwise) {
  const io::Json* v = o.find(key);
  return v ? *v->as_string() : otherwise;
}

// Makes schedule `op`; its parts go into `all` before it.
void make_schedule(const std::string& op, const io::Json& o, optim::Optimizer& opt,
                   Schedules& all) {
  namespace t = optim;
  auto d = [&](const char* key, double otherwise = 0) { return number(o, key, otherwise); };
  auto i = [&](const char* key, double otherwise = 0) {
    return static_cast<int64_t>(number(o, key, otherwise));
  };
  auto add = [&](auto* s) { all.emplace_back(s); };
  std::vector<t::LRScheduler*> parts;
  if (const io::Json* list = o.find("parts"))
    for (const io::Json& part : *list->as_array()) {
      make_schedule(*(*part.as_array())[0].as_string(), (*part.as_array())[1], opt, all);
      parts.push_back(all.back().get());
    }
  std::vector<int64_t> milestones;
  if (const io::Json* list = o.find("milestones"))
    for (const io::Json& m : *list->as_array())
      milestones.push_back(static_cast<int64_t>(value_of(m)));
  auto lambda = [power = d("power")](int64_t k) { return std::pow(power, k % 3); };
  std::string anneal = text(o, "anneal_strategy", "cos");
  bool cycle = !o.find("cycle_momentum") || *o.find("cycle_momentum")->as_bool();
  if (op == "StepLR") return add(new t::StepLR(opt, {i("step_size"), d("gamma")}));
  if (op == "MultiStepLR") return add(new t::MultiStepLR(opt, {milestones, d("gamma")}));
  if (op == "ExponentialLR") return add(new t::ExponentialLR(opt, {d("gamma")}));
  if (op == "CosineAnnealingLR")
    return add(new t::CosineAnnealingLR(opt, {i("T_max"), d("eta_min")}));
  if (op == "LinearLR")
    return add(new t::LinearLR(opt, {d("start_factor"), 1.0, i("total_iters")}));
  if (op == "ConstantLR") return add(new t::ConstantLR(opt, {d("factor"), i("total_iters")}));
  if (op == "PolynomialLR") return add(new t::PolynomialLR(opt, {i("total_iters"), d("power")}));
  if (op == "CosineAnnealingWarmRestarts")
    return add(new t::CosineAnnealingWarmRestarts(opt, {i("T_0"), i("T_mult", 1), d("eta_min")}));
  if (op == "LambdaLR") return add(new t::LambdaLR(opt, {lambda}));
  if (op == "MultiplicativeLR") return add(new t::MultiplicativeLR(opt, {lambda}));
  if (op == "NoamLR")
    return add(new t::NoamLR(opt, {i("model_size"), i("warmup_steps"), d("factor")}));
  if (op == "SWALR") return add(new t::SWALR(opt, {d("swa_lr"), i("anneal_epochs"), anneal}));
  if (op == "SequentialLR") return add(new t::SequentialLR(opt, parts, milestones));
  if (op == "ChainedScheduler") return add(new t::ChainedScheduler(parts));
  if (op == "WarmupLR")
    return add(new t::WarmupLR(opt, *parts[0], {i("warmup_steps"), d("start_factor")}));
  if (op == "CyclicLR")
    return add(new t::CyclicLR(opt, {.base_lr = d("base_lr"),
                                     .max_lr = d("max_lr"),
                                     .step_size_up = i("step_size_up"),
                                     .step_size_down = i("step_size_down", -1),
                                     .mode = text(o, "mode", "triangular"),
                                     .gamma = d("gamma", 1),
                                     .cycle_momentum = cycle}));
  if (op == "OneCycleLR")
    return add(new t::OneCycleLR(
        opt, {.max_lr = d("max_lr"),
              .total_steps = i("total_steps"),
              .epochs = i("epochs"),
              .steps_per_epoch = i("steps_per_epoch"),
              .pct_start = d("pct_start", 0.3),
              .anneal_strategy = anneal,
              .max_momentum = d("max_momentum", 0.95),
              .three_phase = o.find("three_phase") && *o.find("three_phase")->as_bool()}));
  ADD_FAILURE() << op;
}

void check_schedule(const Case& c) {
  Param p(zeros({1}));
  optim::SGD opt({p}, {.lr = c.d("base_lr", 0.2), .momentum = 0.7});
  opt.set_lr(value_of(*c.json().find("base_lr")));
  std::vector<double> lr = c.stored(*c.json().find("lr")->as_string()).to_vector<double>();
  std::vector<double> momentum =
      c.stored(*c.json().find("momentum")->as_string()).to_vector<double>();
  std::vector<double> metrics =
      c.stored(*c.json().find("metrics")->as_string()).to_vector<double>();
  const io::Json& o = *c.json().find("attrs");
  Schedules all;
  std::unique_ptr<optim::ReduceLROnPlateau> plateau;
  if (c.op == "ReduceLROnPlateau")
    plateau = std::make_unique<optim::ReduceLROnPlateau>(
        opt, optim::ReduceLROnPlateauOptions{.mode = c.s("mode", "min"),
                                             .factor = c.d("factor"),
                                             .patience = c.i("patience"),
                                             .threshold = c.d("threshold", 1e-4),
                                             .threshold_mode = c.s("threshold_mode", "rel"),
                                             .cooldown = c.i("cooldown"),
                                             .min_lr = c.d("min_lr")});
  else
    make_schedule(c.op, o, opt, all);
  for (size_t k = 0; k < lr.size(); ++k) {
    if (k == 10 && !plateau) {  // saved, rebuilt and loaded, it resumes where it was
      StateDict schedule = all.back()->state_dict(), optimizer = opt.state_dict();
      all.clear();
      make_schedule(c.op, o, opt, all);
      all.back()->load_state_dict(schedule);
      opt.load_state_dict(optimizer);
    }
    EXPECT_NEAR(opt.lr(), lr[k], 1e-15 + 1e-12 * std::abs(lr[k])) << "step " << k;
    EXPECT_NEAR(opt.option("momentum"), momentum[k], 1e-12) << "step " << k;
    if (k == 20) break;
    plateau ? plateau->step(metrics[k]) : all.back()->step();
  }
}

void check_lbfgs(const Case& c) {
  Param x(c.list_of("params")[0].clone());
  optim::LBFGS opt({x}, {.lr = c.d("lr"),
                         .max_iter = c.i("max_iter"),
                         .history_size = c.i("history_size", 100),
                         .line_search_fn = c.s("line_search_fn")});
  std::vector<Tensor> steps;
  for (int k = 0; k < 5; ++k) {
    opt.step([&] {
      opt.zero_grad();
      Tensor v = x, head = v.narrow(0, 0, 4), tail = v.narrow(0, 1, 4);
      Tensor y = ((tail - head.square()).square() * 100.0 + (1.0 - head).square()).sum();
      y.backward();
      return y;
    });
    steps.push_back(x.value().detach());
    opt.load_state_dict(opt.state_dict());
  }
  EXPECT_TRUE(matches(stack(steps), c.list_of("outputs")[0], c.rtol(), c.atol()));
}

void check_averaging(const Case& c) {
  nn::Linear net(3, 2);
  net.to(float64);
  optim::AveragedModelOptions o;
  if (c.has("decay")) o.decay = c.d("decay");
  optim::AveragedModel<nn::Linear> avg(net, o);
  std::vector<Tensor> after;
  for (int64_t k = 0; k < 6; ++k) {
    net.weight.assign_(c.t(0).select(0, k));
    avg.update_parameters(net);
    after.push_back(avg.module.weight.value().detach());
  }
  EXPECT_TRUE(matches(stack(after), c.list_of("outputs")[0], c.rtol(), c.atol()));
  EXPECT_EQ(avg.n_averaged().item<int64_t>(), 6);
}

// Optimizers that no other library gives numbers for: p = {1, -2} after two steps with the
// gradients {0.5, -1} and {-0.25, -1}, worked out by hand.
struct TwoSteps {
  const char* name;  ///< in recipes
  double lr;
  std::array<double, 2> want;
};
constexpr TwoSteps kTwoSteps[] = {
    {"sgd", 0.5, {0.875, -1.0}},  // 1 - 0.25 + 0.125; -2 + 0.5 + 0.5
    {"lion", 0.25, {1.0, -1.5}},  // signs: +, then 0.9 * 0.005 - 0.025 < 0; -, -
    {"adamw8bit", 0.5, {0.3593564934892313, -0.9825500099750026}},  // of AdamW: few elements
};

TEST(OptimByHand, TwoSteps) {
  for (const TwoSteps& c : kTwoSteps) {
    const optim::OptimizerRow& row = optim::optimizers().at(c.name);
    Param p(tensor({1.0, -2.0}, float64));
    const std::shared_ptr<void> options = row.options->make();
    const auto opt = row.make({p}, options.get());
    opt->set_lr(c.lr);
    for (const double first : {0.5, -0.25}) {
      p.set_grad(tensor({first, -1.0}, float64));
      opt->step();
    }
    const std::vector<double> got = p.value().to_vector<double>();
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(got[i], c.want[i], 1e-12) << c.name;
  }
}

class GoldenOptim : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Optim, GoldenOptim, ::testing::ValuesIn(cases_of("optim")), case_name);

TEST_P(GoldenOptim, Matches) { check_optim_case(GetParam()); }

}  // namespace

std::set<std::string> optimizers_by_hand() {
  std::set<std::string> types;
  for (const TwoSteps& c : kTwoSteps) types.insert(optim::optimizers().at(c.name).type);
  return types;
}

void check_optim_case(Case c) {
  if (c.json().find("base_lr")) return check_schedule(c);
  if (c.op == "LBFGS") return check_lbfgs(c);
  if (c.op == "AveragedModel") return check_averaging(c);
  if (c.op == "clip_grad_norm_") {
    std::vector<Param> p;
    for (size_t i = 0; i < c.n(); ++i) {
      p.push_back(Param(c.t(i) * 0.0));
      p.back().set_grad(c.t(i));
    }
    Ts got = {optim::clip_grad_norm_(p, c.d("max_norm"), c.d("norm_type"))};
    Ts want = c.list_of("outputs");
    for (const Param& q : p) got.push_back(q.grad());
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(matches(got[i], want[i], c.rtol(), c.atol())) << i;
    return;
  }
  // A second set of parameters is stepped by a traced step, a third one is saved and loaded.
  std::vector<Param> params = params_of(c), traced = params_of(c), moved = params_of(c);
  Ts grads = c.list_of("step_grads");
  auto opt = make_optimizer(c, groups_of(c, params)),
       in_trace = make_optimizer(c, groups_of(c, traced)),
       other = make_optimizer(c, groups_of(c, moved));
  ASSERT_TRUE(opt) << c.op;
  int64_t late = *c.json().find("late")->as_int();
  int compared = 0;
  for (int64_t t = 1; t <= 20; ++t) {
    for (size_t i = 0; i < params.size(); ++i) {
      if (i == 1 && t <= late) continue;
      for (auto* set : {&params, &traced, &moved})
        (*set)[i].set_grad(grads[i].select(0, t - 1).clone());
    }
    opt->step();
    run(*trace(
            [&](std::span<const Tensor>) {
              in_trace->step();
              return std::vector<Tensor>();
            },
            {}, Captures::refuse),
        {});
    if (t == 7) {
      auto fresh = make_optimizer(c, groups_of(c, moved));
      fresh->load_state_dict(other->state_dict());
      other = std::move(fresh);
    }
    other->step();
    for (size_t i = 0; i < params.size(); ++i) {
      EXPECT_TRUE(matches(traced[i].value().detach(), params[i].value().detach(), 0, 0))
          << "traced, step " << t;
      EXPECT_TRUE(matches(moved[i].value().detach(), params[i].value().detach(), 0, 0))
          << "loaded, step " << t;
    }
    const io::Json* after = c.json().find("after")->find(std::to_string(t));
    if (!after) continue;
    for (size_t i = 0; i < params.size(); ++i, ++compared)
      EXPECT_TRUE(matches(params[i].value().detach(),
                          c.stored(*(*after->as_array())[i].as_string()), c.rtol(), c.atol()))
          << "parameter " << i << " after step " << t;
  }
  EXPECT_EQ(compared, 6);
}

}  // namespace tandem::golden
