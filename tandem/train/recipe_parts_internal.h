// SPDX-License-Identifier: Apache-2.0
// The parts of a recipe that are this library's own: optimizer, schedule, trainer. Between
// recipe.cpp and recipe_optim.cpp, recipe_params.cpp, recipe_trainer.cpp, recipe_losses.cpp.
#pragma once

#include "tandem/optim/schedules.h"
#include "tandem/train/optimizer_table_internal.h"
#include "tandem/train/recipe.h"

namespace tandem::train {

/// `optim:`, all but the parameters.
struct RecipeOptimizer {
  MakeOptimizer make;
  double weight_decay = 0;
};
RecipeOptimizer read_optimizer(Options& o);

/// The parameters that are trained, in groups, and the factors of their learning rates (`decay`,
/// `decay_on`, `layer_decay`). Throws Value when all are frozen.
struct RecipeParams {
  std::vector<optim::ParamGroup> groups;
  std::vector<double> factors;
};
RecipeParams recipe_params(Options& o, const nn::Module& m, double decay);

/// `sched:`; nothing in it for a constant rate.
struct RecipeSchedule {
  std::vector<std::unique_ptr<optim::LRScheduler>> parts;  ///< the last is the one to step
  std::shared_ptr<Callback> plateau;
};
/// `total` updates in all, `per_epoch` in an epoch.
RecipeSchedule make_schedule(Options& o, optim::Optimizer& optimizer, int64_t total,
                             int64_t per_epoch);

TrainerOptions trainer_options(Options& o, bool progress);

/// Losses of PyTorch's names, and Keras's for those that PyTorch has not.
void add_losses(Registry& r);

}  // namespace tandem::train
