// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/tune.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/files/folder.h"
#include "tandem/recipe/setting_values_internal.h"
#include "tandem/runs/page.h"
#include "tandem/runs/progress.h"
#include "tandem/runs/run_folder.h"
#include "tandem/runs/run_record.h"
#include "tandem/train/callbacks.h"

namespace tandem::recipe {
namespace {

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

// `search:` of a recipe.
std::vector<train::SearchRange> ranges_of(const Recipe& r) {
  std::vector<train::SearchRange> ranges;
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
               "{} line {}: search.{} expects two choices at least", r.file, v->line, name);
      ranges.push_back(std::move(choice));
    } else {
      TD_CHECK(v->kind == io::Yaml::Kind::scalar, Value,
               "{} line {}: search.{} expects a range or a list of choices", r.file, v->line, name);
      ranges.push_back(train::SearchRange::parse(name, v->text));
    }
  }
  return ranges;
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
  bool reads_weights() const override { return false; }
};

// The recipe of a trial has neither part.
Recipe without_search(Recipe recipe) {
  io::Yaml& root = recipe.root;
  for (const char* part : {"search", "tune"}) {
    const auto it = std::find(root.keys.begin(), root.keys.end(), part);
    if (it == root.keys.end()) continue;
    root.items.erase(root.items.begin() + (it - root.keys.begin()));
    root.keys.erase(it);
  }
  return recipe;
}

// A trial that was cut off is resumed; what another search left under its name is not.
void begin_anew_unless_of(const Recipe& recipe, const std::string& folder) {
  if (folder.empty() || !file_exists(folder + "/recipe.yaml")) return;
  if (Recipe::load(folder + "/recipe.yaml").root.dump() == recipe.root.dump()) return;
  const runs::RunLock lock(folder);
  remove_folder(folder);
}

using Setting = std::pair<std::string, const io::Yaml*>;

// What decides how long a search takes, not what its trials are, and notes.
bool may_change(const std::string& key) {
  static constexpr const char* kFree[] = {"tune.trials", "tune.max_seconds", "recipe",
                                          "note",        "expect",           "export"};
  return std::any_of(std::begin(kFree), std::end(kFree), [&](const std::string& free) {
    return key == free || key.starts_with(free + ".");
  });
}

// Trials of other ranges or of another recipe would stand in one table as if they could be
// compared.
void refuse_another_search(const Recipe& recipe, const std::string& folder) {
  const std::string file = folder + "/recipe.yaml";
  if (!file_exists(file)) return;
  const Recipe stored = Recipe::load(file);
  std::vector<Setting> before, now;
  collect(stored.root, "", before);
  collect(recipe.root, "", now);
  const auto in = [](const std::vector<Setting>& all, const std::string& key) -> const io::Yaml* {
    const auto it =
        std::find_if(all.begin(), all.end(), [&](const Setting& s) { return s.first == key; });
    return it == all.end() ? nullptr : it->second;
  };
  std::vector<std::string> keys;
  for (const std::vector<Setting>* all : {&now, &before})
    for (const auto& [key, value] : *all)
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  std::string changed;
  for (const std::string& key : keys) {
    const io::Yaml *was = in(before, key), *is = in(now, key);
    if (may_change(key) || same_setting(was, is)) continue;
    changed += fmt::format("{}{} is {}, was {}", changed.empty() ? "" : "; ", key, setting_text(is),
                           setting_text(was));
  }
  TD_CHECK(changed.empty(), Value,
           "{}: the search in '{}' cannot be resumed with other settings: {}\nResume it with the "
           "settings it has ('{}'; tune.trials and tune.max_seconds may differ), or start another "
           "search in a new folder (--run).",
           recipe.file, folder, changed, file);
}

/// One search at work.
class Tuning {
 public:
  Tuning(const Recipe& recipe, const TuneOptions& options)
      : options_(options),
        name_(recipe.name()),
        base_(without_search(recipe)),
        settings_(tune_settings(recipe)),
        search_(settings_.ranges, settings_.search) {
    if (options.trials > 0) settings_.trials = options.trials;
    out_.folder = options.folder.empty() ? "runs/tune-" + name_ : options.folder;
    lock_.emplace(out_.folder);
    const std::string journal = out_.folder + "/journal.jsonl";
    const int64_t before = train::read_journal(journal, search_);
    if (before > 0) refuse_another_search(recipe, out_.folder);
    if (before > 0 && options.resumed) options.resumed(before, journal);
    journal_.emplace(journal, runs::AppendFile::Content::lines);
    write_file(out_.folder + "/recipe.yaml", recipe.root.dump());
  }

  TuneResult go() {
    const train::StopGuard signals;
    const runs::Progress clock(true);
    while (static_cast<int64_t>(search_.trials().size()) < settings_.trials) {
      if (settings_.max_seconds > 0 && clock.seconds() > settings_.max_seconds) break;
      std::optional<train::Trial> trial = search_.ask();
      if (!trial) break;
      const runs::Progress began(true);
      out_.interrupted = !make(*trial);
      if (out_.interrupted) break;  // not in the journal: the next search makes it again
      journal_->append(to_json(*trial).dump() + "\n");
      search_.tell(std::move(*trial));
      if (options_.ended) options_.ended(search_.trials().back(), search_.best(), began.seconds());
      write_file(out_.folder + "/report.html", tune_report(search_, settings_, name_));
    }
    out_.trials = search_.trials();
    if (const train::Trial* best = search_.best()) out_.best = *best;
    return std::move(out_);
  }

 private:
  // The trial's run and result; false: a signal ended it.
  bool make(train::Trial& trial) {
    Recipe one = base_;
    for (const auto& [key, value] : trial.values) io::set_yaml(one.root, key, value);
    const std::string folder =
        settings_.keep_runs ? fmt::format("{}/trial-{:04}", out_.folder, trial.number) : "";
    begin_anew_unless_of(one, folder);
    const auto watch = std::make_shared<Watch>(search_, trial, settings_.metric);
    try {
      const RecipeRun run = run_recipe(one, Registry::standard(), folder, false, {watch});
      if (run.fit.interrupted) return false;
      trial.result = result_of(trial, run);
      if (trial.state == "running") trial.state = "done";
    } catch (const Error& e) {
      if (is_mistake(trial, e)) throw;
      trial.state = "failed";
      trial.note = e.what();
    }
    return true;
  }

  // The best epoch's value, which is what one would keep.
  double result_of(const train::Trial& trial, const RecipeRun& run) const {
    double value = train::find_log(run.test, settings_.metric);
    for (const double v : trial.reports)
      if (std::isfinite(v) &&
          (std::isnan(value) || (settings_.search.minimise ? v < value : v > value)))
        value = v;
    TD_CHECK(!std::isnan(value), Value, "'{}' was not measured", settings_.metric);
    return value;
  }

  // A diverged trial is a result; a key that is wrong is the user's, and the same in all trials.
  bool is_mistake(const train::Trial& trial, const Error& e) const {
    const std::vector<train::Trial>& all = search_.trials();
    if (!all.empty() && !trial.reports.empty()) return false;
    const bool settled = std::any_of(all.begin(), all.end(),
                                     [](const train::Trial& t) { return t.result.has_value(); });
    return !settled && std::string(e.what()).find("the loss is") == std::string::npos;
  }

  const TuneOptions& options_;
  std::string name_;
  Recipe base_;
  TuneSettings settings_;
  train::Search search_;
  std::optional<runs::RunLock> lock_;
  std::optional<runs::AppendFile> journal_;
  TuneResult out_;
};

}  // namespace

TuneSettings tune_settings(const Recipe& r) {
  TuneSettings s{.ranges = ranges_of(r)};
  Options o(r.root.find("tune"), "tune", r.file);
  const std::string sampler = o.text("sampler", "tpe");
  if (sampler != "tpe" && sampler != "random" && sampler != "grid")
    o.fail("sampler", fmt::format("expected tpe, random or grid, got '{}'", sampler));
  s.search.sampler = sampler == "tpe"      ? train::Sampler::tpe
                     : sampler == "random" ? train::Sampler::random
                                           : train::Sampler::grid;
  s.metric = o.text("metric", "val/loss");
  const std::string goal = o.text("goal", runs::lower_is_better(s.metric) ? "min" : "max");
  if (goal != "min" && goal != "max") o.fail("goal", "expected min or max");
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
  if (grid < 1) o.fail("grid", "expected at least 1");
  if (s.search.sampler == train::Sampler::grid)
    s.trials = std::min(s.trials, train::Search(s.ranges, s.search).grid_size());
  return s;
}

TuneResult tune(const Recipe& recipe, const TuneOptions& options) {
  return Tuning(recipe, options).go();
}

}  // namespace tandem::recipe
