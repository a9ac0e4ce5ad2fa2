// SPDX-License-Identifier: Apache-2.0
// What one does with a recipe and its runs, a call each: train, evaluate, check. The verbs of the
// tool are these.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/recipe/recipe.h"

namespace tandem::recipe {

struct TrainOptions {
  std::string folder = "";  ///< of the run; empty: a new one, runs/<name>-<time>
  /// Empty: resume the run that `folder` holds, if it holds one. "auto": the newest unfinished run
  /// of this recipe under runs/, else a new one. "none": refuse a folder that holds a run. Else the
  /// folder of the run to resume.
  std::string resume = "";
  bool keep = true;  ///< false: write no files
  bool progress = true;
  std::vector<std::shared_ptr<train::Callback>> callbacks = {};
};
/// The folder that train() would use; rank 0's, where several ranks train it. Throws Value and Io
/// for options that contradict what is there.
TD_API std::string run_folder(const Recipe& recipe, const TrainOptions& options);
/// Does the recipe train one net on all ranks of a job? (There are several, and trainer.strategy is
/// not none.) Rank 0 then writes the run's folder, tests and exports.
TD_API bool is_data_parallel(const Recipe& recipe);
/// How many ranks of this machine train the recipe (trainer.devices), for launch_self(). Throws
/// Value for a number that cannot be, and for devices that are not there.
TD_API int ranks_of_machine(const Recipe& recipe);
/// Does the folder hold a run, finished or not?
TD_API bool holds_run(const std::string& folder);
/// Does it hold a checkpoint, from which train() resumes it? Without one the run starts over.
TD_API bool holds_checkpoint(const std::string& folder);

/// Train what the recipe says; evaluates on its test data, where there is some. Throws Value for a
/// wrong key, naming the nearest right one and its line.
TD_API RecipeRun train(const Recipe& recipe, const TrainOptions& options = {},
                       const Registry& registry = Registry::standard());

struct EvaluateOptions {
  std::string split = "";                   ///< test, val or train; empty: the first there is
  std::string weights = "last";             ///< or best, by the run's monitor
  std::vector<std::string> overrides = {};  ///< changes to the recipe, as "data.root=photos"
  /// Called with the model's output for each batch.
  std::function<void(const Tensor& output)> outputs = {};
};
/// The model of a run over its data: gives the values, and renews evaluation.json and report.html
/// unless the run is being trained.
/// Throws Io for a folder without a run.
TD_API train::Logs evaluate(const std::string& run, const EvaluateOptions& options = {},
                            const Registry& registry = Registry::standard(false));

/// How the seeds of a recipe did beside its `expect:`.
struct CheckResult {
  Expectation wanted;
  std::vector<double> values;  ///< of each seed
  double mean = 0, deviation = 0;
  double seconds = 0;  ///< of a seed
  bool met = false, in_time = false;
  bool interrupted = false;  ///< the rest was not measured
};
/// Train the recipe once for each seed of its `expect:`; `seen` is told each seed's value and time.
TD_API CheckResult
check(const Recipe& recipe, bool progress = true,
      const std::function<void(int64_t seed, double value, double seconds)>& seen = {});

}  // namespace tandem::recipe
