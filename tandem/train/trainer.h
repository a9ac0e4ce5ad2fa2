// SPDX-License-Identifier: Apache-2.0
// Trainer: fit, validate and predict over pipelines with a compiled step, progress line, metrics,
// callbacks, checkpoints with exact resume and checks for NaN. Each part is a function of this room
// that your own loop can call.
#pragma once

#include <chrono>

#include "tandem/graph/rng.h"
#include "tandem/train/find_batch.h"
#include "tandem/train/lr_find.h"
#include "tandem/train/metrics.h"
#include "tandem/train/run_state.h"
#include "tandem/train/trainer_options.h"
#include "tandem/train/updates.h"

namespace tandem::train {

/// Names and values in order: "train/loss", "val/accuracy", "lr".
using Logs = std::vector<std::pair<std::string, double>>;
/// The value of `name`; NaN when it is not there.
TD_API double find_log(const Logs& logs, const std::string& name);
class Trainer;

/// When the Trainer steps a schedule.
enum class ScheduleEvery : uint8_t { step, epoch };

/// Hooks into a run. All are called on the training thread.
class TD_API Callback {
 public:
  virtual ~Callback() = default;
  /// Before a run opens its files and its checkpoint: the options may be changed.
  virtual void configure(TrainerOptions&) {}
  virtual void fit_begin(Trainer&) {}
  virtual void epoch_begin(Trainer&) {}
  virtual void batch_begin(Trainer&, const Batch&) {}
  virtual void step_end(Trainer&, const Logs&) {}
  /// Around each validation of fit(); not at the end of one that a signal cut off.
  virtual void validation_begin(Trainer&) {}
  virtual void validation_end(Trainer&, const Logs&) {}
  /// After validation, where there is one.
  virtual void epoch_end(Trainer&, const Logs&) {}
  /// A checkpoint of this step was handed to its writer.
  virtual void checkpoint_saved(Trainer&, const std::string& /*folder*/) {}
  virtual void fit_end(Trainer&) {}
  /// fit() will throw this.
  virtual void exception(Trainer&, const std::exception&) {}
  /// Around validate() and predict() outside of fit().
  virtual void test_begin(Trainer&) {}
  virtual void test_end(Trainer&, const Logs&) {}
  virtual void predict_begin(Trainer&) {}
  virtual void predict_end(Trainer&) {}
  /// What a resumed run must know; null: nothing.
  virtual io::Json state() const { return {}; }
  virtual void load_state(const io::Json&) {}
  /// The same for tensors: they are in checkpoints beside the optimizer's.
  virtual StateDict tensors() const { return {}; }
  virtual void load_tensors(const StateDict&) {}
  virtual const char* name() const = 0;
  /// Is it for rank 0 alone? One that only writes is; one that steers the run is for all ranks.
  virtual bool only_main_rank() const { return false; }
  /// Do epoch_end(), checkpoint_saved(), tensors() or state() read weights, to be gathered before?
  virtual bool reads_weights() const { return true; }
};

/// Sees a batch of a validation with what the step made of it.
using BatchViewer = std::function<void(const Batch&, const StepOutput&)>;

struct FitResult {
  int64_t steps = 0, epochs = 0;
  bool interrupted = false;  ///< by a signal or a notice: the state is saved
  bool preempted = false;    ///< by a notice
  std::string reason;        ///< "done", "max_steps", "early stopping ..."
  Logs logs;                 ///< of the last epoch
  int64_t skipped = 0;       ///< updates left out by OnNonFinite::skip
  int64_t overflows = 0;     ///< updates that the gradient scaler left out
  double seconds = 0;
};

/// The mean of losses, each times the weight of its sample where there are weights [n]. Throws
/// Shape for weights beside a loss that is one number.
TD_API Tensor mean_loss(Tensor loss, const Tensor& weights);

/// Trains a model on pipelines: epochs, validations, logs, checkpoints, resuming.
class TD_API Trainer {
 public:
  /// `step` is called on symbolic tensors once per shape of batch when options.compile is set.
  /// Model and optimizer must outlive the trainer.
  Trainer(nn::Module& model, StepFunction step, optim::Optimizer& optimizer,
          TrainerOptions options = {});
  /// The usual step: loss(net(batch[0]), batch[1]). A loss may give a value per sample: their mean
  /// counts. A third field holds weights of the samples [n]: the loss must then give a value per
  /// sample, [n] or [n, ...], and the mean of weight times loss counts (as in Keras).
  template <nn::IsModule Net, class Loss>
    requires(std::is_invocable_r_v<Tensor, Loss&, Tensor, Tensor>)
  Trainer(Net& net, Loss loss, optim::Optimizer& optimizer, TrainerOptions options = {})
      : Trainer(static_cast<nn::Module&>(net), supervised(net, std::move(loss)), optimizer,
                std::move(options)) {}
  /// A step with several optimizers (train/updates.h): it computes their losses one after the other
  /// and hands each to Updates. Its losses are logged as "train/<name>_loss" and "val/<name>_loss",
  /// the rates as "lr/<name>". Throws Value for names that are empty or come twice.
  Trainer(nn::Module& model, UpdateStep step, std::vector<NamedOptimizer> optimizers,
          TrainerOptions options = {});
  /// The same with the module's own `StepOutput training_step(const Batch&, Updates&)`.
  template <class Net>
    requires requires(Net& n, const Batch& b, Updates& u) {
      { n.training_step(b, u) } -> std::convertible_to<StepOutput>;
    }
  Trainer(Net& net, std::vector<NamedOptimizer> optimizers, TrainerOptions options = {})
      : Trainer(
            static_cast<nn::Module&>(net),
            [&net](const Batch& b, Updates& update) { return net.training_step(b, update); },
            std::move(optimizers), std::move(options)) {}
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Callbacks are called in the order in which they were added.
  Trainer& add(std::shared_ptr<Callback> callback);
  Trainer& clear_callbacks();
  /// The rates of the run, one step further after every update or at each epoch's end; one schedule
  /// for each optimizer.
  Trainer& schedule(optim::LRScheduler& schedule, ScheduleEvery every = ScheduleEvery::step);
  /// Further state that checkpoints hold.
  Trainer& part(RunParts::Extra extra);
  /// What is asked when fit() resumes a run.
  Trainer& on_resume(ResumeHooks hooks);

  /// Train until the epochs, steps or seconds are used up, a callback stops or a signal comes.
  /// Throws Value for the first non-finite loss or gradient (OnNonFinite::stop). Where ranks shard
  /// parameters, the net may lack values after any other exception: load a checkpoint then.
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
  /// the run put back afterwards. Throws Unsupported for several optimizers.
  LRFindResult lr_find(data::AnyPipeline train, const LRFindOptions& options = {});
  /// Batch sizes by doubling (tandem/train/find_batch.h) on batches of what `make(size)` gives,
  /// with every part of the run put back afterwards.
  FindBatchResult find_batch(const std::function<data::AnyPipeline(int64_t size)>& make,
                             const FindBatchOptions& options = {});
  /// The weights of the best checkpoint into the model (its average, where there is one); false
  /// when there is none.
  bool load_best();
  /// The weights that validation sees: the average, once there is one.
  StateDict weights();

  /// End the run after this step.
  void stop(std::string reason);
  nn::Module& model() const { return model_; }
  /// The step on a batch, without updates; of several optimizers with the sum of their losses.
  const StepFunction& step_function() const { return step_function_; }
  /// The optimizer; of several the first.
  optim::Optimizer& optimizer() const { return optimizers_.front().optimizer; }
  /// All of them; an only one has no name.
  const std::vector<NamedOptimizer>& optimizers() const { return optimizers_; }
  /// Where the model is: steps run there, on copies of the batches.
  Device device() const;
  const TrainerOptions& options() const { return options_; }
  /// Changes count from the next fit() on; what the compiled step holds (accumulate, clip_norm,
  /// compile, precision, on_nonfinite, metrics) must stay.
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
  /// The log by which the best checkpoint is told.
  std::string monitor() const;
  /// Means over the epoch so far: "train/loss", the step's figures, the metrics, and "lr".
  Logs train_logs() const;
  /// The pipeline that fit() runs over; null outside of it.
  const data::AnyPipeline* data() const { return data_; }

 private:
  struct Running;
  template <class Net, class Loss>
  static StepFunction supervised(Net& net, Loss loss) {
    return [&net, loss = std::move(loss)](const Batch& b) {
      TD_CHECK(b.size() >= 2, Value, "the step expects batches of two fields, got {}", b.size());
      Tensor out = net(b[0]);
      return StepOutput{mean_loss(loss(out, b[1]), b.size() > 2 ? b[2] : Tensor()), out, b[1]};
    };
  }
  class StepUpdates;
  struct StepResult;
  struct Mean {
    std::string name;
    double sum = 0, count = 0;
  };
  void make_steps();
  bool several() const { return !optimizers_.front().name.empty(); }
  int64_t due_optimizers(int64_t step) const;
  StepResult train_step(const Batch& batch, bool first, bool last, int64_t due);
  StepResult single_step(const Batch& batch, bool first, bool last);
  Tensor apply_update(optim::Optimizer& optimizer, const Tensor& loss, Tensor& good);
  void zero_gradients();
  void step_schedules(ScheduleEvery now);
  void add_rates(Logs& logs) const;
  enum class Due : uint8_t { none, epoch, end, validation };
  FitResult run_fit(Running& run, data::AnyPipeline& train, std::optional<data::AnyPipeline>& val);
  void open(Running& run);
  void join_ranks(const data::AnyPipeline& data);
  void join_server(const data::AnyPipeline& data);
  void share_out();
  void make_whole();
  void compile_steps();
  bool sharded() const;
  void check_parallel(int64_t ranks) const;
  StepResult step_on_ranks(const Batch& batch, bool first, bool update, int64_t due);
  StepResult step_in_stages(const Batch& batch, bool first);
  bool whole_batch() const;
  bool stop_asked() const;
  bool over_time() const;
  std::vector<double> sums_over_ranks(std::vector<double> own) const;
  void leave_ranks();
  data::AnyPipeline own_elements(const data::AnyPipeline& data, int64_t& count, bool even) const;
  void merge_ranks(std::vector<Mean>& figures, std::vector<std::unique_ptr<Metric>>& metrics,
                   std::vector<double>* sums) const;
  Logs epoch_logs();
  std::optional<Snapshot> load_shared() const;
  void train_epoch(Running& run, data::AnyPipeline& train, std::optional<data::AnyPipeline>& val);
  bool end_epoch(Running& run, std::optional<data::AnyPipeline>& val, bool whole);
  bool step_validation(Running& run, data::AnyPipeline& val);
  std::optional<Logs> evaluate(Running& run, data::AnyPipeline& val);
  bool asked_to_stop(Running& run);
  void write_logs(Running& run, const Logs& logs);
  void write_part(Running& run);
  void make_average(const data::AnyPipeline& train);
  void average(bool epoch_end);
  void finish_average(const data::AnyPipeline& train, bool renew);
  bool train_batch(Running& run, const Batch& batch, bool last);
  [[noreturn]] void explain(const Batch& batch, const std::string& what, GeneratorState rng);
  void take_whole(RunParts& to);
  void save(std::optional<double> score);
  void resume(Running& run);
  void release_checkpoints();
  std::string progress_line(const Running& run, const data::AnyPipeline& train) const;
  RunParts parts();
  bool higher_is_better() const;
  std::string callback_key(size_t i) const;
  Logs system_logs(Running& run) const;

  nn::Module& model_;
  StepFunction step_function_;
  UpdateStep update_step_;  ///< of several optimizers
  std::vector<NamedOptimizer> optimizers_;
  TrainerOptions options_;
  struct Scheduled {
    optim::LRScheduler* schedule;
    ScheduleEvery every;
  };
  std::vector<Scheduled> schedules_;
  std::vector<std::shared_ptr<Callback>> callbacks_;
  std::vector<RunParts::Extra> extra_;
  ResumeHooks resume_hooks_;
  std::vector<std::unique_ptr<Metric>> metrics_;
  std::unique_ptr<optim::GradScaler> scaler_;
  data::AnyPipeline* data_ = nullptr;
  std::unique_ptr<Checkpoints> checkpoints_;
  std::vector<Record> history_;
  int64_t step_ = 0, epoch_ = 0, micro_ = 0;  ///< micro_: batches since the last update
  double loss_sum_ = 0, samples_ = 0;         ///< of this epoch
  std::vector<Mean> figures_;                 ///< likewise, of the step's figures
  int64_t skipped_ = 0, overflows_ = 0;
  std::string stop_;
  std::unique_ptr<optim::WeightAverage> average_;
  int64_t average_from_ = 0;     ///< updates before the first value is taken
  bool fitting_ = false;         ///< a validation may be cut off
  bool cut_ = false;             ///< the last validation was
  Due due_ = Due::none;          ///< what a validation that was cut off still has to do
  int64_t evaluated_step_ = -1;  ///< step and values of the last validation
  Logs evaluated_;
  double seconds_before_ = 0;  ///< of earlier processes
  std::chrono::steady_clock::time_point fit_start_ = {};
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
  struct Ranks;
  class WholeSums;
  class WholeParams;
  std::unique_ptr<Ranks> ranks_;  ///< of a data parallel run
  struct Serving;
  std::unique_ptr<Serving> serving_;  ///< of a run with a parameter server
};

}  // namespace tandem::train
