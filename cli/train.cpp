// SPDX-License-Identifier: Apache-2.0
// `tandem train recipe.yaml [a.b=v ...]` trains what a recipe says (--resume selects the run to
// resume); `tandem recipe check recipe.yaml` compares it with the figures that it promises.
#include <fmt/core.h>

#include "cli/commands_internal.h"
#include "cli/progress_internal.h"
#include "tandem/dist/environment.h"
#include "tandem/dist/launch.h"
#include "tandem/init.h"
#include "tandem/io/json.h"
#include "tandem/recipe/component_rows.h"
#include "tandem/recipe/train.h"

namespace tandem::cli {
namespace {

struct TrainArguments {
  std::string recipe, folder, resume, device;
  std::vector<std::string> overrides;
  bool json = false, quiet = false, print = false;
};

int train_verb(TrainArguments o) {
  init();
  leave_no_empty_runs();
  if (!o.device.empty()) o.overrides.push_back("trainer.device=" + o.device);
  recipe::Recipe r = recipe::Recipe::load(o.recipe, o.overrides);
  if (o.print) {
    fmt::print("{}", r.root.dump());
    return 0;
  }
  if (const auto ended =
          distributed::launch_self({.ranks = recipe::ranks_of_machine(r), .prefix = false}))
    return ended->code;
  const bool main = !recipe::is_data_parallel(r) || distributed::find_place().rank == 0;
  recipe::TrainOptions options{.folder = o.folder, .resume = o.resume};
  options.progress = !o.json && !o.quiet && main;
  const std::string folder = options.folder = recipe::run_folder(r, options);
  options.resume = "";
  if (options.progress)
    fmt::print(stderr, "{} in '{}'{}\n", r.name(), folder,
               recipe::holds_checkpoint(folder) ? ", which is resumed"
               : recipe::holds_run(folder)      ? ", which starts over: it has no checkpoint"
                                                : "");
  const recipe::RecipeRun run = recipe::train(r, options);
  if (!main) return run.fit.interrupted ? 130 : 0;
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
      fmt::print("saved; `tandem train {} --resume {}` resumes it\n", o.recipe, folder);
  }
  return run.fit.interrupted ? 130 : 0;
}

// The mean (or each value) of the seeds against the promise; 3 when it is not met.
int check_verb(const TrainArguments& o) {
  init();
  leave_no_empty_runs();
  const recipe::Recipe r = recipe::Recipe::load(o.recipe, o.overrides);
  const recipe::Expectation want = expectation_of(r);
  const recipe::CheckResult c =
      recipe::check(r, !o.quiet, [&](int64_t seed, double value, double seconds) {
        fmt::print("{} seed {}: {} {:.4f}, {:.1f} s\n", r.name(), seed, want.metric, value,
                   seconds);
        std::fflush(stdout);
      });
  if (c.interrupted) return 130;
  fmt::print("{}: {} {:.4f} +- {:.4f} over {} seed(s), expected {}{} {}; {:.1f} s a seed{}: {}\n",
             r.name(), want.metric, c.mean, c.deviation, c.values.size(), want.each ? "each " : "",
             want.at_least ? "at least" : "at most", want.at_least ? *want.at_least : *want.at_most,
             c.seconds,
             want.budget_seconds > 0 ? fmt::format(" of {:.0f}", want.budget_seconds) : "",
             !c.met       ? "NOT MET"
             : !c.in_time ? "TOO SLOW"
                          : "met");
  return c.met && c.in_time ? 0 : 3;
}

}  // namespace

void add_train(CLI::App& app, int& code) {
  auto o = std::make_shared<TrainArguments>();
  CLI::App* verb =
      app.add_subcommand("train", "Train a recipe: tandem train recipes/digits-mlp.yaml");
  verb->add_option("recipe", o->recipe, "A YAML file")->required();
  verb->add_option("overrides", o->overrides, "Changes, such as optim.lr=1e-3 trainer.epochs=5");
  verb->add_option("--run", o->folder, "Folder of the run; a run that it holds is resumed");
  verb->add_option("--resume", o->resume,
                   "auto: the newest unfinished run of this recipe under runs/, else a new one; "
                   "none: always a new one; or a run folder");
  verb->add_option(
      "--device", o->device,
      "trainer.device: cpu, cuda, cuda:1, opencl; auto: a CUDA GPU where there is one");
  verb->add_flag("--json", o->json, "One line of JSON on stdout");
  verb->add_flag("--quiet", o->quiet, "No progress");
  verb->add_flag("--print", o->print, "Print the recipe with its changes and stop");
  verb->callback([o, &code] { code = train_verb(*o); });
}

void add_recipe(CLI::App& app, int& code) {
  auto o = std::make_shared<TrainArguments>();
  CLI::App* verb =
      app.add_subcommand("recipe", "Check recipes against the figures that they promise");
  verb->require_subcommand(1);
  CLI::App* check = verb->add_subcommand(
      "check", "Train a recipe once per seed and compare the results with its `expect:`");
  check->add_option("recipe", o->recipe, "A YAML file")->required();
  check->add_option("overrides", o->overrides, "Changes, such as expect.seeds=[0]");
  check->add_flag("--quiet", o->quiet, "No progress");
  check->callback([o, &code] { code = check_verb(*o); });
  verb->add_subcommand("reference", "What recipes may say, as Markdown: docs/recipe-reference.md")
      ->callback([&code] {
        fmt::print("{}", recipe::recipe_reference());
        code = 0;
      });
}

}  // namespace tandem::cli
