// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/train.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <numeric>

#include "tandem/base/clock.h"
#include "tandem/base/files/folder.h"
#include "tandem/dist/launch.h"
#include "tandem/dist/objects.h"
#include "tandem/dist/process_group.h"
#include "tandem/dist/rank_device.h"
#include "tandem/recipe/parts/parts_internal.h"
#include "tandem/runs/run_folder.h"
#include "tandem/runs/run_record.h"

namespace tandem::recipe {
namespace {

std::string new_folder(const Recipe& r) {
  char time[32];
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::strftime(time, sizeof time, "%Y%m%d-%H%M%S", &local);
  std::string folder = fmt::format("runs/{}-{}", r.name(), time);
  for (int k = 2; file_exists(folder); ++k)  // one that began in the same second
    folder = fmt::format("runs/{}-{}-{}", r.name(), time, k);
  return folder;
}

// The newest run of that recipe under runs/ that did not come to its end; "" when there is none.
std::string unfinished(const std::string& name) {
  std::string found;
  if (!file_exists("runs")) return found;
  for (const runs::RunRecord& run : runs::list_runs("runs"))
    if (run.name == name && run.status != "done" && !runs::at_work(run)) found = run.folder;
  return found;
}

constexpr const char* kJobFile = "/job";  ///< in a run's folder: the job that writes it

std::string job_line(const std::string& job, const Recipe& r) {
  return fmt::format("{} {}\n", job, r.name());
}

// The folder under runs/ in which this job has begun to train that recipe, the last one of several;
// "" when there is none.
std::string of_job(const std::string& line) {
  std::string found;
  if (!file_exists("runs")) return found;
  for (const std::string& name : list_folder("runs")) {
    const std::string file = "runs/" + name + kJobFile;
    if (file_exists(file) && read_file(file) == line) found = "runs/" + name;
  }
  return found;
}

// A job that is restarted after a fault resumes the run that it began, whatever became of others.
std::string restarted_folder(const Recipe& r, const TrainOptions& o) {
  if (!o.folder.empty()) return o.folder;
  if (!o.resume.empty() && o.resume != "auto" && o.resume != "none") return o.resume;
  const std::string job = distributed::job_id();
  const std::string found = job.empty() ? unfinished(r.name()) : of_job(job_line(job, r));
  return found.empty() ? new_folder(r) : found;
}

std::string chosen_folder(const Recipe& r, const TrainOptions& o) {
  if (distributed::restart_count() > 0) return restarted_folder(r, o);
  if (o.resume.empty() || (o.resume == "auto" && !o.folder.empty()))
    return o.folder.empty() ? new_folder(r) : o.folder;
  if (o.resume == "auto") {
    const std::string found = unfinished(r.name());
    return found.empty() ? new_folder(r) : found;
  }
  if (o.resume == "none") {
    const std::string folder = o.folder.empty() ? new_folder(r) : o.folder;
    TD_CHECK(!holds_run(folder), Value,
             "'{}' holds a run already, and --resume none does not resume it\nTake another folder, "
             "or leave --resume none out.",
             folder);
    return folder;
  }
  TD_CHECK(o.folder.empty() || o.folder == o.resume, Value,
           "--resume {} and --run {} name two folders\nOne of them is enough.", o.resume, o.folder);
  TD_CHECK(holds_run(o.resume), Io,
           "there is no run in '{}' to resume\n`tandem runs list` shows those there are; --resume "
           "takes auto, none or a folder.",
           o.resume);
  return o.resume;
}

}  // namespace

void note_job(const std::string& folder, const Recipe& recipe) {
  if (const std::string job = distributed::job_id(); !job.empty())
    write_file(folder + kJobFile, job_line(job, recipe));
}

bool holds_run(const std::string& folder) {
  return file_exists(folder + "/STATUS") || file_exists(folder + "/checkpoints");
}

bool holds_checkpoint(const std::string& folder) {
  const std::string checkpoints = folder + "/checkpoints";
  return file_exists(checkpoints) && !train::Checkpoints(checkpoints).list().empty();
}

bool is_data_parallel(const Recipe& recipe) {
  const io::Yaml* trainer = recipe.root.find("trainer");
  const io::Yaml* strategy = trainer ? trainer->find("strategy") : nullptr;
  return distributed::find_place().size > 1 && !(strategy && strategy->text == "none");
}

int ranks_of_machine(const Recipe& recipe) {
  Options root(&recipe.root, "", recipe.file);
  if (!root.has("trainer")) return 1;
  Options trainer = root.part("trainer");
  const TrainerPart part = read_trainer(trainer, false);
  if (part.devices == 1) return 1;
  if (part.devices == 0)
    trainer.fail("devices", "expects at least 1, or -1 for all that there are");
  if (part.options.strategy == train::TrainStrategy::none)
    trainer.fail("devices",
                 "with strategy none each of them would train a net of its own into the "
                 "same folder: leave one of the two out");
  return part.devices > 0 ? static_cast<int>(part.devices)
                          : distributed::count_devices(part.device);
}

std::string run_folder(const Recipe& r, const TrainOptions& o) {
  if (!is_data_parallel(r)) return chosen_folder(r, o);
  distributed::Engine& all = *distributed::world();  // rank 0 decides
  return distributed::broadcast_text(all, all.rank() == 0 ? chosen_folder(r, o) : "",
                                     "the run's folder");
}

RecipeRun train(const Recipe& recipe, const TrainOptions& options, const Registry& registry) {
  const std::string folder = options.keep ? run_folder(recipe, options) : "";
  RecipeRun run = run_recipe(recipe, registry, folder, options.progress, options.callbacks);
  run.folder = folder;
  return run;
}

train::Logs evaluate(const std::string& run, const EvaluateOptions& options,
                     const Registry& registry) {
  TD_CHECK(file_exists(run + "/recipe.yaml"), Io, "'{}' is not a run folder: it has no recipe.yaml",
           run);
  const Recipe recipe = Recipe::load(run + "/recipe.yaml", options.overrides);
  train::Logs logs;
  with_recipe(recipe, registry, [&](RecipeParts& parts) {
    load_run_weights(*parts.model.module, run, run_weights_of(options.weights));
    std::string split = options.split;
    if (split.empty()) split = parts.data.test ? "test" : parts.data.val ? "val" : "train";
    // A run that is being trained writes its own evaluation and report.
    logs = evaluate_run(parts, split, runs::run_writer(run) ? "" : run, options.outputs);
  });
  return logs;
}

CheckResult check(const Recipe& recipe, bool progress,
                  const std::function<void(int64_t, double, double)>& seen) {
  CheckResult c{.wanted = expectation_of(recipe)};
  const auto begin = Clock::now();
  for (const int64_t seed : c.wanted.seeds) {
    Recipe one = recipe;
    io::set_yaml(one.root, "seed", std::to_string(seed));
    const RecipeRun run = run_recipe(one, Registry::standard(), "", progress);
    c.interrupted = run.fit.interrupted;
    if (c.interrupted) return c;
    double value = train::find_log(run.test, c.wanted.metric);
    if (std::isnan(value)) value = train::find_log(run.fit.logs, c.wanted.metric);
    TD_CHECK(!std::isnan(value), Value, "{}: '{}' was not measured", recipe.file, c.wanted.metric);
    c.values.push_back(value);
    if (seen) seen(seed, value, run.fit.seconds);
  }
  const auto n = static_cast<double>(c.values.size());
  c.seconds = seconds_since(begin) / n;
  c.mean = std::accumulate(c.values.begin(), c.values.end(), 0.0) / n;
  double squares = 0;
  for (const double v : c.values) squares += (v - c.mean) * (v - c.mean);
  c.deviation = n > 1 ? std::sqrt(squares / (n - 1)) : 0;
  const auto [low, high] = std::minmax_element(c.values.begin(), c.values.end());
  const Expectation& want = c.wanted;
  c.met = !(want.at_least && (want.each ? *low : c.mean) < *want.at_least) &&
          !(want.at_most && (want.each ? *high : c.mean) > *want.at_most);
  c.in_time = want.budget_seconds <= 0 || c.seconds <= want.budget_seconds;
  return c;
}

}  // namespace tandem::recipe
