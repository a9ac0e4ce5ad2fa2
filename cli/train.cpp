// SPDX-License-Identifier: Apache-2.0
// `tandem train recipe.yaml [a.b=v ...]` and `tandem recipe check recipe.yaml`: runs as YAML, and
// the judge of the figures that they promise.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <numeric>

#include "cli/commands_internal.h"
#include "cli/progress_internal.h"
#include "cli/recipe_internal.h"
#include "tandem/init.h"

namespace tandem::cli {
namespace {

std::string default_folder(const train::Recipe& r) {
  char time[32];
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::strftime(time, sizeof time, "%Y%m%d-%H%M%S", &local);
  return fmt::format("runs/{}-{}", r.name(), time);
}

struct TrainOptions {
  std::string recipe, folder;
  std::vector<std::string> overrides;
  bool json = false, quiet = false, print = false;
};

int train_verb(const TrainOptions& o) {
  init();
  train::Recipe r = train::Recipe::load(o.recipe, o.overrides);
  if (o.print) {
    fmt::print("{}", r.root.dump());
    return 0;
  }
  const std::string folder = o.folder.empty() ? default_folder(r) : o.folder;
  if (!o.json && !o.quiet) fmt::print(stderr, "{} in '{}'\n", r.name(), folder);
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
      fmt::print("saved; `tandem train {} --run {}` goes on\n", o.recipe, folder);
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
