// SPDX-License-Identifier: Apache-2.0
// `tandem train recipe.yaml [a.b=v ...]` and `tandem recipe check recipe.yaml`: runs as YAML, and
// the judge of the figures that they promise. Which run goes on is --resume's business.
#include <fmt/core.h>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <ctime>
#include <numeric>

#include "cli/commands_internal.h"
#include "cli/progress_internal.h"
#include "cli/recipe_internal.h"
#include "tandem/base/folder.h"
#include "tandem/init.h"
#include "tandem/train/run_record.h"

namespace tandem::cli {
namespace {

std::string default_folder(const train::Recipe& r) {
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

// Is the process that made it still at work, on this machine?
bool at_work(const train::RunRecord& run) {
  const io::Json *pid = run.environment.find("pid"), *host = run.environment.find("host");
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  if (!pid || !pid->as_int() || !host || !host->as_string() || *host->as_string() != name)
    return false;
  return *pid->as_int() != ::getpid() &&
         (::kill(static_cast<pid_t>(*pid->as_int()), 0) == 0 || errno == EPERM);
}

// The newest run of that recipe under runs/ that did not come to its end; "" when there is none.
std::string unfinished(const std::string& name) {
  std::string found;
  if (!file_exists("runs")) return found;
  for (const train::RunRecord& run : train::list_runs("runs"))
    if (run.name == name && run.status != "done" && !(run.status == "running" && at_work(run)))
      found = run.folder;
  return found;
}

struct TrainOptions {
  std::string recipe, folder, resume;
  std::vector<std::string> overrides;
  bool json = false, quiet = false, print = false;
};

bool holds_run(const std::string& folder) {
  return file_exists(folder + "/STATUS") || file_exists(folder + "/checkpoints");
}

// Where the run lies. --run FOLDER goes on when something is there; --resume says it more clearly.
std::string folder_of(const TrainOptions& o, const train::Recipe& r) {
  if (o.resume.empty() || (o.resume == "auto" && !o.folder.empty()))
    return o.folder.empty() ? default_folder(r) : o.folder;
  if (o.resume == "auto") {
    const std::string found = unfinished(r.name());
    return found.empty() ? default_folder(r) : found;
  }
  if (o.resume == "none") {
    const std::string folder = o.folder.empty() ? default_folder(r) : o.folder;
    TD_CHECK(!holds_run(folder), Value,
             "'{}' holds a run already, and --resume none does not go on with it\nTake another "
             "folder, or leave --resume none out.",
             folder);
    return folder;
  }
  TD_CHECK(o.folder.empty() || o.folder == o.resume, Value,
           "--resume {} and --run {} name two folders\nOne of them is enough.", o.resume, o.folder);
  TD_CHECK(holds_run(o.resume), Io,
           "there is no run in '{}' to go on with\n`tandem runs list` shows those there are; "
           "--resume takes auto, none or a folder.",
           o.resume);
  return o.resume;
}

int train_verb(const TrainOptions& o) {
  init();
  train::Recipe r = train::Recipe::load(o.recipe, o.overrides);
  if (o.print) {
    fmt::print("{}", r.root.dump());
    return 0;
  }
  const std::string folder = folder_of(o, r);
  if (!o.json && !o.quiet)
    fmt::print(stderr, "{} in '{}'{}\n", r.name(), folder,
               holds_run(folder) ? ", which is there and goes on" : "");
  const train::RecipeRun run = run_recipe(r, recipe_registry(), folder, !o.json && !o.quiet);
  if (o.json) {
    io::Json::Object j{{"folder", folder},
                       {"steps", run.fit.steps},
                       {"epochs", run.fit.epochs},
                       {"reason", run.fit.reason},
                       {"seconds", run.fit.seconds}};
    for (const auto& logs : {run.fit.logs, run.test})
      for (const auto& [name, value] : logs) j.emplace_back(name, value);
    fmt::print("{}\n", io::Json(std::move(j)).dump());
  } else {
    fmt::print("{}: {} steps in {} ({})\n", r.name(), run.fit.steps, duration(run.fit.seconds),
               run.fit.reason);
    for (const auto& logs : {run.fit.logs, run.test})
      for (const auto& [name, value] : logs) fmt::print("  {:<16} {:.5g}\n", name, value);
    if (run.fit.interrupted)
      fmt::print("saved; `tandem train {} --resume {}` goes on\n", o.recipe, folder);
  }
  return run.fit.interrupted ? 130 : 0;
}

// Mean (or each) of the seeds against the promise; 3 when it is not met.
int check_verb(const TrainOptions& o) {
  init();
  train::Recipe r = train::Recipe::load(o.recipe, o.overrides);
  const train::Expectation want = expectation_of(r);
  std::vector<double> values;
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t seed : want.seeds) {
    train::Recipe one = r;
    io::set_yaml(one.root, "seed", std::to_string(seed));
    const train::RecipeRun run = run_recipe(one, recipe_registry(), "", !o.quiet);
    if (run.fit.interrupted) return 130;
    double value = train::find_log(run.test, want.metric);
    if (std::isnan(value)) value = train::find_log(run.fit.logs, want.metric);
    TD_CHECK(!std::isnan(value), Value, "{}: '{}' was not measured", r.file, want.metric);
    values.push_back(value);
    fmt::print("{} seed {}: {} {:.4f}, {:.1f} s\n", r.name(), seed, want.metric, value,
               run.fit.seconds);
    std::fflush(stdout);
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
      static_cast<double>(values.size());
  const double mean =
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  double spread = 0;
  for (double v : values) spread += (v - mean) * (v - mean);
  spread = values.size() > 1 ? std::sqrt(spread / static_cast<double>(values.size() - 1)) : 0;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const bool met = !(want.at_least && (want.each ? *low : mean) < *want.at_least) &&
                   !(want.at_most && (want.each ? *high : mean) > *want.at_most);
  const bool in_time = want.budget_seconds <= 0 || seconds <= want.budget_seconds;
  fmt::print("{}: {} {:.4f} +- {:.4f} over {} seed(s), wanted {}{} {}; {:.1f} s a seed{}: {}\n",
             r.name(), want.metric, mean, spread, values.size(), want.each ? "each " : "",
             want.at_least ? "at least" : "at most", want.at_least ? *want.at_least : *want.at_most,
             seconds, want.budget_seconds > 0 ? fmt::format(" of {:.0f}", want.budget_seconds) : "",
             met && in_time ? "met"
             : met          ? "TOO SLOW"
                            : "NOT MET");
  return met && in_time ? 0 : 3;
}

}  // namespace

void add_train(CLI::App& app, int& code) {
  auto o = std::make_shared<TrainOptions>();
  CLI::App* verb =
      app.add_subcommand("train", "Train what a recipe says: tandem train recipes/digits-mlp.yaml");
  verb->add_option("recipe", o->recipe, "A YAML file")->required();
  verb->add_option("overrides", o->overrides, "Changes, such as optim.lr=1e-3 trainer.epochs=5");
  verb->add_option("--run", o->folder, "Folder of the run; one that is there goes on");
  verb->add_option("--resume", o->resume,
                   "auto: the newest unfinished run of this recipe under runs/, else a new one; "
                   "none: never an old one; or the folder of a run");
  verb->add_flag("--json", o->json, "One line of JSON on stdout");
  verb->add_flag("--quiet", o->quiet, "No progress");
  verb->add_flag("--print", o->print, "Show the recipe with its changes and stop");
  verb->callback([o, &code] { code = train_verb(*o); });
}

void add_recipe(CLI::App& app, int& code) {
  auto o = std::make_shared<TrainOptions>();
  CLI::App* verb = app.add_subcommand("recipe", "Recipes and the figures that they promise");
  verb->require_subcommand(1);
  CLI::App* check = verb->add_subcommand("check", "Run a recipe's seeds and judge its `expect:`");
  check->add_option("recipe", o->recipe, "A YAML file")->required();
  check->add_option("overrides", o->overrides, "Changes, such as expect.seeds=[0]");
  check->add_flag("--quiet", o->quiet, "No progress");
  check->callback([o, &code] { code = check_verb(*o); });
}

}  // namespace tandem::cli
