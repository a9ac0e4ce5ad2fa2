// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/schedules/cycles.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/optim/schedule_state_internal.h"

namespace tandem::optim {

using detail::cosine;
using detail::linear;
using detail::momentum_of;
using detail::want;

CyclicLR::CyclicLR(Optimizer& optimizer, CyclicLROptions o)
    : LRScheduler(optimizer), o_(std::move(o)) {
  type_ = "CyclicLR";
  want(o_.step_size_up > 0, type_, "step_size_up > 0", static_cast<double>(o_.step_size_up));
  TD_CHECK(
      o_.scale_fn || o_.mode == "triangular" || o_.mode == "triangular2" || o_.mode == "exp_range",
      Value, "CyclicLR knows the modes triangular, triangular2 and exp_range, got \"{}\"", o_.mode);
  TD_CHECK(o_.scale_mode == "cycle" || o_.scale_mode == "iterations", Value,
           "CyclicLR knows the scale modes cycle and iterations, got \"{}\"", o_.scale_mode);
  if (o_.step_size_down < 0) o_.step_size_down = o_.step_size_up;
  low_ = spread(o_.base_lr, "base_lr");
  high_ = spread(o_.max_lr, "max_lr");
  if (!o_.scale_fn) {
    double gamma = o_.gamma;
    o_.scale_mode = o_.mode == "exp_range" ? "iterations" : "cycle";
    if (o_.mode == "triangular2")
      o_.scale_fn = [](double x) { return std::pow(2.0, 1 - x); };
    else if (o_.mode == "exp_range")
      o_.scale_fn = [gamma](double x) { return std::pow(gamma, x); };
    else
      o_.scale_fn = [](double) { return 1.0; };
  }
  if (o_.cycle_momentum) {
    momentum_of(optimizer, type_);
    low_momentum_ = spread(o_.base_momentum, "base_momentum");
    high_momentum_ = spread(o_.max_momentum, "max_momentum");
  }
  for (size_t g = 0; g < low_.size(); ++g) optimizer.set_lr(low_[g], g);
  start();
  base_lrs_ = low_;
}

double CyclicLR::next(size_t g, double) {
  double up = static_cast<double>(o_.step_size_up),
         total = up + static_cast<double>(o_.step_size_down), ratio = up / total;
  double cycle = std::floor(1 + epoch() / total), x = 1 + epoch() / total - cycle;
  double height = x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
  height *= o_.scale_fn(o_.scale_mode == "cycle" ? cycle : epoch());
  if (o_.cycle_momentum)
    optimizer_->set_option(momentum_of(*optimizer_, type_),
                           high_momentum_[g] - (high_momentum_[g] - low_momentum_[g]) * height, g);
  return low_[g] + (high_[g] - low_[g]) * height;
}

OneCycleLR::OneCycleLR(Optimizer& optimizer, OneCycleLROptions o)
    : LRScheduler(optimizer), o_(std::move(o)) {
  type_ = "OneCycleLR";
  if (o_.total_steps == 0) o_.total_steps = o_.epochs * o_.steps_per_epoch;
  TD_CHECK(o_.total_steps > 0, Value,
           "OneCycleLR expects total_steps, or epochs and steps_per_epoch, above 0");
  want(o_.pct_start >= 0 && o_.pct_start <= 1, type_, "pct_start in 0..1", o_.pct_start);
  TD_CHECK(o_.anneal_strategy == "cos" || o_.anneal_strategy == "linear", Value,
           "OneCycleLR knows anneal_strategy \"cos\" and \"linear\", got \"{}\"",
           o_.anneal_strategy);
  max_lr_ = spread(o_.max_lr, "max_lr");
  for (size_t g = 0; g < max_lr_.size(); ++g) {
    base_lrs_[g] = max_lr_[g] / o_.div_factor;
    optimizer.set_initial_lr(base_lrs_[g], g);
  }
  if (o_.cycle_momentum) {
    momentum_of(optimizer, type_);
    low_momentum_ = spread(o_.base_momentum, "base_momentum");
    high_momentum_ = spread(o_.max_momentum, "max_momentum");
  }
  start();
}

double OneCycleLR::next(size_t g, double) {
  TD_CHECK(epoch_ <= o_.total_steps, Value, "OneCycleLR: step {} of {}\nGive it more total_steps.",
           epoch_, o_.total_steps);
  struct Phase {
    double end, from, to;
    int from_momentum, to_momentum;  // 0 low, 1 high
  };
  double n = static_cast<double>(o_.total_steps), low = base(g), top = max_lr_[g],
         least = low / o_.final_div_factor;
  std::vector<Phase> phases = {{o_.pct_start * n - 1, low, top, 1, 0}};
  if (o_.three_phase) {
    phases.push_back({2 * o_.pct_start * n - 2, top, low, 0, 1});
    phases.push_back({n - 1, low, least, 1, 1});
  } else {
    phases.push_back({n - 1, top, least, 0, 1});
  }
  double begin = 0;
  size_t k = 0;
  while (k + 1 < phases.size() && epoch() > phases[k].end) begin = phases[k++].end;
  const Phase& p = phases[k];
  auto anneal = o_.anneal_strategy == "cos" ? cosine : linear;
  double part = (epoch() - begin) / (p.end - begin);
  if (o_.cycle_momentum) {
    double ends[] = {low_momentum_[g], high_momentum_[g]};
    optimizer_->set_option(momentum_of(*optimizer_, type_),
                           anneal(ends[p.from_momentum], ends[p.to_momentum], part), g);
  }
  return anneal(p.from, p.to, part);
}

namespace {

bool has_momentum(const Optimizer& o) { return o.has_option("momentum") || o.has_option("beta1"); }

std::unique_ptr<LRScheduler> make_cyclic(const ScheduleRun& run, const CyclicLROptions& o) {
  return std::make_unique<CyclicLR>(run.optimizer, o);
}
void prepare_cyclic(const ScheduleRun& run, void* options) {
  auto& o = *static_cast<CyclicLROptions*>(options);
  o.base_lr = run.optimizer.lr() / 10;
  o.max_lr = run.optimizer.lr();
  o.cycle_momentum = has_momentum(run.optimizer);
}
std::unique_ptr<LRScheduler> make_one_cycle(const ScheduleRun& run, OneCycleLROptions o) {
  o.total_steps = std::max<int64_t>(run.steps, 1);
  return std::make_unique<OneCycleLR>(run.optimizer, o);
}
void prepare_one_cycle(const ScheduleRun& run, void* options) {
  auto& o = *static_cast<OneCycleLROptions*>(options);
  o.max_lr = run.optimizer.lr();
  o.cycle_momentum = has_momentum(run.optimizer);
}
constexpr ScheduleRow with(ScheduleRow row, void (*prepare)(const ScheduleRun&, void*)) {
  row.prepare = prepare;
  return row;
}

}  // namespace

namespace schedule_rows {
constinit const ScheduleRow cyclic =
    with(schedule_row<CyclicLROptions, make_cyclic>(
             "cyclic", "Between base_lr and max_lr in triangles (Smith 2017).",
             "{type: cyclic, base_lr: 1e-3, max_lr: 3e-3, step_size_up: 30}"),
         prepare_cyclic);
constinit const ScheduleRow onecycle =
    with(schedule_row<OneCycleLROptions, make_one_cycle>(
             "onecycle", "Up to max_lr and down to nearly 0 once (Smith and Topin 2018).",
             "{type: onecycle, max_lr: 0.01}", ScheduleWarmup::refused),
         prepare_one_cycle);
}  // namespace schedule_rows

}  // namespace tandem::optim
