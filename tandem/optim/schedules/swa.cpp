// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/schedules/swa.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tandem/base/error.h"
#include "tandem/optim/schedule_state_internal.h"

namespace tandem::optim {

using detail::want;

SWALR::SWALR(Optimizer& optimizer, SWALROptions o) : LRScheduler(optimizer), o_(std::move(o)) {
  type_ = "SWALR";
  want(o_.anneal_epochs >= 0, type_, "anneal_epochs >= 0", static_cast<double>(o_.anneal_epochs));
  TD_CHECK(o_.anneal_strategy == "cos" || o_.anneal_strategy == "linear", Value,
           "SWALR knows anneal_strategy \"cos\" and \"linear\", got \"{}\"", o_.anneal_strategy);
  swa_lr_ = spread(o_.swa_lr, "swa_lr");
  start();
}

double SWALR::anneal(double t) const {
  return o_.anneal_strategy == "cos" ? (1 - std::cos(std::numbers::pi * t)) / 2 : t;
}

double SWALR::next(size_t g, double lr) {
  double step = static_cast<double>(step_count_ - 1),
         n = static_cast<double>(std::max<int64_t>(1, o_.anneal_epochs));
  if (o_.anneal_epochs == 0) step = std::max(1.0, step);
  double before = anneal(std::clamp((step - 1) / n, 0.0, 1.0));
  double now = anneal(std::clamp(step / n, 0.0, 1.0));
  double first = before == 1 ? swa_lr_[g] : (lr - before * swa_lr_[g]) / (1 - before);
  return swa_lr_[g] * now + first * (1 - now);
}

}  // namespace tandem::optim
