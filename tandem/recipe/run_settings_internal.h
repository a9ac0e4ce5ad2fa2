// SPDX-License-Identifier: Apache-2.0
// The settings of a run that is resumed: what differs from those it was begun with, which of that
// may differ (fields say it: `resumable`), how it is carried over, and the record of what was run
// with which settings. Used by recipe.cpp and agent_run.cpp.
#pragma once

#include "tandem/recipe/parts/parts_internal.h"
#include "tandem/runs/run_record.h"

namespace tandem::recipe {

using runs::SettingChange;

/// Leaves in a run's folder which job writes it, if one does (`tandem launch`), for a restart to
/// find it. What is refused before a run begins leaves nothing.
void note_job(const std::string& folder, const Recipe& recipe);

class RunSettings {
 public:
  /// `resolved` and `resumable` grow while the recipe is read: they are looked at later.
  RunSettings(const Recipe& recipe, std::shared_ptr<io::Yaml> resolved,
              std::shared_ptr<std::vector<std::string>> resumable);
  /// The files of the run: recipe.yaml, config.yaml, settings.jsonl.
  std::vector<std::pair<std::string, std::string>> files() const;
  /// The run in `folder` is resumed from that checkpoint: compares, and extends the record. Throws
  /// Value naming every key that must stay as it was, with both values.
  void resume(const train::Snapshot& s, const std::string& folder);
  /// What the resumed run changes; none of a run that begins.
  const std::vector<SettingChange>& changes() const { return changes_; }
  /// Is the key, or one below it, among them, or does it follow from one of them?
  bool changed(std::string_view key) const;
  /// "optim.lr 0.5 (was 0.003), trainer.epochs 6 (was 4)".
  std::string text() const;

 private:
  void compare(const io::Yaml* before, const io::Yaml* now, const std::string& path);
  void check_ends(const train::Snapshot& s, const std::string& folder) const;
  bool may_change(const std::string& key) const;

  std::string file_;
  io::Yaml given_, given_before_;
  std::shared_ptr<io::Yaml> resolved_;
  std::shared_ptr<std::vector<std::string>> resumable_;
  std::vector<SettingChange> changes_, refused_;
  std::vector<SettingChange> following_;  ///< from others, such as a schedule's length
  std::string record_;                    ///< settings.jsonl
};

/// Carries changed numbers of `optim:` and `sched:` over to an optimizer of a run whose state is
/// restored.
class ResumedRates {
 public:
  /// For the kth of them.
  ResumedRates(const RunSettings& settings, const RecipeOptimizers& of, size_t k)
      : settings_(settings),
        optimizer_(*of.made[k]),
        keys_(of.keys[k]),
        schedule_(of.schedules[k]),
        name_(of.named[k].name),
        plateau_(of.plateau != nullptr) {}
  /// Before the state is restored, while optimizer and schedule are as the recipe has them.
  void before(const train::Snapshot& s);
  void after();

 private:
  struct Number {
    std::string field, name;
    size_t group;
    double value;
    bool moved;  ///< by the schedule
  };
  optim::LRScheduler* replayed() const;
  double lr_factor() const;

  const RunSettings& settings_;
  optim::Optimizer& optimizer_;
  const RecipeOptimizers::Keys& keys_;
  const RecipeSchedule& schedule_;
  std::string name_;  ///< of the optimizer, where there are several
  bool plateau_;      ///< a measured value sets the rates
  std::vector<Number> wanted_;
  std::vector<double> first_rates_;
  StateDict schedule_state_;
};

}  // namespace tandem::recipe
