// SPDX-License-Identifier: Apache-2.0
// `optim:` and `sched:` of a recipe.
#include <cmath>

#include "tandem/base/nearest.h"
#include "tandem/optim/combined_schedules.h"
#include "tandem/train/callbacks.h"
#include "tandem/train/recipe_parts_internal.h"

namespace tandem::train {
namespace {

template <class Map>
[[noreturn]] void no_such(const Map& map, Options& o, const std::string& type, const char* what,
                          const std::string& more = "") {
  std::vector<std::string> names;
  std::string all;
  for (const auto& [name, f] : map) {
    names.push_back(name);
    all += (all.empty() ? "" : ", ") + name;
  }
  const std::string near = nearest_word(type, names);
  o.fail("type", fmt::format("there is no {} '{}'{}{}", what, type,
                             near.empty() ? ". There are " + all
                                          : fmt::format(", did you mean '{}'?", near),
                             more));
}

struct FromRecipe : SettingVisitor {
  Options& o;
  double decay = 0;
  explicit FromRecipe(Options& o) : o(o) {}
  void see(const char* name, double& v) override {
    v = o.number(name, v);
    if (name == std::string_view("weight_decay")) decay = v;
  }
  void see(const char* name, bool& v) override { v = o.flag(name, v); }
  void see(const char* name, int64_t& v) override { v = o.whole(name, v); }
  void see(const char* name, std::string& v) override { v = o.text(name, v); }
  void see(const char* name, std::span<double> v) override {
    const std::vector<double> got = o.numbers(name, std::vector<double>(v.begin(), v.end()));
    if (got.size() != v.size())
      o.fail(name, fmt::format("wants {} numbers, got {}", v.size(), got.size()));
    std::copy(got.begin(), got.end(), v.begin());
  }
  void see(const char* name, std::optional<double>& v) override {
    const double got = o.number(name, v.value_or(0));
    if (got != 0) v = got;
  }
};

}  // namespace

RecipeOptimizer read_optimizer(Options& o) {
  const std::string type = o.text("type");
  const auto it = optimizer_table().find(type);
  if (it == optimizer_table().end())
    no_such(optimizer_table(), o, type, "optimizer",
            type == "lbfgs" ? " LBFGS calls its loss several times a step: it is for loops in code."
                            : "");
  FromRecipe settings(o);
  MakeOptimizer make = it->second.read(settings);
  return {std::move(make), settings.decay};
}

namespace {

struct Lengths {
  optim::Optimizer& optimizer;
  int64_t steps;   ///< the schedule's end
  int64_t warmup;  ///< updates
  int64_t unit;    ///< updates: 1, or those of an epoch
  int64_t after() const { return std::max<int64_t>(steps - warmup, 1); }
};
using MakeSchedule = std::function<std::unique_ptr<optim::LRScheduler>(Options&, const Lengths&)>;

int64_t above_zero(Options& o, const char* key, std::optional<int64_t> otherwise = {}) {
  const int64_t v = o.whole(key, otherwise);
  if (v < 1) o.fail(key, fmt::format("wants 1 or more, got {}", v));
  return v;
}

// The shapes that know their end: a factor of the base rate, their warm-up in it.
std::unique_ptr<optim::LRScheduler> shaped(const Lengths& l, std::function<double(double)> shape) {
  return std::make_unique<optim::LambdaLR>(
      l.optimizer, optim::LambdaLROptions{[=](int64_t step) {
        if (step < l.warmup)
          return static_cast<double>(step + 1) / static_cast<double>(l.warmup + 1);
        return shape(
            std::min(1.0, static_cast<double>(step - l.warmup) / static_cast<double>(l.after())));
      }});
}
double low_of(Options& o, const Lengths& l) { return o.number("min_lr", 0.0) / l.optimizer.lr(); }

const std::map<std::string, MakeSchedule>& shapes() {
  static const std::map<std::string, MakeSchedule> all = {
      {"constant",
       [](Options&, const Lengths& l) { return shaped(l, [](double) { return 1.0; }); }},
      {"cosine",
       [](Options& o, const Lengths& l) {
         const double low = low_of(o, l);
         return shaped(
             l, [low](double t) { return low + (1 - low) * 0.5 * (1 + std::cos(M_PI * t)); });
       }},
      {"linear",
       [](Options& o, const Lengths& l) {
         const double low = low_of(o, l);
         return shaped(l, [low](double t) { return 1 + (low - 1) * t; });
       }},
  };
  return all;
}

// Those of optim/schedules.h; a warm-up goes before.
const std::map<std::string, MakeSchedule>& schedules() {
  static const std::map<std::string, MakeSchedule> all = {
      {"step",
       [](Options& o, const Lengths& l) {
         return std::make_unique<optim::StepLR>(
             l.optimizer, optim::StepLROptions{.step_size = above_zero(o, "step_size") * l.unit,
                                               .gamma = o.number("gamma", 0.1)});
       }},
      {"multistep",
       [](Options& o, const Lengths& l) {
         std::vector<int64_t> milestones;
         for (double m : o.numbers("milestones", {}))
           milestones.push_back(static_cast<int64_t>(m) * l.unit);
         return std::make_unique<optim::MultiStepLR>(
             l.optimizer, optim::MultiStepLROptions{.milestones = std::move(milestones),
                                                    .gamma = o.number("gamma", 0.1)});
       }},
      {"exponential",
       [](Options& o, const Lengths& l) {
         return std::make_unique<optim::StepLR>(
             l.optimizer,
             optim::StepLROptions{.step_size = l.unit, .gamma = o.number("gamma", 0.9)});
       }},
      {"polynomial",
       [](Options& o, const Lengths& l) {
         return std::make_unique<optim::PolynomialLR>(
             l.optimizer,
             optim::PolynomialLROptions{.total_iters = l.after(), .power = o.number("power", 1.0)});
       }},
      {"cosine_restarts",
       [](Options& o, const Lengths& l) {
         return std::make_unique<optim::CosineAnnealingWarmRestarts>(
             l.optimizer,
             optim::CosineAnnealingWarmRestartsOptions{.T_0 = above_zero(o, "t_0") * l.unit,
                                                       .T_mult = above_zero(o, "t_mult", 1),
                                                       .eta_min = o.number("min_lr", 0.0)});
       }},
      {"onecycle",
       [](Options& o, const Lengths& l) {
         const bool momentum =
             l.optimizer.has_option("momentum") || l.optimizer.has_option("beta1");
         return std::make_unique<optim::OneCycleLR>(
             l.optimizer,
             optim::OneCycleLROptions{.max_lr = o.number("max_lr", l.optimizer.lr()),
                                      .total_steps = std::max<int64_t>(l.steps, 1),
                                      .pct_start = o.number("pct_start", 0.3),
                                      .anneal_strategy = o.text("anneal", "cos"),
                                      .cycle_momentum = o.flag("cycle_momentum", momentum),
                                      .base_momentum = o.number("base_momentum", 0.85),
                                      .max_momentum = o.number("max_momentum", 0.95),
                                      .div_factor = o.number("div_factor", 25.0),
                                      .final_div_factor = o.number("final_div_factor", 1e4),
                                      .three_phase = o.flag("three_phase", false)});
       }},
      {"cyclic",
       [](Options& o, const Lengths& l) {
         const bool momentum =
             l.optimizer.has_option("momentum") || l.optimizer.has_option("beta1");
         const int64_t up = above_zero(o, "step_size_up", 2000);
         const int64_t down = above_zero(o, "step_size_down", up);
         return std::make_unique<optim::CyclicLR>(
             l.optimizer,
             optim::CyclicLROptions{.base_lr = o.number("base_lr", l.optimizer.lr() / 10),
                                    .max_lr = o.number("max_lr", l.optimizer.lr()),
                                    .step_size_up = up * l.unit,
                                    .step_size_down = down * l.unit,
                                    .mode = o.text("mode", "triangular"),
                                    .gamma = o.number("gamma", 1.0),
                                    .cycle_momentum = o.flag("cycle_momentum", momentum)});
       }},
      {"noam",
       [](Options& o, const Lengths& l) {
         return std::make_unique<optim::NoamLR>(
             l.optimizer, optim::NoamLROptions{.model_size = above_zero(o, "model_size", 512),
                                               .warmup_steps = std::max<int64_t>(l.warmup, 1),
                                               .factor = o.number("factor", 1.0)});
       }},
  };
  return all;
}

}  // namespace

RecipeSchedule make_schedule(Options& o, optim::Optimizer& optimizer, int64_t total,
                             int64_t per_epoch) {
  RecipeSchedule s;
  if (!o.has("type")) {
    o.finish();
    return s;
  }
  const std::string type = o.text("type"), unit = o.text("unit", "steps");
  if (unit != "steps" && unit != "epochs")
    o.fail("unit", fmt::format("wants steps or epochs, got '{}'", unit));
  Lengths l{optimizer, o.whole("steps", total), o.whole("warmup_steps", 0),
            unit == "epochs" ? std::max<int64_t>(per_epoch, 1) : 1};
  if (l.warmup < 0) o.fail("warmup_steps", fmt::format("wants 0 or more, got {}", l.warmup));
  const bool own_warmup = type == "noam";
  if (type == "onecycle" && l.warmup > 0)
    o.fail("warmup_steps", "onecycle warms up by itself, over pct_start of its steps");
  if (const auto it = shapes().find(type); it != shapes().end()) {
    s.parts.push_back(it->second(o, l));
    o.finish();
    return s;
  }
  const optim::LinearLROptions rise{.start_factor = 1 / static_cast<double>(l.warmup + 1),
                                    .end_factor = 1,
                                    .total_iters = l.warmup};
  if (type == "plateau") {
    s.plateau = std::make_shared<ReduceLROnPlateau>(
        ReduceLROnPlateauOptions{.monitor = o.text("monitor", "val/loss"),
                                 .factor = o.number("factor", 0.1),
                                 .patience = o.whole("patience", 10),
                                 .mode = o.text("mode", "auto"),
                                 .min_delta = o.number("min_delta", 1e-4),
                                 .cooldown = o.whole("cooldown", 0),
                                 .min_lr = o.number("min_lr", 0.0)});
    if (l.warmup > 0) s.parts.push_back(std::make_unique<optim::LinearLR>(optimizer, rise));
    o.finish();
    return s;
  }
  const auto it = schedules().find(type);
  if (it == schedules().end()) {
    auto all = schedules();
    all.insert(shapes().begin(), shapes().end());
    all["plateau"] = {};
    no_such(all, o, type, "schedule");
  }
  s.parts.push_back(it->second(o, l));
  o.finish();
  if (l.warmup > 0 && !own_warmup) {
    optim::LRScheduler* after = s.parts.back().get();
    s.parts.push_back(std::make_unique<optim::WarmupLR>(
        optimizer, *after,
        optim::WarmupLROptions{.warmup_steps = l.warmup, .start_factor = rise.start_factor}));
  }
  return s;
}

}  // namespace tandem::train
