// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/optimizers.h"

namespace tandem::optim {
namespace {

constexpr OptimizerRow kOptimizers[] = {
#define X(name) optimizer_row<name, name##Options>(#name),
    TD_FOR_EACH_OPTIMIZER(X)
#undef X
        optimizer_row<LBFGS, LBFGSOptions>("LBFGS", true),
};

}  // namespace

Registry<OptimizerRow>& optimizers() {
  static Registry<OptimizerRow> all("optimizer", std::span<const OptimizerRow>(kOptimizers));
  return all;
}

}  // namespace tandem::optim
