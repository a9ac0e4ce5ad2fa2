// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/schedules/cosine.h"

#include <cmath>
#include <numbers>

#include "tandem/base/error.h"
#include "tandem/optim/schedule_state_internal.h"

namespace tandem::optim {

using detail::want;

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, CosineAnnealingLROptions options)
    : LRScheduler(optimizer), o_(options) {
  type_ = "CosineAnnealingLR";
  want(o_.T_max > 0, type_, "T_max > 0", double(o_.T_max));
  start();
}
double CosineAnnealingLR::next(size_t g, double lr) {
  double n = static_cast<double>(o_.T_max);
  if (epoch_ == 0) return lr;
  if (step_count_ == 1 && epoch_ > 0) return closed(g, lr);
  if ((epoch_ - 1 - o_.T_max) % (2 * o_.T_max) == 0)
    return lr + (base(g) - o_.eta_min) * (1 - std::cos(std::numbers::pi / n)) / 2;
  return (1 + std::cos(std::numbers::pi * epoch() / n)) /
             (1 + std::cos(std::numbers::pi * (epoch() - 1) / n)) * (lr - o_.eta_min) +
         o_.eta_min;
}
double CosineAnnealingLR::closed(size_t g, double) {
  return o_.eta_min +
         (base(g) - o_.eta_min) *
             (1 + std::cos(std::numbers::pi * epoch() / static_cast<double>(o_.T_max))) / 2;
}

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(Optimizer& optimizer,
                                                         CosineAnnealingWarmRestartsOptions o)
    : LRScheduler(optimizer), o_(o), t_i_(static_cast<double>(o.T_0)) {
  type_ = "CosineAnnealingWarmRestarts";
  want(o.T_0 > 0, type_, "T_0 > 0", static_cast<double>(o.T_0));
  want(o.T_mult >= 1, type_, "T_mult >= 1", static_cast<double>(o.T_mult));
  start();
}

double CosineAnnealingWarmRestarts::next(size_t g, double) {
  return o_.eta_min + (base(g) - o_.eta_min) * (1 + std::cos(std::numbers::pi * t_cur_ / t_i_)) / 2;
}

void CosineAnnealingWarmRestarts::step() {
  if (epoch_ < 0) return step(0.0);
  ++step_count_;
  ++epoch_;
  if (++t_cur_ >= t_i_) {
    t_cur_ -= t_i_;
    t_i_ *= static_cast<double>(o_.T_mult);
  }
  set(false);
}

void CosineAnnealingWarmRestarts::step(double epoch) {
  want(epoch >= 0, type_, "an epoch >= 0", epoch);
  double first = static_cast<double>(o_.T_0), mult = static_cast<double>(o_.T_mult);
  t_i_ = first;
  t_cur_ = epoch;
  if (epoch >= first && o_.T_mult == 1) t_cur_ = std::fmod(epoch, first);
  if (epoch >= first && o_.T_mult > 1) {
    double n = std::floor(std::log(epoch / first * (mult - 1) + 1) / std::log(mult));
    t_cur_ = epoch - first * (std::pow(mult, n) - 1) / (mult - 1);
    t_i_ = first * std::pow(mult, n);
  }
  ++step_count_;
  epoch_ = static_cast<int64_t>(std::floor(epoch));
  set(false);
}

namespace {
std::unique_ptr<LRScheduler> make_restarts(const ScheduleRun& run,
                                           const CosineAnnealingWarmRestartsOptions& o) {
  return std::make_unique<CosineAnnealingWarmRestarts>(run.optimizer, o);
}
}  // namespace

namespace schedule_rows {
constinit const ScheduleRow cosine_restarts =
    schedule_row<CosineAnnealingWarmRestartsOptions, make_restarts>(
        "cosine_restarts",
        "Cosines that start again after t_0, t_0 t_mult, ... steps (Loshchilov and Hutter 2017).",
        "{type: cosine_restarts, t_0: 1, unit: epochs}");
}  // namespace schedule_rows

}  // namespace tandem::optim
