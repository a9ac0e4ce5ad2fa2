// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/schedules/factors.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tandem/base/error.h"
#include "tandem/optim/schedule_state_internal.h"

namespace tandem::optim {

using detail::want;

#define TD_MAKE(name, ...)                                \
  name::name(Optimizer& optimizer, name##Options options) \
      : LRScheduler(optimizer), o_(std::move(options)) {  \
    type_ = #name;                                        \
    __VA_ARGS__;                                          \
    start();                                              \
  }

TD_MAKE(StepLR, want(o_.step_size > 0, type_, "step_size > 0", double(o_.step_size)))
double StepLR::next(size_t, double lr) {
  return epoch_ == 0 || epoch_ % o_.step_size != 0 ? lr : lr * o_.gamma;
}
double StepLR::closed(size_t g, double) {
  return base(g) * std::pow(o_.gamma, static_cast<double>(epoch_ / o_.step_size));
}

TD_MAKE(MultiStepLR, std::sort(o_.milestones.begin(), o_.milestones.end()))
double MultiStepLR::next(size_t, double lr) {
  auto n = std::count(o_.milestones.begin(), o_.milestones.end(), epoch_);
  return n ? lr * std::pow(o_.gamma, static_cast<double>(n)) : lr;
}
double MultiStepLR::closed(size_t g, double) {
  auto n =
      std::upper_bound(o_.milestones.begin(), o_.milestones.end(), epoch_) - o_.milestones.begin();
  return base(g) * std::pow(o_.gamma, static_cast<double>(n));
}

TD_MAKE(ConstantLR, want(o_.factor >= 0 && o_.factor <= 1, type_, "factor in 0..1", o_.factor))
double ConstantLR::next(size_t, double lr) {
  if (epoch_ == 0) return lr * o_.factor;
  return epoch_ == o_.total_iters ? lr * (1.0 / o_.factor) : lr;
}
double ConstantLR::closed(size_t g, double) {
  return base(g) * (o_.factor + static_cast<double>(epoch_ >= o_.total_iters) * (1 - o_.factor));
}

TD_MAKE(LinearLR, want(o_.start_factor > 0 && o_.start_factor <= 1, type_,
                       "start_factor above 0 and at most 1", o_.start_factor);
        want(o_.end_factor >= 0 && o_.end_factor <= 1, type_, "end_factor in 0..1", o_.end_factor);
        want(o_.total_iters > 0, type_, "total_iters > 0", double(o_.total_iters)))
double LinearLR::next(size_t, double lr) {
  if (epoch_ == 0) return lr * o_.start_factor;
  if (epoch_ > o_.total_iters) return lr;
  double rise = o_.end_factor - o_.start_factor, n = static_cast<double>(o_.total_iters);
  return lr * (1 + rise / (n * o_.start_factor + (epoch() - 1) * rise));
}
double LinearLR::closed(size_t g, double) {
  double done = std::min(epoch(), static_cast<double>(o_.total_iters));
  return base(g) * (o_.start_factor +
                    (o_.end_factor - o_.start_factor) * done / static_cast<double>(o_.total_iters));
}

TD_MAKE(ExponentialLR)
double ExponentialLR::next(size_t, double lr) { return epoch_ == 0 ? lr : lr * o_.gamma; }
double ExponentialLR::closed(size_t g, double) { return base(g) * std::pow(o_.gamma, epoch()); }

TD_MAKE(PolynomialLR, want(o_.total_iters > 0, type_, "total_iters > 0", double(o_.total_iters)))
double PolynomialLR::next(size_t, double lr) {
  if (epoch_ == 0 || epoch_ > o_.total_iters) return lr;
  double n = static_cast<double>(o_.total_iters);
  return lr * std::pow((1 - epoch() / n) / (1 - (epoch() - 1) / n), o_.power);
}
double PolynomialLR::closed(size_t g, double) {
  double n = static_cast<double>(o_.total_iters);
  return base(g) * std::pow(1 - std::min(n, epoch()) / n, o_.power);
}

TD_MAKE(LambdaLR, TD_CHECK(o_.lr_lambda, Value, "LambdaLR expects a function lr_lambda"))
double LambdaLR::next(size_t g, double) { return base(g) * o_.lr_lambda(epoch_); }
double LambdaLR::closed(size_t g, double lr) { return next(g, lr); }

TD_MAKE(MultiplicativeLR,
        TD_CHECK(o_.lr_lambda, Value, "MultiplicativeLR expects a function lr_lambda"))
double MultiplicativeLR::next(size_t, double lr) {
  return epoch_ > 0 ? lr * o_.lr_lambda(epoch_) : lr;
}
double MultiplicativeLR::closed(size_t g, double lr) { return next(g, lr); }

TD_MAKE(NoamLR,
        want(o_.model_size > 0 && o_.warmup_steps > 0, type_, "model_size and warmup_steps > 0",
             double(std::min(o_.model_size, o_.warmup_steps))))
double NoamLR::next(size_t, double) {
  double s = epoch() + 1, warm = static_cast<double>(o_.warmup_steps);
  return o_.factor / std::sqrt(static_cast<double>(o_.model_size)) *
         std::min(1 / std::sqrt(s), s * std::pow(warm, -1.5));
}
double NoamLR::closed(size_t g, double lr) { return next(g, lr); }
#undef TD_MAKE

// ---- by name

namespace {

// A factor of the base rate that knows its end, its warm-up in it: shape(0) .. shape(1).
template <class F>
std::unique_ptr<LRScheduler> shaped(const ScheduleRun& run, F shape) {
  const int64_t warmup = run.warmup, after = run.after();
  return std::make_unique<LambdaLR>(
      run.optimizer, LambdaLROptions{[=](int64_t step) -> double {
        if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
        return shape(
            std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(after)));
      }});
}
std::unique_ptr<LRScheduler> make_constant(const ScheduleRun& run, const NoScheduleOptions&) {
  return shaped(run, [](double) { return 1.0; });
}
std::unique_ptr<LRScheduler> make_cosine(const ScheduleRun& run, const ToMinimumOptions& o) {
  const double low = o.min_lr / run.optimizer.lr();
  return shaped(run, [low](double t) {
    return low + (1 - low) * 0.5 * (1 + std::cos(std::numbers::pi * t));
  });
}
std::unique_ptr<LRScheduler> make_linear(const ScheduleRun& run, const ToMinimumOptions& o) {
  const double low = o.min_lr / run.optimizer.lr();
  return shaped(run, [low](double t) { return 1 + (low - 1) * t; });
}
std::unique_ptr<LRScheduler> make_step(const ScheduleRun& run, const StepLROptions& o) {
  return std::make_unique<StepLR>(run.optimizer, o);
}
std::unique_ptr<LRScheduler> make_multistep(const ScheduleRun& run, const MultiStepLROptions& o) {
  return std::make_unique<MultiStepLR>(run.optimizer, o);
}
std::unique_ptr<LRScheduler> make_exponential(const ScheduleRun& run,
                                              const ExponentialLROptions& o) {
  return std::make_unique<StepLR>(run.optimizer,
                                  StepLROptions{.step_size = run.unit, .gamma = o.gamma});
}
std::unique_ptr<LRScheduler> make_polynomial(const ScheduleRun& run, PolynomialLROptions o) {
  o.total_iters = run.after();
  return std::make_unique<PolynomialLR>(run.optimizer, o);
}
std::unique_ptr<LRScheduler> make_noam(const ScheduleRun& run, NoamLROptions o) {
  o.warmup_steps = std::max<int64_t>(run.warmup, 1);
  return std::make_unique<NoamLR>(run.optimizer, o);
}

}  // namespace

namespace schedule_rows {
using enum ScheduleWarmup;
constinit const ScheduleRow constant = schedule_row<NoScheduleOptions, make_constant>(
    "constant", "The base rate.", "{type: constant}", own);
constinit const ScheduleRow cosine = schedule_row<ToMinimumOptions, make_cosine>(
    "cosine", "Half a cosine from the base rate to min_lr at the end of the run.",
    "{type: cosine, warmup_steps: 20}", own);
constinit const ScheduleRow linear = schedule_row<ToMinimumOptions, make_linear>(
    "linear", "A line from the base rate to min_lr at the end of the run.",
    "{type: linear, warmup_steps: 20}", own);
constinit const ScheduleRow step = schedule_row<StepLROptions, make_step>(
    "step", "Times gamma every step_size steps.", "{type: step, step_size: 60, gamma: 0.5}");
constinit const ScheduleRow multistep = schedule_row<MultiStepLROptions, make_multistep>(
    "multistep", "Times gamma at each milestone.",
    "{type: multistep, milestones: [1, 3], unit: epochs}");
constinit const ScheduleRow exponential = schedule_row<ExponentialLROptions, make_exponential>(
    "exponential", "Times gamma every step.", "{type: exponential, gamma: 0.5, unit: epochs}");
constinit const ScheduleRow polynomial = schedule_row<PolynomialLROptions, make_polynomial>(
    "polynomial", "(1 - step / steps)^power.", "{type: polynomial, power: 2}");
constinit const ScheduleRow noam = schedule_row<NoamLROptions, make_noam>(
    "noam",
    "factor model_size^-0.5 min(s^-0.5, s warmup_steps^-1.5), s from 1 (Vaswani et al. 2017); it "
    "does not depend on lr.",
    "{type: noam, model_size: 64, warmup_steps: 100}", own);
}  // namespace schedule_rows

}  // namespace tandem::optim
