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
#include "tandem/train/rank_options.h"

namespace tandem::train {

enum class OnNonFinite : uint8_t {
  stop,  ///< replay the step, throw Value with op, layer, line and samples
  skip,  ///< skip the update, count it and continue
  off,   ///< do not look
};

enum class AverageKind : uint8_t { none, ema, swa };
constexpr const char* field_names(OnNonFinite) { return "stop skip off"; }
constexpr const char* field_names(AverageKind) { return "none ema swa"; }

/// Of matmuls and convolutions: bf16 by autocast, fp16 with a gradient scaler too.
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

/// How much of the data an epoch and a validation see.
struct LimitOptions {
  int64_t train_batches = -1, val_batches = -1;  ///< -1: all

  template <class V>
  void fields(V& v) {
    v("limit_train_batches", train_batches,
      {.doc = "batches of an epoch; -1: all", .at_least = -1});
    v("limit_val_batches", val_batches,
      {.doc = "batches of a validation; -1: all", .at_least = -1});
  }
};

/// When fit() validates.
struct ValidationOptions {
  int64_t every_epochs = 1;
  int64_t every_steps = 0;
  int64_t sanity_batches = 2;

  template <class V>
  void fields(V& v) {
    v("val_every", every_epochs,
      {.doc = "between validations", .unit = "epochs", .at_least = 1, .resumable = true});
    v("val_every_steps", every_steps,
      {.doc = "updates between validations, in place of val_every; the run's end has one as well",
       .at_least = 0,
       .resumable = true});
    v("sanity_batches", sanity_batches,
      {.doc = "batches of validation before training: its bugs show at once",
       .at_least = 0,
       .resumable = true});
  }
};

/// What is logged besides losses and metrics of epochs.
struct LoggingOptions {
  int64_t every_steps = 50;
  bool train_metrics = true;

  template <class V>
  void fields(V& v) {
    v("train_metrics", train_metrics,
      {.doc = "metrics on the training batches too", .resumable = true});
    v("log_every", every_steps,
      {.doc = "between lines of the log", .unit = "steps", .at_least = 1, .resumable = true});
  }
};

/// When checkpoints are written, where, and which of them is the best; how many stay is up to
/// CheckpointOptions.
struct SavingOptions {
  int64_t every_steps = 0;
  std::string folder = "";  ///< default: "checkpoints" in the run's folder
  std::string monitor = "";
  std::vector<std::pair<std::string, std::string>> files = {};  ///< kept in folder and checkpoints

  template <class V>
  void fields(V& v) {
    v("save_every", every_steps,
      {.doc = "updates between checkpoints, besides those at each epoch's end; 0: only those",
       .at_least = 0,
       .resumable = true});
    v("monitor", monitor,
      {.doc = "log that tells the best checkpoint; default: the first metric of validation, else "
              "val/loss, else train/loss"});
  }
};

/// Short runs that show whether a program works.
struct DebugOptions {
  int64_t fast_dev_run = 0;
  int64_t overfit_batches = 0;
  bool barebones = false;

  template <class V>
  void fields(V& v) {
    v("overfit_batches", overfit_batches,
      {.doc = "train and validate on the first batches only, this many: can it learn them "
              "by heart? 0: off",
       .at_least = 0});
    v("fast_dev_run", fast_dev_run,
      {.doc = "train, validate and test on this many batches once and leave nothing behind; 0: off",
       .at_least = 0});
    v("barebones", barebones, {.doc = "no logs, checkpoints, progress or training metrics"});
  }
};

/// C++ wants named fields in the order of their declaration: what most programs set comes first, in
/// the order run, update, results; then the groups.
struct TrainerOptions {
  // ---- the run
  int64_t max_epochs = 10;
  int64_t max_steps = -1;
  double max_seconds = 0;
  // ---- an update
  int64_t accumulate = 1;
  double clip_norm = 0;
  bool compile = true;
  TrainPrecision precision = TrainPrecision::fp32;
  optim::GradScalerOptions scaler = {};  ///< of fp16
  OnNonFinite on_nonfinite = OnNonFinite::stop;
  TrainStrategy strategy = TrainStrategy::automatic;
  ParallelOptions parallel = {};
  bool sync_batchnorm = false;
  int64_t ps_staleness = 0;
  int64_t ps_servers = 1;
  TrainOffload offload = TrainOffload::none;
  // ---- results
  std::vector<std::string> metrics = {};
  /// Run folder: `saving.files`, env.json, metrics.jsonl and .csv, parts.jsonl, checkpoints,
  /// STATUS. Empty: none.
  std::string folder = "";
  bool resume = true;  ///< resume from the folder's checkpoint when there is one
  bool progress = true;
  // ---- groups
  LimitOptions limits = {};
  ValidationOptions validation = {};
  LoggingOptions logging = {};
  SavingOptions saving = {};
  CheckpointOptions checkpoints = {};
  AverageOptions average = {};
  DebugOptions debug = {};
  /// A notice that the machine will be taken away: save within its deadline and stop.
  PreemptOptions preempt = {};

  /// The settings of a run by the names that recipes have for them; not what a program alone says:
  /// the scaler, folders, files and progress.
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
    logging.fields(v);
    validation.fields(v);
    limits.fields(v);
    debug.fields(v);
    saving.fields(v);
    v("keep", checkpoints.keep_last,
      {.doc = "newest checkpoints that stay", .at_least = 1, .resumable = true});
    v("keep_best", checkpoints.keep_best,
      {.doc = "best checkpoints that stay", .at_least = 0, .resumable = true});
    v("precision", precision,
      {.doc = "of matmuls and convolutions: bf16 by autocast, fp16 with a gradient scaler too"});
    v("on_nonfinite", on_nonfinite,
      {.doc = "at the first NaN or infinity: stop with op, layer and samples, skip the update, or "
              "off",
       .resumable = true});
    v("strategy", strategy,
      {.doc =
           "of several ranks (tandem launch): ddp trains one net, each rank on its part of every "
           "batch; zero1, zero2 and fsdp do the same and hold a part each of the optimizer's "
           "state, of the gradients too, of the parameters too; ps: the first ranks are parameter "
           "servers (ps_servers), the others their workers; none: each trains by itself; auto: ddp "
           "where there are several",
       .resumable = true});
    v("parallel", parallel,
      {.doc = "the layers of one net spread over ranks, such as {tp: 2, pp: 2}, or tp=2,pp=2",
       .resumable = true});
    v("sync_batchnorm", sync_batchnorm,
      {.doc = "batch norms take the statistics of all ranks' samples", .resumable = true});
    v("ps_staleness", ps_staleness,
      {.doc = "of strategy ps: updates by which a gradient's parameters may be older than those it "
              "is applied to; 0: the workers compute parts of one batch, as ddp does",
       .at_least = 0,
       .resumable = true});
    v("ps_servers", ps_servers,
      {.doc = "of strategy ps: how many of the ranks are parameter servers, with a share each of "
              "the parameters and the optimizer's state",
       .at_least = 1,
       .resumable = true});
    v("offload", offload,
      {.doc = "of a model on a device, what the host holds instead: optimizer, the optimizer's "
              "state and its updates; with strategy fsdp the parameters too, beside those that are "
              "read; the steps run op by op",
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
