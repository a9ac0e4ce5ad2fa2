// SPDX-License-Identifier: Apache-2.0
// Schedules that move rate and momentum up and down.
#pragma once

#include "tandem/optim/scheduler.h"

namespace tandem::optim {

struct CyclicLROptions {
  PerGroup base_lr = 1e-3, max_lr = 1e-2;
  int64_t step_size_up = 2000;
  int64_t step_size_down = -1;                  ///< -1: as up
  std::string mode = "triangular";              ///< or "triangular2", "exp_range"
  double gamma = 1;                             ///< of "exp_range": gamma^steps
  std::function<double(double)> scale_fn = {};  ///< instead of mode
  std::string scale_mode = "cycle";             ///< what scale_fn is given: "cycle" or "iterations"
  bool cycle_momentum = true;
  PerGroup base_momentum = 0.8, max_momentum = 0.9;
  template <class V>
  void fields(V& v) {
    base_lr.field(v, "base_lr", {.doc = "the lowest rate; default: lr / 10"});
    max_lr.field(v, "max_lr", {.doc = "the highest rate; default: lr"});
    v("step_size_up", step_size_up, {.doc = "steps upwards", .unit = "steps", .at_least = 1});
    v("step_size_down", step_size_down, {.doc = "steps downwards; -1: as up", .unit = "steps"});
    v("mode", mode,
      {.doc = "how the height changes", .one_of = "triangular triangular2 exp_range"});
    v("gamma", gamma, {.doc = "of exp_range: gamma^steps"});
    v("cycle_momentum", cycle_momentum,
      {.doc = "momentum the other way round; default: where the optimizer has one"});
  }
};
struct OneCycleLROptions {
  PerGroup max_lr = 1e-2;
  int64_t total_steps = 0;  ///< or both of the next
  int64_t epochs = 0, steps_per_epoch = 0;
  double pct_start = 0.3;
  std::string anneal_strategy = "cos";  ///< or "linear"
  bool cycle_momentum = true;
  PerGroup base_momentum = 0.85, max_momentum = 0.95;
  double div_factor = 25, final_div_factor = 1e4;
  bool three_phase = false;
  template <class V>
  void fields(V& v) {
    max_lr.field(v, "max_lr", {.doc = "the highest rate; default: lr"});
    v("pct_start", pct_start, {.doc = "share of the steps upwards", .at_least = 0, .at_most = 1});
    v("anneal", anneal_strategy, {.doc = "shape of the way", .one_of = "cos linear"});
    v("cycle_momentum", cycle_momentum,
      {.doc = "momentum the other way round; default: where the optimizer has one"});
    base_momentum.field(v, "base_momentum", {.doc = "the lowest momentum"});
    max_momentum.field(v, "max_momentum", {.doc = "the highest momentum"});
    v("div_factor", div_factor, {.doc = "max_lr / the first rate"});
    v("final_div_factor", final_div_factor, {.doc = "the first rate / the last"});
    v("three_phase", three_phase, {.doc = "down to the first rate before the rest"});
  }
};

/// Between base_lr and max_lr in triangles (Smith 2017), momentum the other way round.
class TD_API CyclicLR : public LRScheduler {
 public:
  CyclicLR(Optimizer& optimizer, CyclicLROptions options);

 protected:
  double next(size_t group, double lr) override;

 private:
  CyclicLROptions o_;
  std::vector<double> low_, high_, low_momentum_, high_momentum_;
};

/// Up to max_lr and down to nearly 0 once (Smith and Topin 2018), momentum the other way round.
class TD_API OneCycleLR : public LRScheduler {
 public:
  OneCycleLR(Optimizer& optimizer, OneCycleLROptions options);

 protected:
  double next(size_t group, double lr) override;

 private:
  OneCycleLROptions o_;
  std::vector<double> max_lr_, low_momentum_, high_momentum_;
};

namespace schedule_rows {
extern TD_API const ScheduleRow cyclic, onecycle;
}  // namespace schedule_rows

}  // namespace tandem::optim
