// SPDX-License-Identifier: Apache-2.0
// TrainerOptions and what is in them. `fields` declares the settings once: `trainer:` of recipes,
// `tandem render-config` and the reference page read it.
#pragma once

#include <string>
#include <vector>

#include "tandem/optim/averaged.h"
#include "tandem/optim/grad_scaler.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/preempt.h"

namespace tandem::train {

enum class OnNonFinite : uint8_t {
  stop,  ///< replay the step, throw Value with op, layer, line and samples
  skip,  ///< skip the update, count it and continue
  off,   ///< do not look
};

enum class AverageKind : uint8_t { none, ema, swa };
constexpr const char* field_names(OnNonFinite) { return "stop skip off"; }
constexpr const char* field_names(AverageKind) { return "none ema swa"; }

/// What `precision` of a recipe says; TrainerOptions has a flag for each.
enum class TrainPrecision : uint8_t { fp32, bf16, fp16 };
constexpr const char* field_names(TrainPrecision) { return "fp32 bf16 fp16"; }

/// An average of the weights beside those that are trained (optim/averaged.h). Validation, tests,
/// predictions and what fit() leaves in the model are the average's once there is one; checkpoints
/// hold both.
struct AverageOptions {
  AverageKind type = AverageKind::none;
  double decay = 0.999;
  bool warmup = true;
  int64_t every = -1;
  double start = -1;
  bool buffers = false;

  template <class V>
  void fields(V& v) {
    v("type", type, {.doc = "ema, an exponential average, or swa, a mean over the run's end"});
    if (type != AverageKind::swa) {
      v("decay", decay,
        {.doc = "share of the average that an update keeps (ema)", .at_least = 0, .at_most = 1});
      v("warmup", warmup, {.doc = "a smaller decay at first (ema)"});
    }
    v("every", every,
      {.doc = "updates between values that are taken; 0: one at each epoch's end; -1: 1 for ema, 0 "
              "for swa",
       .at_least = -1});
    v("start", start,
      {.doc = "share of the run after which values are taken; -1: 0 for ema, 0.75 for swa",
       .at_least = -1,
       .at_most = 1});
    v("buffers", buffers,
      {.doc = "average floating buffers too; else the latest are taken over, and swa renews the "
              "statistics of batch norms at the end"});
  }
};

struct TrainerOptions {
  int64_t max_epochs = 10;
  int64_t max_steps = -1;
  double max_seconds = 0;
  int64_t accumulate = 1;
  double clip_norm = 0;
  bool compile = true;
  bool bf16 = false;                     ///< precision bf16, by autocast
  bool f16 = false;                      ///< precision fp16, with a gradient scaler
  optim::GradScalerOptions scaler = {};  ///< of f16
  bool schedule_per_epoch = false;
  OnNonFinite on_nonfinite = OnNonFinite::stop;
  int64_t val_every_epochs = 1;
  int64_t sanity_batches = 2;
  int64_t limit_train_batches = -1, limit_val_batches = -1;
  int64_t log_every = 50;
  std::vector<std::string> metrics = {};
  bool train_metrics = true;
  /// Run folder: `files`, env.json, metrics.jsonl and .csv, parts.jsonl, checkpoints, STATUS.
  /// Empty: none.
  std::string folder = "";
  bool resume = true;  ///< resume from the folder's checkpoint when there is one
  int64_t save_every_steps = 0;
  CheckpointOptions checkpoints = {};
  std::string checkpoint_folder = "";  ///< default: "checkpoints" in the folder
  std::string monitor = "";
  std::vector<std::pair<std::string, std::string>> files = {};  ///< kept in folder and checkpoints
  bool progress = true;
  int64_t val_every_steps = 0;
  AverageOptions average = {};
  int64_t fast_dev_run = 0;
  int64_t overfit_batches = 0;
  bool barebones = false;
  /// A notice that the machine will be taken away: save within its deadline and stop.
  PreemptOptions preempt = {};

  /// The settings of a run by the names that recipes have for them; not what a program alone says:
  /// the scaler, the schedule's step, folders, files and progress.
  template <class V>
  void fields(V& v) {
    v("epochs", max_epochs,
      {.doc = "passes over the training data", .at_least = 0, .resumable = true});
    v("max_steps", max_steps,
      {.doc = "updates in all; -1: no limit", .at_least = -1, .resumable = true});
    v("max_seconds", max_seconds,
      {.doc = "over all processes that worked on the run; 0: no limit",
       .at_least = 0,
       .resumable = true});
    v("accumulate", accumulate, {.doc = "batches per update", .at_least = 1, .resumable = true});
    v("clip_norm", clip_norm,
      {.doc = "norm that gradients are clipped to; 0: no clipping",
       .at_least = 0,
       .resumable = true});
    v("compile", compile, {.doc = "the step as one planned program", .resumable = true});
    v("metrics", metrics, {.doc = "names of metrics"});
    v("train_metrics", train_metrics,
      {.doc = "metrics on the training batches too", .resumable = true});
    v("log_every", log_every,
      {.doc = "between lines of the log", .unit = "steps", .at_least = 1, .resumable = true});
    v("val_every", val_every_epochs,
      {.doc = "between validations", .unit = "epochs", .at_least = 1, .resumable = true});
    v("val_every_steps", val_every_steps,
      {.doc = "updates between validations, in place of val_every; the run's end has one as well",
       .at_least = 0,
       .resumable = true});
    v("sanity_batches", sanity_batches,
      {.doc = "batches of validation before training: its bugs show at once",
       .at_least = 0,
       .resumable = true});
    v("limit_train_batches", limit_train_batches,
      {.doc = "batches of an epoch; -1: all", .at_least = -1});
    v("limit_val_batches", limit_val_batches,
      {.doc = "batches of a validation; -1: all", .at_least = -1});
    v("overfit_batches", overfit_batches,
      {.doc = "train and validate on the first so many batches, always the same: can it learn them "
              "by heart? 0: off",
       .at_least = 0});
    v("fast_dev_run", fast_dev_run,
      {.doc = "train, validate and test on so many batches once and leave nothing behind; 0: off",
       .at_least = 0});
    v("barebones", barebones, {.doc = "no logs, checkpoints, progress or training metrics"});
    v("save_every", save_every_steps,
      {.doc = "updates between checkpoints, besides those at each epoch's end; 0: only those",
       .at_least = 0,
       .resumable = true});
    v("keep", checkpoints.keep_last,
      {.doc = "newest checkpoints that stay", .at_least = 1, .resumable = true});
    v("keep_best", checkpoints.keep_best,
      {.doc = "best checkpoints that stay", .at_least = 0, .resumable = true});
    v("monitor", monitor,
      {.doc = "log that tells the best checkpoint; default: the first metric of validation, else "
              "val/loss, else train/loss"});
    TrainPrecision precision = f16    ? TrainPrecision::fp16
                               : bf16 ? TrainPrecision::bf16
                                      : TrainPrecision::fp32;
    v("precision", precision,
      {.doc = "of matmuls and convolutions: bf16 by autocast, fp16 with a gradient scaler too"});
    bf16 = precision == TrainPrecision::bf16;
    f16 = precision == TrainPrecision::fp16;
    v("on_nonfinite", on_nonfinite,
      {.doc = "at the first NaN or infinity: stop with op, layer and samples, skip the update, or "
              "off",
       .resumable = true});
    v("average", average, {.doc = "an average of the weights beside those that are trained"});
    preempt.fields(v);
  }
};
/// What the switches fast_dev_run, overfit_batches and barebones mean for the other options.
TD_API TrainerOptions with_switches(TrainerOptions options);
/// Batches of an epoch of `batches` with the options' limits, and updates of the whole run
/// (INT64_MAX: without an end).
TD_API int64_t planned_batches(const TrainerOptions& options, int64_t batches);
TD_API int64_t planned_updates(const TrainerOptions& options, int64_t batches);

}  // namespace tandem::train
