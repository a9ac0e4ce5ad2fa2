// SPDX-License-Identifier: Apache-2.0
// The rate of stochastic weight averaging.
#pragma once

#include "tandem/optim/scheduler.h"

namespace tandem::optim {

struct SWALROptions {
  PerGroup swa_lr = 0.05;
  int64_t anneal_epochs = 10;
  std::string anneal_strategy = "cos";  ///< or "linear"
};

/// From the present rate to swa_lr over anneal_epochs, then constant (Izmailov et al. 2018).
class TD_API SWALR : public LRScheduler {
 public:
  SWALR(Optimizer& optimizer, SWALROptions options);

 protected:
  double next(size_t group, double lr) override;

 private:
  double anneal(double t) const;
  SWALROptions o_;
  std::vector<double> swa_lr_;
};

}  // namespace tandem::optim
