// SPDX-License-Identifier: Apache-2.0
// `tandem tune recipe.yaml`: many runs of a recipe with the settings that its `search:` names.
#include <fmt/core.h>

#include "cli/commands_internal.h"
#include "cli/progress_internal.h"
#include "tandem/init.h"
#include "tandem/io/json.h"
#include "tandem/recipe/tune.h"

namespace tandem::cli {
namespace {

struct TuneArguments {
  std::string recipe, folder;
  std::vector<std::string> overrides;
  int64_t trials = 0;  ///< 0: the recipe's
  bool json = false, quiet = false;
};

void print_trial(const train::Trial& t, const train::Trial* best, int64_t trials,
                 const std::string& metric, double seconds) {
  std::string told, note;
  for (const auto& [key, value] : t.values) told += fmt::format(" {}={}", key, value);
  if (t.state == "stopped")
    note = fmt::format(" (stopped at epoch {})", t.reports.size());
  else if (!t.note.empty())
    note = ": " + t.note;
  else if (best)
    note = best->number == t.number
               ? " (the best so far)"
               : fmt::format(" (best: trial {}, {:.5g})", best->number, *best->result);
  fmt::print(stderr, "trial {}/{}{}  {} {}{}  {}\n", t.number, trials, told, metric,
             t.result ? fmt::format("{:.5g}", *t.result) : t.state, note, duration(seconds));
}

// As a shell takes it; the texts of settings have no quotes.
std::string word_of(const std::string& setting) {
  return setting.find_first_of(" []{}*?&|;<>$") == std::string::npos ? setting
                                                                     : "'" + setting + "'";
}

// The command that trains the best trial: the overrides given here, then what was found.
void print_best(const recipe::TuneResult& r, const TuneArguments& o, const std::string& metric) {
  fmt::print("best: trial {}, {} {:.5g}\n  tandem train {}", r.best->number, metric,
             *r.best->result, o.recipe);
  for (const std::string& given : o.overrides) fmt::print(" {}", word_of(given));
  for (const auto& [key, value] : r.best->values) fmt::print(" {}", word_of(key + "=" + value));
  fmt::print("\n  {}/report.html\n", r.folder);
}

int tune_verb(const TuneArguments& o) {
  init();
  leave_no_empty_runs();
  const recipe::Recipe r = recipe::Recipe::load(o.recipe, o.overrides);
  const recipe::TuneSettings settings = recipe::tune_settings(r);
  recipe::TuneOptions options{.folder = o.folder, .trials = o.trials};
  if (!o.quiet && !o.json) {
    options.resumed = [](int64_t before, const std::string& journal) {
      fmt::print(stderr, "resumes after {} trials of '{}'\n", before, journal);
    };
    const int64_t trials = o.trials > 0 ? o.trials : settings.trials;
    options.ended = [&, trials](const train::Trial& t, const train::Trial* best, double seconds) {
      print_trial(t, best, trials, settings.metric, seconds);
    };
  }
  const recipe::TuneResult result = recipe::tune(r, options);
  if (o.json) {
    io::Json::Object j{{"folder", result.folder}, {"trials", result.trials.size()}};
    if (result.best) j.emplace_back("best", to_json(*result.best));
    fmt::print("{}\n", io::Json(std::move(j)).dump());
  } else if (result.best) {
    print_best(result, o, settings.metric);
  }
  if (result.interrupted) fmt::print(stderr, "stopped; the same command resumes the search\n");
  return result.interrupted ? 130 : result.best ? 0 : 1;
}

}  // namespace

void add_tune(CLI::App& app, int& code) {
  auto o = std::make_shared<TuneArguments>();
  CLI::App* verb = app.add_subcommand("tune",
                                      "Search over the settings of a recipe\n\n"
                                      "  tandem tune recipes/tune-digits.yaml\n"
                                      "  tandem tune my.yaml tune.sampler=random --trials 50");
  verb->add_option("recipe", o->recipe, "A YAML file with `search:`")->required();
  verb->add_option("overrides", o->overrides, "Changes, such as trainer.epochs=5");
  verb->add_option("--run", o->folder, "Folder of the search; a search that it holds is resumed");
  verb->add_option("--trials", o->trials, "Trials in all; default: the recipe's");
  verb->add_flag("--json", o->json, "One line of JSON on stdout");
  verb->add_flag("--quiet", o->quiet, "No progress");
  verb->callback([o, &code] { code = tune_verb(*o); });
}

}  // namespace tandem::cli
