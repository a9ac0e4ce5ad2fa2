// SPDX-License-Identifier: Apache-2.0
// `tandem train recipe.yaml [a.b=v ...]` and `tandem recipe check recipe.yaml`: runs as YAML, and
// the judge of the figures that they promise.
#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <numeric>

#include "cli/commands_internal.h"
#include "cli/progress_internal.h"
#include "cli/recipe_internal.h"
#include "tandem/init.h"
#include "tandem/models/gpt.h"
#include "tandem/models/image_nets.h"
#include "tandem/models/mlp.h"
#include "tandem/models/text_cnn.h"

namespace tandem::cli {
namespace {

using train::Batch;
using train::Options;
using train::RecipeModel;
using Info = std::map<std::string, int64_t>;

int64_t info_of(const Info& info, const char* key, Options& o) {
  const auto it = info.find(key);
  if (it == info.end()) o.fail("type", fmt::format("this data does not say its {}", key));
  return it->second;
}

// output = net(batch[0]), target = batch[1].
template <class Net>
RecipeModel supervised(std::shared_ptr<Net> net) {
  return {net, [net](const Batch& b) { return std::pair<Tensor, Tensor>((*net)(b[0]), b[1]); }};
}

RecipeModel gpt(Options& o, const Info& info) {
  auto net =
      std::make_shared<models::GPT>(models::GPTOptions{.vocabulary = info_of(info, "vocabulary", o),
                                                       .context = info_of(info, "context", o),
                                                       .layers = o.whole("layers", 4),
                                                       .heads = o.whole("heads", 4),
                                                       .width = o.whole("width", 128),
                                                       .dropout = o.number("dropout", 0.0),
                                                       .bias = o.flag("bias", false)});
  // One row per letter: the loss and the metrics see [n * t, vocabulary].
  return {net, [net](const Batch& b) {
            return std::pair<Tensor, Tensor>((*net)(b[0]).flatten(0, 1), b[1].flatten());
          }};
}

RecipeModel text_cnn(Options& o, const Info& info) {
  models::TextCNNOptions m{.vocabulary = info_of(info, "vocabulary", o),
                           .classes = info_of(info, "classes", o),
                           .width = o.whole("width", 300),
                           .filters = o.whole("filters", 100),
                           .dropout = o.number("dropout", 0.5)};
  m.windows.clear();
  for (double w : o.numbers("windows", std::vector<double>{3, 4, 5}))
    m.windows.push_back(static_cast<int64_t>(w));
  return supervised(std::make_shared<models::TextCNN>(m));
}

RecipeModel mlp(Options& o, const Info& info) {
  std::vector<int64_t> sizes{info_of(info, "features", o)};
  for (double n : o.numbers("hidden", std::vector<double>{128}))
    sizes.push_back(static_cast<int64_t>(n));
  sizes.push_back(info_of(info, "classes", o));
  return supervised(std::make_shared<models::MLP>(sizes, o.number("dropout", 0.0)));
}

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

// Mean over the seeds against the promise; 3 when it is not met.
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
  bool met = !(want.at_least && mean < *want.at_least) && !(want.at_most && mean > *want.at_most);
  const bool in_time = want.budget_seconds <= 0 || seconds <= want.budget_seconds;
  fmt::print("{}: {} {:.4f} +- {:.4f} over {} seed(s), wanted {} {}; {:.1f} s a seed{}: {}\n",
             r.name(), want.metric, mean, spread, values.size(),
             want.at_least ? "at least" : "at most", want.at_least ? *want.at_least : *want.at_most,
             seconds, want.budget_seconds > 0 ? fmt::format(" of {:.0f}", want.budget_seconds) : "",
             met && in_time ? "met"
             : met          ? "TOO SLOW"
                            : "NOT MET");
  return met && in_time ? 0 : 3;
}

}  // namespace

train::Registry recipe_registry() {
  train::Registry r = train::Registry::standard();
  add_data_components(r);
  r.model["mlp"] = mlp;
  r.model["lenet5"] = [](Options& o, const Info& info) {
    return supervised(std::make_shared<models::LeNet5>(info_of(info, "classes", o)));
  };
  r.model["keras_convnet"] = [](Options& o, const Info& info) {
    return supervised(std::make_shared<models::KerasConvNet>(info_of(info, "classes", o),
                                                             info_of(info, "size", o)));
  };
  r.model["digits_cnn"] = [](Options& o, const Info& info) {
    return supervised(
        std::make_shared<models::DigitsCNN>(info_of(info, "classes", o), o.whole("width", 16)));
  };
  r.model["gpt"] = gpt;
  r.model["text_cnn"] = text_cnn;
  return r;
}

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
