// SPDX-License-Identifier: Apache-2.0
// Trainer: fit, validate and predict over pipelines with a compiled step, progress line, metrics,
// callbacks, checkpoints with exact resume and a watch on NaN. Everything it does is a function of
// this room that a loop of one's own can call.
#pragma once

#include "tandem/graph/rng.h"
#include "tandem/train/find_batch.h"
#include "tandem/train/lr_find.h"
#include "tandem/train/metrics.h"
#include "tandem/train/run_state.h"

namespace tandem::train {

/// The fields of one element of a pipeline.
using Batch = std::vector<Tensor>;
/// Names and values in order: "train/loss", "val/accuracy", "lr".
using Logs = std::vector<std::pair<std::string, double>>;
/// The value of `name`; NaN when it is not there.
TD_API double find_log(const Logs& logs, const std::string& name);

/// What a step computes of a batch. Output and target are what metrics see; they may be undefined.
struct StepOutput {
  Tensor loss, output, target;
  Tensor prediction = {};  ///< what predict() gives, where that is not the output
};
using StepFunction = std::function<StepOutput(const Batch&)>;

enum class OnNonFinite : uint8_t {
  stop,  ///< replay the step, throw Value with op, layer, line and samples
  skip,  ///< leave the update out, count it and go on
  off,   ///< do not look
};

struct TrainerOptions {
  int64_t max_epochs = 10;
  int64_t max_steps = -1;  ///< updates in all; -1: no limit
  double max_seconds = 0;  ///< 0: no limit
  int64_t accumulate = 1;  ///< batches per update
  double clip_norm = 0;    ///< 0: no clipping
  bool compile = true;     ///< the step as one planned program
  bool bf16 = false;       ///< matrix products and convolutions in bfloat16 (autocast)
  bool f16 = false;        ///< the same in float16, with a gradient scaler
  optim::GradScalerOptions scaler = {};  ///< of f16
  bool schedule_per_epoch = false;
  OnNonFinite on_nonfinite = OnNonFinite::stop;
  int64_t val_every_epochs = 1;
  int64_t sanity_batches = 2;  ///< of validation before training: its bugs show at once
  int64_t limit_train_batches = -1, limit_val_batches = -1;
  int64_t log_every = 50;                 ///< steps
  std::vector<std::string> metrics = {};  ///< names for make_metric()
  bool train_metrics = true;              ///< on the training batches too
  /// Run folder: config, env.json, metrics.jsonl, event files, checkpoints, STATUS. Empty: none.
  std::string folder = "";
  bool resume = true;            ///< go on from the folder's checkpoint when there is one
  int64_t save_every_steps = 0;  ///< besides at every epoch's end
  CheckpointOptions checkpoints = {};
  std::string checkpoint_folder = "";  ///< default: "checkpoints" in the folder
  std::string monitor = "";  ///< by which the best checkpoint is told; default: the first metric of
                             ///< validation, else "val/loss", else "train/loss"
  std::vector<std::pair<std::string, std::string>> files = {};  ///< kept in folder and checkpoints
  bool progress = true;
};

class Trainer;

/// Sees a run from within. All are called on the training thread.
class TD_API Callback {
 public:
  virtual ~Callback() = default;
  /// Before a run opens its files and its checkpoint: the options may be changed.
  virtual void configure(TrainerOptions&) {}
  virtual void fit_begin(Trainer&) {}
  virtual void epoch_begin(Trainer&) {}
  virtual void step_end(Trainer&, const Logs&) {}
  /// After validation, where there is one.
  virtual void epoch_end(Trainer&, const Logs&) {}
  virtual void fit_end(Trainer&) {}
  /// What a resumed run must know; null: nothing.
  virtual io::Json state() const { return {}; }
  virtual void load_state(const io::Json&) {}
  /// The same for tensors: they lie in checkpoints beside the optimizer's.
  virtual StateDict tensors() const { return {}; }
  virtual void load_tensors(const StateDict&) {}
  virtual const char* name() const = 0;
};

/// Sees a batch of a validation with what the step made of it.
using BatchViewer = std::function<void(const Batch&, const StepOutput&)>;

struct FitResult {
  int64_t steps = 0, epochs = 0;
  bool interrupted = false;  ///< by a signal: the state is saved
  std::string reason;        ///< "done", "max_steps", "early stopping ..."
  Logs logs;                 ///< of the last epoch
  int64_t skipped = 0;       ///< updates left out by OnNonFinite::skip
  int64_t overflows = 0;     ///< updates that the gradient scaler left out
  double seconds = 0;
};

class TD_API Trainer {
 public:
  /// `step` is called on symbolic tensors once per shape of batch when options.compile is set.
  /// Model and optimizer must outlive the trainer.
  Trainer(nn::Module& model, StepFunction step, optim::Optimizer& optimizer,
          TrainerOptions options = {});
  /// The usual step: loss(net(batch[0]), batch[1]).
  template <class Net, class Loss>
    requires(
        std::is_base_of_v<nn::Module, Net>&& std::is_invocable_r_v<Tensor, Loss&, Tensor, Tensor>)
  Trainer(Net& net, Loss loss, optim::Optimizer& optimizer, TrainerOptions options = {})
      : Trainer(static_cast<nn::Module&>(net), supervised(net, std::move(loss)), optimizer,
                std::move(options)) {}
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  Trainer& add(std::shared_ptr<Callback> callback);
  Trainer& clear_callbacks();
  Trainer& schedule(optim::LRScheduler& schedule);
  /// Further state that checkpoints hold.
  Trainer& part(RunParts::Extra extra);

  /// Train until the epochs, steps or seconds are used up, a callback stops or a signal comes.
  /// Throws Value for the first non-finite loss or gradient (OnNonFinite::stop).
  FitResult fit(data::AnyPipeline train, std::optional<data::AnyPipeline> val = {});
  /// Loss and metrics over a pipeline in evaluation mode, with `prefix` before their names.
  /// `see`, if given, is shown each batch with its output and target.
  Logs validate(data::AnyPipeline data, const std::string& prefix = "val/", int64_t limit = -1,
                const BatchViewer& see = {});
  /// The outputs of the step over a pipeline, one after the other along dimension 0.
  Tensor predict(data::AnyPipeline data);
  /// One update on a batch outside of fit(), as it makes them: gives the loss before it. An update
  /// that is not finite is held back (OnNonFinite::stop and skip).
  double update(const Batch& batch);
  /// A sweep over learning rates on batches of `train` (tandem/train/lr_find.h), with every part of
  /// the run put back afterwards.
  LRFindResult lr_find(data::AnyPipeline train, const LRFindOptions& options = {});
  /// Batch sizes by doubling (tandem/train/find_batch.h) on batches of what `make(size)` gives,
  /// with every part of the run put back afterwards.
  FindBatchResult find_batch(const std::function<data::AnyPipeline(int64_t size)>& make,
                             const FindBatchOptions& options = {});
  /// The weights of the best checkpoint into the model; false when there is none.
  bool load_best();

  /// End the run after this step.
  void stop(std::string reason);
  nn::Module& model() const { return model_; }
  const StepFunction& step_function() const { return step_function_; }
  optim::Optimizer& optimizer() const { return optimizer_; }
  const TrainerOptions& options() const { return options_; }
  /// Changes count from the next fit() on; what the compiled step holds (accumulate, clip_norm,
  /// compile, bf16, f16, on_nonfinite, metrics) must stay.
  TrainerOptions& options() { return options_; }
  /// The scaler of f16; null without.
  optim::GradScaler* scaler() const { return scaler_.get(); }
  int64_t step() const { return step_; }
  int64_t epoch() const { return epoch_; }
  /// Name, step and value of all that was logged by this process.
  struct Record {
    int64_t step, epoch;
    Logs logs;
  };
  const std::vector<Record>& history() const { return history_; }
  /// Write values to metrics.jsonl and the history (callbacks may add their own).
  void log(const Logs& logs);
  std::string monitor() const;
  /// Means over the epoch so far: "train/loss", the metrics, and "lr".
  Logs train_logs() const;
  /// The pipeline that fit() runs over; null outside of it.
  const data::AnyPipeline* data() const { return data_; }

 private:
  struct Running;
  template <class Net, class Loss>
  static StepFunction supervised(Net& net, Loss loss) {
    return [&net, loss = std::move(loss)](const Batch& b) {
      TD_CHECK(b.size() >= 2, Value, "the step wants batches of two fields, got {}", b.size());
      Tensor out = net(b[0]);
      return StepOutput{loss(out, b[1]), out, b[1]};
    };
  }
  void train_epoch(Running& run, data::AnyPipeline& train);
  bool train_batch(Running& run, const Batch& batch, bool last);
  [[noreturn]] void explain(const Batch& batch, double loss, double norm, GeneratorState rng);
  void save(std::optional<double> score);
  void resume(Running& run);
  void show(Running& run, data::AnyPipeline& train);
  RunParts parts();
  std::string callback_key(size_t i) const;
  std::string callback_prefix(size_t i) const;
  Logs system_logs(Running& run) const;

  nn::Module& model_;
  StepFunction step_function_;
  optim::Optimizer& optimizer_;
  TrainerOptions options_;
  optim::LRScheduler* schedule_ = nullptr;
  std::vector<std::shared_ptr<Callback>> callbacks_;
  std::vector<RunParts::Extra> extra_;
  std::vector<std::unique_ptr<Metric>> metrics_;
  std::unique_ptr<optim::GradScaler> scaler_;
  data::AnyPipeline* data_ = nullptr;
  std::unique_ptr<Checkpoints> checkpoints_;
  std::vector<Record> history_;
  int64_t step_ = 0, epoch_ = 0;
  double loss_sum_ = 0, samples_ = 0;  ///< of this epoch
  int64_t micro_ = 0;                  ///< batches since the last update
  int64_t skipped_ = 0, overflows_ = 0;
  std::string stop_;
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace tandem::train
