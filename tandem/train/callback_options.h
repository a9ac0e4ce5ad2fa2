// SPDX-License-Identifier: Apache-2.0
// Options of the callbacks, with Keras's names and defaults. `fields` says what each is: recipes
// and the reference page read it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/runs/event_file.h"

namespace tandem::train {

struct EarlyStoppingOptions {
  std::string monitor = "val/loss";
  double min_delta = 0;
  int64_t patience = 0;
  std::string mode = "auto";
  std::optional<double> baseline = {};
  bool restore_best_weights = false;
  int64_t start_from_epoch = 0;

  template <class V>
  void fields(V& v) {
    v("monitor", monitor, {.doc = "log that is watched"});
    v("min_delta", min_delta,
      {.doc = "least change that counts as better", .at_least = 0, .resumable = true});
    v("patience", patience,
      {.doc = "epochs (with val_every_steps: validations) without getting better",
       .at_least = 0,
       .resumable = true});
    v("mode", mode,
      {.doc = "which values are better; auto: told from the name", .one_of = "auto min max"});
    v("baseline", baseline, {.doc = "value to be better than at first"});
    v("restore_best", restore_best_weights, {.doc = "end with the best weights"});
    v("start_from_epoch", start_from_epoch,
      {.doc = "epochs that are not watched", .at_least = 0, .resumable = true});
  }
};

struct ReduceLROnPlateauOptions {
  std::string monitor = "val/loss";
  double factor = 0.1;
  int64_t patience = 10;
  std::string mode = "auto";
  double min_delta = 1e-4;
  int64_t cooldown = 0;
  double min_lr = 0;

  template <class V>
  void fields(V& v) {
    v("monitor", monitor, {.doc = "log that is watched"});
    v("factor", factor,
      {.doc = "that the rate is multiplied by", .above = 0, .below = 1, .resumable = true});
    v("patience", patience,
      {.doc = "epochs (with val_every_steps: validations) without getting better",
       .at_least = 0,
       .resumable = true});
    v("mode", mode,
      {.doc = "which values are better; auto: told from the name", .one_of = "auto min max"});
    v("min_delta", min_delta,
      {.doc = "least change that counts as better", .at_least = 0, .resumable = true});
    v("cooldown", cooldown,
      {.doc = "epochs after a change that are not watched", .at_least = 0, .resumable = true});
    v("min_lr", min_lr, {.doc = "least rate", .at_least = 0, .resumable = true});
  }
};

struct ModelCheckpointOptions {
  std::string monitor = "val/loss";
  bool save_best_only = false;
  std::string mode = "auto";
  int64_t save_freq = 0;
  std::optional<double> initial_value_threshold = {};

  template <class V>
  void fields(V& v) {
    v("monitor", monitor, {.doc = "log that is watched"});
    v("save_best_only", save_best_only, {.doc = "write only what is the best so far"});
    v("mode", mode,
      {.doc = "which values are better; auto: told from the name", .one_of = "auto min max"});
    v("save_freq", save_freq, {.doc = "updates between files; 0: every epoch", .at_least = 0});
    v("initial_value_threshold", initial_value_threshold,
      {.doc = "value that the first best one must be better than"});
  }
};

struct TensorBoardOptions {
  int64_t histogram_freq = 0;
  bool write_graph = true;
  runs::HParams hparams = {};                                   ///< settings for the table of runs
  std::vector<std::pair<std::string, std::string>> texts = {};  ///< tag and Markdown

  template <class V>
  void fields(V& v) {
    v("histogram_freq", histogram_freq,
      {.doc = "epochs between histograms of the weights; 0: none", .at_least = 0});
    v("write_graph", write_graph,
      {.doc = "the step's ops on the first batch, of a run with `compile`"});
  }
};

struct BackupAndRestoreOptions {
  int64_t save_freq = 0;
  bool delete_checkpoint = true;

  template <class V>
  void fields(V& v) {
    v("save_freq", save_freq,
      {.doc = "updates between checkpoints; 0: every epoch", .at_least = 0});
    v("delete_checkpoint", delete_checkpoint, {.doc = "once the run has ended by itself"});
  }
};

struct RemoteMonitorOptions {
  std::string root = "http://localhost:9000", path = "/publish/epoch/end/";
  std::vector<std::pair<std::string, std::string>> headers = {};
  double seconds = 2;

  template <class V>
  void fields(V& v) {
    v("root", root, {.doc = "address of the server"});
    v("path", path, {.doc = "path on it"});
    v("seconds", seconds, {.doc = "to wait for an answer", .above = 0});
  }
};

}  // namespace tandem::train
