// SPDX-License-Identifier: Apache-2.0
// RunRecord: a run folder read back, for lists, comparisons and reports. Missing or truncated files
// leave their part empty; a folder without metrics.jsonl is not a run.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/files/file.h"
#include "tandem/io/json.h"
#include "tandem/runs/page.h"

namespace tandem::runs {

/// A setting that a resumed run changed.
struct SettingChange {
  std::string key;          ///< "optim.lr"
  std::string before, now;  ///< as YAML in one line; "null" for none
};
/// From which step on a run had which settings: a line of settings.jsonl.
struct SettingsPart {
  int64_t step = 0, epoch = 0;         ///< done when it began
  std::vector<SettingChange> changed;  ///< against the part before
};
/// The lines of settings.jsonl; damaged ones are left out.
TD_API std::vector<SettingsPart> parse_settings(const std::string& lines);
/// Every part with its steps, epochs and what differs between the parts, each line after `prefix`:
/// "steps 0 to 92 (epochs 0 to 4): optim.lr 0.003". "" for a run of one part.
TD_API std::string settings_text(const std::vector<SettingsPart>& parts,
                                 const std::string& prefix = "");

struct TD_API RunRecord {
  std::string folder, name;  ///< the name is the recipe's, else the folder's
  /// running, done, failed, interrupted, preempted; crashed: it was running and its process is
  /// gone.
  std::string status;
  double started = 0, seconds = 0, joules = 0, cpu_seconds = 0, peak_memory_mb = 0;  ///< all parts
  std::string energy_source;
  int64_t steps = 0, epochs = 0;
  double samples = 0;
  /// By name ("train/loss", "system/memory_mb"), over steps, in the order of the file.
  std::vector<std::pair<std::string, Series>> values;
  std::map<std::string, std::string> settings;  ///< "optim.lr" -> "0.003", all that was resolved
  std::string recipe;                           ///< the text of recipe.yaml
  io::Json environment, evaluation;             ///< null where they are not
  std::vector<io::Json> layers;                 ///< lines of layers.jsonl
  std::vector<SettingsPart> parts;              ///< lines of settings.jsonl
  io::Json communication;  ///< of the last part, by label of the calls; or null
  io::Json late_ranks;     ///< of the last part, by rank; or null

  const Series* find(const std::string& name) const;
  /// The last finite value; NaN.
  double last(const std::string& name) const;
  /// The best by direction (see lower_is_better()).
  double best(const std::string& name) const;
  /// The value that identifies how good a run is: "test/..." of the evaluation, else the last
  /// "val/...", else "train/loss"; a metric before a loss.
  std::string headline() const;
  /// Of "test/accuracy" too, which is in the evaluation.
  double value(const std::string& name) const;
};

/// Is the process that writes the run still there, on this machine? Of runs on other machines there
/// is no telling: false.
TD_API bool at_work(const RunRecord& run);
/// Was it begun on this machine?
TD_API bool is_local(const RunRecord& run);
/// Throws Io when it is not a run folder.
TD_API RunRecord read_run(const FilePath& folder);
/// The runs below a folder, oldest first; those that cannot be read are left out.
TD_API std::vector<RunRecord> list_runs(const FilePath& folder);
TD_API bool lower_is_better(const std::string& metric);

/// report.html of a run: the page as text.
TD_API std::string run_report(const RunRecord& run);
/// Curves over each other, values side by side and the settings that differ.
TD_API std::string compare_report(const std::vector<RunRecord>& runs);

/// A chart of dots (two by four in a character) for terminals, with scales and names.
TD_API std::string terminal_plot(const std::string& title, const std::vector<Series>& series,
                                 int columns = 72, int rows = 12, bool colours = false);

}  // namespace tandem::runs
