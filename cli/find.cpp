// SPDX-License-Identifier: Apache-2.0
// `tandem lr-find recipe.yaml` and `tandem find-batch recipe.yaml`: the searches of the Trainer on
// a recipe's model and data. The model is not trained, and no files are written.
#include <fmt/core.h>
#include <unistd.h>

#include <cmath>

#include "cli/commands_internal.h"
#include "tandem/init.h"
#include "tandem/recipe/recipe.h"
#include "tandem/runs/run_record.h"

namespace tandem::cli {
namespace {

struct FindOptions {
  std::string recipe;
  std::vector<std::string> overrides;
  train::LRFindOptions rate;
  train::FindBatchOptions batch;
  double memory_gb = 0;
  bool json = false;
};

io::Json numbers(const std::vector<double>& v) {
  io::Json::Array a;
  for (double x : v) a.push_back(x);
  return a;
}

int lr_find_verb(const FindOptions& o) {
  init();
  const recipe::Recipe r = recipe::Recipe::load(o.recipe, o.overrides);
  train::LRFindResult found;
  with_recipe(r, recipe::Registry::standard(), [&](recipe::RecipeParts& parts) {
    found = parts.trainer.lr_find(parts.data.train, o.rate);
  });
  if (o.json) {
    fmt::print("{}\n", io::Json(io::Json::Object{{"suggestion", found.suggestion},
                                                 {"lowest", found.lowest},
                                                 {"diverged", found.diverged},
                                                 {"rates", numbers(found.rates)},
                                                 {"losses", numbers(found.losses)}})
                           .dump());
    return found.suggestion > 0 ? 0 : 1;
  }
  runs::Series line{"loss", {}, found.losses};
  for (double rate : found.rates) line.x.push_back(std::log10(rate));
  fmt::print("{}\n", runs::terminal_plot("loss by the learning rate's power of ten", {line}, 72, 14,
                                         ::isatty(1) != 0));
  if (found.suggestion <= 0) {
    fmt::print(
        "the loss falls nowhere: check the data, or try other rates with --start and --end\n");
    return 1;
  }
  fmt::print(
      "steepest fall at {:.2g}, lowest loss at {:.2g}{}\n  tandem train {} optim.lr={:.2g}\n",
      found.suggestion, found.lowest, found.diverged ? ", then it blows up" : "", o.recipe,
      found.suggestion);
  return 0;
}

int find_batch_verb(const FindOptions& o) {
  init();
  const recipe::Recipe r = recipe::Recipe::load(o.recipe, o.overrides);
  const recipe::Registry registry = recipe::Registry::standard();
  train::FindBatchOptions options = o.batch;
  options.memory_limit = static_cast<int64_t>(o.memory_gb * 1e9);
  train::FindBatchResult found;
  with_recipe(r, registry, [&](recipe::RecipeParts& parts) {
    found = parts.trainer.find_batch(
        [&](int64_t size) {
          recipe::Recipe one = r;
          io::set_yaml(one.root, "data.batch", std::to_string(size));
          std::optional<data::AnyPipeline> train;
          with_recipe(one, registry, [&](recipe::RecipeParts& q) { train = q.data.train; });
          return *train;
        },
        options);
  });
  if (o.json) {
    io::Json::Array tried;
    for (const train::BatchFigures& b : found.tried)
      tried.push_back(io::Json::Object{{"size", b.size},
                                       {"seconds", b.seconds},
                                       {"samples_per_second", b.samples_per_second},
                                       {"peak_bytes", b.peak_bytes}});
    fmt::print("{}\n", io::Json(io::Json::Object{{"suggestion", found.suggestion},
                                                 {"largest", found.largest},
                                                 {"fastest", found.fastest},
                                                 {"reason", found.reason},
                                                 {"tried", std::move(tried)}})
                           .dump());
    return found.largest > 0 ? 0 : 1;
  }
  fmt::print("{:>8}{:>12}{:>14}{:>12}\n", "batch", "ms a step", "samples/s", "peak MB");
  for (const train::BatchFigures& b : found.tried)
    fmt::print("{:>8}{:>12.2f}{:>14.0f}{:>12.0f}\n", b.size, 1e3 * b.seconds, b.samples_per_second,
               static_cast<double>(b.peak_bytes) / 1e6);
  fmt::print("ended: {}\n", found.reason);
  if (found.largest == 0) return 1;
  fmt::print("fastest {}, the smallest within 5 % of it {}\n  tandem train {} data.batch={}\n",
             found.fastest, found.suggestion, o.recipe, found.suggestion);
  return 0;
}

}  // namespace

void add_find(CLI::App& app, int& code) {
  auto rate = std::make_shared<FindOptions>();
  CLI::App* lr =
      app.add_subcommand("lr-find",
                         "Sweep the learning rate of a recipe, draw the loss, suggest one\n\n"
                         "  tandem lr-find recipes/digits-mlp.yaml");
  lr->add_option("recipe", rate->recipe, "A YAML file")->required();
  lr->add_option("overrides", rate->overrides, "Changes, such as optim.type=sgd");
  lr->add_option("--start", rate->rate.start, "Smallest rate")->capture_default_str();
  lr->add_option("--end", rate->rate.end, "Largest rate")->capture_default_str();
  lr->add_option("--steps", rate->rate.steps, "Batches")->capture_default_str();
  lr->add_flag("--json", rate->json, "One line of JSON on stdout");
  lr->callback([rate, &code] { code = lr_find_verb(*rate); });

  auto size = std::make_shared<FindOptions>();
  CLI::App* batch =
      app.add_subcommand("find-batch",
                         "Double the batch size of a recipe until memory or time says stop\n\n"
                         "  tandem find-batch recipes/mnist-convnet.yaml --largest 4096");
  batch->add_option("recipe", size->recipe, "A YAML file")->required();
  batch->add_option("overrides", size->overrides, "Changes, such as trainer.precision=bf16");
  batch->add_option("--smallest", size->batch.start, "Begin here")->capture_default_str();
  batch->add_option("--largest", size->batch.largest, "End here")->capture_default_str();
  batch->add_option("--seconds", size->batch.max_seconds, "For all of it")->capture_default_str();
  batch->add_option("--memory-gb", size->memory_gb,
                    "Of tensors; 0: four fifths of what the system has free");
  batch->add_flag("--json", size->json, "One line of JSON on stdout");
  batch->callback([size, &code] { code = find_batch_verb(*size); });
}

}  // namespace tandem::cli
