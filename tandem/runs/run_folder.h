// SPDX-License-Identifier: Apache-2.0
// RunFolder: what a run writes, as plain files: the caller's (a recipe), env.json,
// metrics.jsonl, at the end the same as metrics.csv, parts.jsonl, STATUS (running, done, failed,
// interrupted, preempted). Checkpoints and event files lie beside.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/files/file_lock.h"
#include "tandem/io/json.h"
#include "tandem/runs/append_file.h"

namespace tandem::runs {

/// Makes this process the one that writes to a run's folder, while it lives (the file LOCK). The
/// folder is made where it is not there, and removed again when nothing came into it.
class TD_API RunLock {
 public:
  /// Throws Io when another process or thread writes to it: its pid and host, and since when.
  explicit RunLock(const std::string& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  std::string made_;
  int place_ = -1;  ///< among the folders that end_by_signal looks at
  std::unique_ptr<FileLock> lock_;
};
/// For handlers of SIGINT, SIGTERM and SIGHUP: removes the folders that living RunLocks of this
/// process made and into which nothing came, and ends the process by that signal. Safe in a signal
/// handler.
TD_API void end_by_signal(int signal) noexcept;
/// Who writes to the run now; nothing when nobody does, or when its file system has no locks.
TD_API std::optional<LockHolder> run_writer(const std::string& folder);

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
