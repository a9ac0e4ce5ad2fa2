// SPDX-License-Identifier: Apache-2.0
// Search over the settings of a recipe: many runs of it, in the ranges of its `search:`. Every
// trial is a line of journal.jsonl in the folder of the search, from which a search is resumed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/recipe/recipe.h"
#include "tandem/train/search.h"

namespace tandem::recipe {

/// `tune:` and `search:` of a recipe.
struct TuneSettings {
  std::string metric;
  train::SearchOptions search;
  std::vector<train::SearchRange> ranges;
  int64_t trials = 20;
  double max_seconds = 0;  ///< 0: no limit
  bool keep_runs = false;  ///< keep the folder of every trial
};
/// Throws Value for a recipe without `search:`, naming the line of what is wrong in it.
TD_API TuneSettings tune_settings(const Recipe& recipe);

struct TuneOptions {
  std::string folder = "";  ///< empty: runs/tune-<name>; a search that it holds is resumed
  int64_t trials = 0;       ///< in all; 0: the recipe's
  /// Told how many trials the journal holds, before the first new one.
  std::function<void(int64_t before, const std::string& journal)> resumed = {};
  /// Told each trial with its time once it has ended, and the best one so far, which it may be.
  std::function<void(const train::Trial& trial, const train::Trial* best, double seconds)> ended =
      {};
};
struct TuneResult {
  std::string folder;  ///< journal.jsonl, recipe.yaml, report.html
  std::vector<train::Trial> trials;
  std::optional<train::Trial> best;
  bool interrupted = false;  ///< by a signal; the same call resumes the search
};
/// Make trials until the recipe's number or time is used up.
TD_API TuneResult tune(const Recipe& recipe, const TuneOptions& options = {});

/// The page of a search: settings beside results, curves, all trials.
TD_API std::string tune_report(const train::Search& search, const TuneSettings& settings,
                               const std::string& name);

}  // namespace tandem::recipe
