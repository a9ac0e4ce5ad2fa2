// SPDX-License-Identifier: Apache-2.0
// RunFolder: what a run writes, as plain files: the caller's (a recipe), env.json,
// metrics.jsonl, at the end the same as metrics.csv, parts.jsonl, STATUS (running, done, failed,
// interrupted, preempted). Checkpoints and event files lie beside.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/io/json.h"
#include "tandem/runs/append_file.h"

namespace tandem::runs {

class TD_API RunFolder {
 public:
  /// Makes the folder, writes `files` and env.json. Throws Io.
  RunFolder(std::string folder, const std::vector<std::pair<std::string, std::string>>& files);
  /// One line of metrics.jsonl: step, epoch, time and the values (NaN as null).
  void log(int64_t step, int64_t epoch, const std::vector<std::pair<std::string, double>>& values);
  /// Drop the lines of metrics.jsonl and layers.jsonl after `step`: those steps are repeated.
  void truncate(int64_t step);
  /// One line of parts.jsonl: what one process did of the run (steps, seconds, energy ...).
  void part(io::Json::Object figures);
  void finish(const std::string& status);

 private:
  void write_csv() const;
  std::string folder_;
  std::unique_ptr<AppendFile> metrics_;
};

}  // namespace tandem::runs
