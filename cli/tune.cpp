// SPDX-License-Identifier: Apache-2.0
// `tandem tune recipe.yaml`: many runs of a recipe with other settings. What is searched over
// stands in the recipe's `search:`; every trial is a line of journal.jsonl, from which a search
// goes on.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "cli/commands_internal.h"
#include "cli/progress_internal.h"
#include "cli/recipe_internal.h"
#include "tandem/base/folder.h"
#include "tandem/init.h"
#include "tandem/train/callbacks.h"
#include "tandem/train/run_record.h"
#include "tandem/train/search.h"

namespace tandem::cli {
namespace {

struct TuneOptions {
  std::string recipe, folder;
  std::vector<std::string> overrides;
  int64_t trials = 0;  ///< 0: the recipe's
  bool json = false, quiet = false;
};

/// `tune:` and `search:` of a recipe.
struct TuneSettings {
  std::string metric;
  train::SearchOptions search;
  std::vector<train::SearchRange> ranges;
  int64_t trials = 20;
  double max_seconds = 0;
  bool keep_runs = false;
};

/// "optim.lr: ..." or "optim: {lr: ...}"; what comes later (an override) counts.
void collect(const io::Yaml& map, const std::string& path,
             std::vector<std::pair<std::string, const io::Yaml*>>& out) {
  for (size_t i = 0; i < map.keys.size(); ++i) {
    const std::string name = path.empty() ? map.keys[i] : path + "." + map.keys[i];
    const io::Yaml& v = map.items[i];
    if (v.kind == io::Yaml::Kind::map) {
      collect(v, name, out);
      continue;
    }
    const auto same = [&](const auto& entry) { return entry.first == name; };
    if (auto it = std::find_if(out.begin(), out.end(), same); it != out.end())
      it->second = &v;
    else
      out.emplace_back(name, &v);
  }
}

TuneSettings settings_of(const train::Recipe& r) {
  TuneSettings s;
  const io::Yaml* search = r.root.find("search");
  TD_CHECK(search && search->kind == io::Yaml::Kind::map && !search->keys.empty(), Value,
           "{} has no `search:`\nSay what to search over, such as `search: {{optim.lr: log "
           "1e-4..1e-1, model.width: [16, 32]}}`.",
           r.file);
  std::vector<std::pair<std::string, const io::Yaml*>> wanted;
  collect(*search, "", wanted);
  for (const auto& [name, v] : wanted) {
    const std::string part = name.substr(0, name.find('.'));
    TD_CHECK(r.root.find(part) || part == "sched" || part == "trainer", Value,
             "{} line {}: search.{}: the recipe has no '{}'", r.file, v->line, name, part);
    if (v->kind == io::Yaml::Kind::list) {
      train::SearchRange choice{.name = name};
      for (const io::Yaml& item : v->items) {
        std::string text = item.dump();
        while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
        choice.choices.push_back(text);
      }
      TD_CHECK(choice.choices.size() >= 2, Value,
               "{} line {}: search.{} wants two choices at least", r.file, v->line, name);
      s.ranges.push_back(std::move(choice));
    } else {
      TD_CHECK(v->kind == io::Yaml::Kind::scalar, Value,
               "{} line {}: search.{} wants a range or a list of choices", r.file, v->line, name);
      s.ranges.push_back(train::SearchRange::parse(name, v->text));
    }
  }
  train::Options o(r.root.find("tune"), "tune", r.file);
  const std::string sampler = o.text("sampler", "tpe");
  if (sampler != "tpe" && sampler != "random" && sampler != "grid")
    o.fail("sampler", fmt::format("wants tpe, random or grid, got '{}'", sampler));
  s.search.sampler = sampler == "tpe"      ? train::Sampler::tpe
                     : sampler == "random" ? train::Sampler::random
                                           : train::Sampler::grid;
  s.metric = o.text("metric", "val/loss");
  const std::string goal = o.text("goal", train::lower_is_better(s.metric) ? "min" : "max");
  if (goal != "min" && goal != "max") o.fail("goal", "wants min or max");
  s.search.minimise = goal == "min";
  s.search.seed = static_cast<uint64_t>(o.whole("seed", 0));
  s.search.startup = o.whole("startup", 10);
  s.search.candidates = o.whole("candidates", 24);
  s.search.grace = o.whole("grace", 0);
  s.search.eta = o.whole("eta", 3);
  s.trials = o.whole("trials", 20);
  s.max_seconds = o.number("max_seconds", 0.0);
  s.keep_runs = o.flag("keep_runs", false);
  const int64_t grid = o.whole("grid", 5);
  for (train::SearchRange& range : s.ranges) range.steps = grid;
  o.finish();
  if (grid < 1) o.fail("grid", "wants at least 1");
  if (s.search.sampler == train::Sampler::grid)
    s.trials = std::min(s.trials, train::Search(s.ranges, s.search).grid_size());
  return s;
}

/// Reports to the search after each epoch and stops what it does not want.
struct Watch : train::Callback {
  const train::Search& search;
  train::Trial& trial;
  std::string metric;
  Watch(const train::Search& s, train::Trial& t, std::string m)
      : search(s), trial(t), metric(std::move(m)) {}
  void epoch_end(train::Trainer& t, const train::Logs& logs) override {
    const double value = train::find_log(logs, metric);
    if (std::isnan(value)) return;  // an epoch without validation
    if (search.report(trial, t.epoch() + 1, value)) {
      trial.state = "stopped";
      t.stop("asha");
    }
  }
  const char* name() const override { return "Watch"; }
};

void write_report(const train::Search& s, const TuneSettings& o, const std::string& name,
                  const std::string& file) {
  train::Page page("Search: " + name);
  const train::Trial* best = s.best();
  int64_t done = 0, stopped = 0, failed = 0;
  for (const train::Trial& t : s.trials())
    ++(t.state == "done" ? done : t.state == "stopped" ? stopped : failed);
  std::vector<std::pair<std::string, std::string>> facts{
      {"trials", fmt::format("{} done, {} stopped, {} failed", done, stopped, failed)},
      {"judged by", o.metric + (o.search.minimise ? ", low" : ", high")}};
  if (best) {
    facts.emplace_back("best", fmt::format("{:.5g} (trial {})", *best->result, best->number));
    for (const auto& [key, value] : best->values) facts.emplace_back(key, value);
  }
  page.facts(facts);
  std::vector<train::Page::Axis> axes;
  for (const train::SearchRange& r : s.ranges())
    axes.push_back({.name = r.name, .log = r.log, .words = r.choices});
  axes.push_back({.name = o.metric});
  std::vector<std::vector<double>> lines;
  train::Series results{o.metric, {}, {}}, lead{"best so far", {}, {}};
  double top = std::nan("");
  for (const train::Trial& t : s.trials()) {
    std::vector<double> line;
    for (size_t d = 0; d < s.ranges().size(); ++d) {
      const train::SearchRange& r = s.ranges()[d];
      const auto n = static_cast<double>(r.choices.size());
      line.push_back(n > 0 ? std::floor(std::min(t.places[d] * n, n - 1))
                           : std::strtod(t.values[d].second.c_str(), nullptr));
    }
    line.push_back(t.result ? *t.result : std::nan(""));
    if (t.result) {
      lines.push_back(line);
      if (std::isnan(top) || (o.search.minimise ? *t.result < top : *t.result > top))
        top = *t.result;
    }
    results.x.push_back(static_cast<double>(t.number));
    results.y.push_back(line.back());
    lead.x.push_back(static_cast<double>(t.number));
    lead.y.push_back(top);
  }
  if (!lines.empty()) page.parallel("Settings and results", axes, lines);
  page.chart("results", "trial", {results, lead});
  std::vector<train::Series> curves;
  for (const train::Trial& t : s.trials()) {
    train::Series one{fmt::format("{}", t.number), {}, t.reports};
    for (size_t k = 0; k < t.reports.size(); ++k) one.x.push_back(static_cast<double>(k + 1));
    if (!one.x.empty()) curves.push_back(std::move(one));
  }
  page.chart(o.metric + " by epoch", "epoch", curves);
  std::vector<const train::Trial*> order;
  for (const train::Trial& t : s.trials()) order.push_back(&t);
  std::stable_sort(order.begin(), order.end(), [&](const train::Trial* a, const train::Trial* b) {
    if (!a->result || !b->result) return a->result.has_value() && !b->result;
    return o.search.minimise ? *a->result < *b->result : *a->result > *b->result;
  });
  std::vector<std::string> head{"trial", "state", o.metric, "epochs"};
  for (const train::SearchRange& r : s.ranges()) head.push_back(r.name);
  std::vector<std::vector<std::string>> rows;
  for (const train::Trial* t : order) {
    rows.push_back(
        {fmt::format("{}", t->number), t->note.empty() ? t->state : t->state + ": " + t->note,
         t->result ? fmt::format("{:.5g}", *t->result) : "", fmt::format("{}", t->reports.size())});
    for (const auto& [key, value] : t->values) rows.back().push_back(value);
  }
  page.table("Trials, best first", head, rows);
  write_file(file, page.html());
}

int tune_verb(const TuneOptions& o) {
  init();
  train::Recipe r = train::Recipe::load(o.recipe, o.overrides);
  TuneSettings s = settings_of(r);
  if (o.trials > 0) s.trials = o.trials;
  const std::string folder = o.folder.empty() ? "runs/tune-" + r.name() : o.folder;
  make_folders(folder);
  // The recipe of a trial has neither part.
  train::Recipe base = r;
  for (const char* part : {"search", "tune"})
    for (size_t i = 0; i < base.root.keys.size(); ++i)
      if (base.root.keys[i] == part) {
        base.root.keys.erase(base.root.keys.begin() + static_cast<ptrdiff_t>(i));
        base.root.items.erase(base.root.items.begin() + static_cast<ptrdiff_t>(i));
        break;
      }
  train::Search search(s.ranges, s.search);
  const std::string journal = folder + "/journal.jsonl";
  const int64_t before = train::read_journal(journal, search);
  if (before > 0 && !o.quiet && !o.json)
    fmt::print(stderr, "goes on after {} trials of '{}'\n", before, journal);
  train::AppendFile log(journal);
  write_file(folder + "/recipe.yaml", r.root.dump());
  Progress clock(true);
  bool stopped = false;
  train::StopGuard signals;
  while (static_cast<int64_t>(search.trials().size()) < s.trials && !stopped) {
    if (s.max_seconds > 0 && clock.seconds() > s.max_seconds) break;
    std::optional<train::Trial> trial = search.ask();
    if (!trial) break;
    train::Recipe one = base;
    std::string told;
    for (const auto& [key, value] : trial->values) {
      io::set_yaml(one.root, key, value);
      told += fmt::format(" {}={}", key, value);
    }
    const Progress began(true);
    const std::string run_folder =
        s.keep_runs ? fmt::format("{}/trial-{:04}", folder, trial->number) : "";
    auto watch = std::make_shared<Watch>(search, *trial, s.metric);
    try {
      const train::RecipeRun run = run_recipe(one, recipe_registry(), run_folder, false, {watch});
      if (run.fit.interrupted) {
        stopped = true;
        break;  // not in the journal: the next search makes it again
      }
      double value = train::find_log(run.test, s.metric);
      // The best epoch's, which is what one would keep.
      for (double v : trial->reports)
        if (std::isfinite(v) && (std::isnan(value) || (s.search.minimise ? v < value : v > value)))
          value = v;
      TD_CHECK(!std::isnan(value), Value, "'{}' was not measured", s.metric);
      trial->result = value;
      if (trial->state == "running") trial->state = "done";
    } catch (const Error& e) {
      // A diverged trial is a result; a key that is wrong is the user's, and the same in all.
      if (search.trials().empty() || trial->reports.empty()) {
        const bool settled =
            std::any_of(search.trials().begin(), search.trials().end(),
                        [](const train::Trial& t) { return t.result.has_value(); });
        if (!settled && std::string(e.what()).find("the loss is") == std::string::npos) throw;
      }
      trial->state = "failed";
      const std::string what = e.what();
      trial->note = what.substr(0, what.find('\n'));
    }
    if (!o.quiet && !o.json) {
      const train::Trial* best = search.best();
      fmt::print(stderr, "trial {}/{}{}  {} {}{}  {}\n", trial->number + 1, s.trials, told,
                 s.metric, trial->result ? fmt::format("{:.5g}", *trial->result) : trial->state,
                 trial->state == "stopped"
                     ? fmt::format(" (stopped at epoch {})", trial->reports.size())
                 : best ? fmt::format(" (best {:.5g})", *best->result)
                        : "",
                 duration(began.seconds()));
    }
    log.append(to_json(*trial).dump() + "\n");
    search.tell(std::move(*trial));
    write_report(search, s, r.name(), folder + "/report.html");
  }
  const train::Trial* best = search.best();
  if (o.json) {
    io::Json::Object j{{"folder", folder}, {"trials", search.trials().size()}};
    if (best) j.emplace_back("best", to_json(*best));
    fmt::print("{}\n", io::Json(std::move(j)).dump());
  } else if (best) {
    fmt::print("best: trial {}, {} {:.5g}\n  tandem train {}", best->number, s.metric,
               *best->result, o.recipe);
    for (const auto& [key, value] : best->values)
      fmt::print("{}", value.find_first_of(" []") == std::string::npos
                           ? fmt::format(" {}={}", key, value)
                           : fmt::format(" '{}={}'", key, value));
    fmt::print("\n  {}/report.html\n", folder);
  }
  if (stopped) fmt::print(stderr, "stopped; the same command goes on\n");
  return stopped ? 130 : best ? 0 : 1;
}

}  // namespace

void add_tune(CLI::App& app, int& code) {
  auto o = std::make_shared<TuneOptions>();
  CLI::App* verb = app.add_subcommand("tune",
                                      "Search over the settings of a recipe\n\n"
                                      "  tandem tune recipes/tune-digits.yaml\n"
                                      "  tandem tune my.yaml tune.sampler=random --trials 50");
  verb->add_option("recipe", o->recipe, "A YAML file with `search:`")->required();
  verb->add_option("overrides", o->overrides, "Changes, such as trainer.epochs=5");
  verb->add_option("--run", o->folder, "Folder of the search; one that is there goes on");
  verb->add_option("--trials", o->trials, "Trials in all; default: the recipe's");
  verb->add_flag("--json", o->json, "One line of JSON on stdout");
  verb->add_flag("--quiet", o->quiet, "No progress");
  verb->callback([o, &code] { code = tune_verb(*o); });
}

}  // namespace tandem::cli
