// SPDX-License-Identifier: Apache-2.0
// The parts of a recipe that are this library's own: optimizer, schedule, trainer,
// compression. Between recipe.cpp and optim.cpp, optimizers.cpp, params.cpp,
// compress.cpp, trainer.cpp, losses.cpp, samples.cpp.
#pragma once

#include "tandem/nn/prune.h"
#include "tandem/optim/optimizers.h"
#include "tandem/optim/schedules.h"
#include "tandem/quant/qat.h"
#include "tandem/recipe/recipe.h"
#include "tandem/train/callback_table.h"
#include "tandem/train/distill.h"

namespace tandem::recipe {

/// `optim:`, all but the parameters.
struct RecipeOptimizer {
  std::function<std::unique_ptr<optim::Optimizer>(optim::ParamList)> make;
  double weight_decay = 0;
  /// Its numbers: key and what the optimizer calls it, such as "betas" and "beta1".
  std::vector<std::pair<std::string, std::string>> numbers = {};
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
  std::shared_ptr<train::Callback> plateau;
};
/// The optimizers of a run with their schedules: one, without a name, or those of
/// RecipeModel::optimizers.
struct RecipeOptimizers {
  std::vector<std::unique_ptr<optim::Optimizer>> made;
  std::vector<train::NamedOptimizer> named;
  std::vector<RecipeSchedule> schedules;
  std::shared_ptr<train::Callback> plateau;
  /// Of each: where its parts stand in the recipe, and RecipeOptimizer::numbers.
  struct Keys {
    std::string optim, sched;
    std::vector<std::pair<std::string, std::string>> numbers;
  };
  std::vector<Keys> keys;
};
/// From `optim:`.
RecipeOptimizers make_optimizers(Options& o, const RecipeModel& model);
/// What `sched:` may name.
const tandem::Registry<optim::ScheduleRow>& recipe_schedules();
/// `total` updates in all, `per_epoch` in an epoch.
RecipeSchedule make_schedule(Options& o, optim::Optimizer& optimizer, int64_t total,
                             int64_t per_epoch);
/// From `sched:`, one for each optimizer.
void make_schedules(Options& o, RecipeOptimizers& of, int64_t total, int64_t per_epoch);

/// `trainer:`: the options of the Trainer, and what a run of a recipe has besides.
struct TrainerPart {
  struct EarlyStop {
    train::EarlyStoppingOptions options = {.patience = 3, .restore_best_weights = true};
    template <class V>
    void fields(V& v) {
      options.fields(v);
    }
  };
  train::TrainerOptions options = {.metrics = {"accuracy"}};
  std::string device = "cpu";
  int64_t devices = 1;
  std::optional<EarlyStop> early_stop = {};
  std::vector<train::ChosenCallback> callbacks = {};
  bool report = true;
  int64_t histograms = 0;
  int64_t samples = 0;

  template <class V>
  void fields(V& v) {
    options.fields(v);
    v("device", device,
      {.doc = "where the model is and its steps run: cpu, cuda, cuda:1, opencl and so on; auto: "
              "the first GPU of CUDA, or cpu where there is none",
       .resumable = true});
    v("devices", devices,
      {.doc = "ranks of this machine, of which each gets a device, that `tandem train` starts as "
              "`tandem launch -n` does; -1: as many as there are devices of that kind. Under a "
              "launcher its own number counts",
       .at_least = -1,
       .at_most = 1024,
       .resumable = true});
    v("early_stop", early_stop, {.doc = "ends the run when a log has not got better"});
    v("callbacks", callbacks, {.doc = "further callbacks, in this order"});
    v("report", report,
      {.doc = "write report.html, with figures of every layer", .resumable = true});
    v("histograms", histograms,
      {.doc = "epochs between histograms of the weights for TensorBoard; 0: none",
       .at_least = 0,
       .resumable = true});
    v("samples", samples,
      {.doc = "images that a model which generates them draws at each epoch's end, from the same "
              "random numbers, into samples/ and for TensorBoard; 0: none",
       .at_least = 0,
       .resumable = true});
  }
};
TrainerPart read_trainer(Options& o, bool progress);

/// `distill:`.
struct DistillPart {
  std::string teacher = "", weights = "last";
  train::DistillOptions options = {};
  template <class V>
  void fields(V& v) {
    v("teacher", teacher, {.doc = "the run whose model teaches", .required = true});
    v("weights", weights,
      {.doc = "the teacher's: last, or best by its run's monitor", .one_of = "last best"});
    options.fields(v);
  }
};
/// What makes a net smaller while it is trained.
struct CompressPart {
  std::optional<quant::QatOptions> quant = {};
  std::optional<nn::prune::ScheduleOptions> prune = {};
  std::optional<DistillPart> distill = {};
};
/// Reads these parts to their end.
CompressPart read_compress(Options& root);
/// Prepares the net, which has its first weights. `training`: for a Trainer with the callbacks;
/// else for weights of a run, which it takes as they are in its folder.
void prepare_compressed(const CompressPart& part, nn::Module& net, bool training);
/// The step with what a teacher adds to its loss.
train::StepFunction taught(const CompressPart& part, nn::Module& net, train::StepFunction step);
/// They start, freeze and prune when the parts say so.
std::vector<std::shared_ptr<train::Callback>> compress_callbacks(const CompressPart& part);

/// Draws images at each epoch's end into `folder`/samples and its event files; no random number of
/// the training is used up. Throws Value, naming the key, for a model that draws none.
std::shared_ptr<train::Callback> recipe_samples(const Options& o, const RecipeModel& model,
                                                const DataFacts& facts, const std::string& folder,
                                                int64_t count);

/// The rows of train::losses().
void add_losses(Registry& r);

}  // namespace tandem::recipe
