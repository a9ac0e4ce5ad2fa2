// SPDX-License-Identifier: Apache-2.0
// Cosines: one, and one after the other.
#pragma once

#include "tandem/optim/scheduler.h"

namespace tandem::optim {

struct CosineAnnealingLROptions {
  int64_t T_max = 1;
  double eta_min = 0;
};
struct CosineAnnealingWarmRestartsOptions {
  int64_t T_0 = 1, T_mult = 1;
  double eta_min = 0;
  template <class V>
  void fields(V& v) {
    v("t_0", T_0,
      {.doc = "steps of the first cosine", .unit = "steps", .at_least = 1, .required = true});
    v("t_mult", T_mult, {.doc = "each cosine is this many times as long", .at_least = 1});
    v("min_lr", eta_min, {.doc = "the lowest rate"});
  }
};

/// Half a cosine from the base rate to eta_min over T_max steps.
class TD_API CosineAnnealingLR : public LRScheduler {
 public:
  CosineAnnealingLR(Optimizer& optimizer, CosineAnnealingLROptions options);

 protected:
  double next(size_t group, double lr) override;
  double closed(size_t group, double lr) override;

 private:
  CosineAnnealingLROptions o_;
};

/// Cosines that start again after T_0, T_0 T_mult, ... steps (Loshchilov and Hutter 2017).
class TD_API CosineAnnealingWarmRestarts : public LRScheduler {
 public:
  CosineAnnealingWarmRestarts(Optimizer& optimizer, CosineAnnealingWarmRestartsOptions options);
  void step() override;
  /// At a fraction of an epoch, e.g. epoch + batch / batches.
  void step(double epoch);

 protected:
  double next(size_t group, double lr) override;
  std::vector<std::pair<const char*, double*>> numbers() override {
    return {{"T_cur", &t_cur_}, {"T_i", &t_i_}};
  }

 private:
  CosineAnnealingWarmRestartsOptions o_;
  double t_cur_ = 0, t_i_;
};

namespace schedule_rows {
extern TD_API const ScheduleRow cosine_restarts;
}  // namespace schedule_rows

}  // namespace tandem::optim
