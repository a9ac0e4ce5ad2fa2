// SPDX-License-Identifier: Apache-2.0
// Checkpoints: a folder per step with model.safetensors, optimizer.safetensors, state.json, files
// of the caller's and a MANIFEST of sizes and checksums. A checkpoint is written beside its place,
// synced, renamed, and only then named in `latest`: a crash in between leaves the previous one.
// One process writes at a time (LOCK); readers need no lock.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/files/file_lock.h"
#include "tandem/io/json.h"
#include "tandem/io/safetensors.h"

namespace tandem::train {

/// What a checkpoint holds. The tensors are values: what cells do later does not change them, and
/// taking a snapshot copies nothing.
struct Snapshot {
  int64_t step = 0;
  StateDict model, optimizer;
  io::Json state = io::Json::Object{};
  /// Small files kept beside, such as the recipe: name and content.
  std::vector<std::pair<std::string, std::string>> files = {};
  /// By which the best ones are kept.
  std::optional<double> score = {};
};

struct CheckpointOptions {
  int64_t keep_last = 3;
  int64_t keep_best = 1;  ///< of those with a score, besides the last ones
  bool higher_is_better = true;
  bool async = true;    ///< save() returns at once; a thread writes
  int64_t retries = 3;  ///< after an error of the file system, with a growing pause
};

/// The checkpoints of one run, in a folder of their own.
class TD_API Checkpoints {
 public:
  /// Makes the folder. Throws Io.
  explicit Checkpoints(const FilePath& folder, CheckpointOptions options = {});
  /// Waits for the writer; what it could not save is logged.
  ~Checkpoints();
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  /// Become the folder's writer, and remove what writers before left half written. The first save()
  /// does it too. Throws Io when another process is its writer, naming it.
  void claim();
  /// Wait, as wait() does, and be its writer no more, until the next claim() or save().
  void release();
  /// Save; at most one waits while another is written. Throws Io for a save that failed before (or,
  /// without async, for this one).
  void save(Snapshot snapshot);
  /// Until everything is on disk. Throws Io for a save that failed.
  void wait();
  /// The one that `latest` names, else the newest that is whole; damaged ones are skipped with a
  /// warning and stay where they are. Nothing when there is none.
  std::optional<Snapshot> load_latest() const;
  /// The whole one with the best score. Nothing when none has a score.
  std::optional<Snapshot> load_best() const;
  /// Folders of checkpoints, newest first, whole or not.
  std::vector<std::string> list() const;
  const std::string& folder() const { return folder_; }

 private:
  struct Writer;
  bool start_writer();
  void write_waiting();
  void write(const Snapshot& snapshot) const;
  void write_with_retries(const Snapshot& snapshot) const;
  std::string latest() const;
  void retire(const std::string& newest) const;

  std::string folder_;
  CheckpointOptions options_;
  std::unique_ptr<FileLock> lock_;
  std::unique_ptr<Writer> writer_;
};

/// Read one checkpoint's folder. Every file is compared with the MANIFEST first: throws Format
/// (naming the file) for a damaged one, Io for one that cannot be read.
TD_API Snapshot load_checkpoint(const FilePath& folder);

}  // namespace tandem::train
