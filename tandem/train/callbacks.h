// SPDX-License-Identifier: Apache-2.0
// Callbacks with Keras's names, options and defaults. What they watch is named as the logs are,
// "val/loss", "train/accuracy", or as Keras does: "val_loss", "accuracy". A mode is told from the
// name: what ends in loss, mae, mse or rmse is better when lower, everything else when higher; or
// say "min" or "max".
#pragma once

#include "tandem/optim/combined_schedules.h"
#include "tandem/runs/event_file.h"
#include "tandem/runs/progress.h"
#include "tandem/train/callback_options.h"
#include "tandem/train/trainer.h"

namespace tandem::train {

/// "val/loss" of "val_loss", "train/accuracy" of "accuracy"; names of logs stay as they are.
TD_API std::string log_name(const std::string& keras_name);
/// The other way: "val_loss", "accuracy", "learning_rate".
TD_API std::string keras_name(const std::string& log_name);

/// Ends the run when the monitored value has stopped improving. A run that ended so and is started
/// again ends at once, unless its patience has grown.
class TD_API EarlyStopping : public Callback {
 public:
  explicit EarlyStopping(EarlyStoppingOptions options = {}) : o_(std::move(options)) {}
  void fit_begin(Trainer& t) override;
  void epoch_end(Trainer& t, const Logs& logs) override;
  void validation_end(Trainer& t, const Logs& logs) override;
  void fit_end(Trainer& t) override;
  io::Json state() const override;
  void load_state(const io::Json& state) override;
  /// The best weights, where they are to be restored.
  StateDict tensors() const override { return weights_; }
  void load_tensors(const StateDict& tensors) override { weights_ = tensors; }
  const char* name() const override { return "EarlyStopping"; }
  bool reads_weights() const override { return o_.restore_best_weights; }
  double best() const { return best_; }

 private:
  void evaluate(Trainer& t, const Logs& logs);
  void stop_if_due(Trainer& t) const;
  EarlyStoppingOptions o_;
  double best_ = std::numeric_limits<double>::quiet_NaN();
  int64_t wait_ = 0;
  bool resumed_ = false;  ///< the state is a checkpoint's
  StateDict weights_;
};

/// Multiplies the learning rate by `factor` when the monitored value has stopped improving.
class TD_API ReduceLROnPlateau : public Callback {
 public:
  explicit ReduceLROnPlateau(ReduceLROnPlateauOptions options = {}) : o_(std::move(options)) {}
  void epoch_end(Trainer& t, const Logs& logs) override;
  void validation_end(Trainer& t, const Logs& logs) override;
  io::Json state() const override;
  void load_state(const io::Json& state) override;
  const char* name() const override { return "ReduceLROnPlateau"; }
  bool reads_weights() const override { return false; }

 private:
  void evaluate(Trainer& t, const Logs& logs);
  ReduceLROnPlateauOptions o_;
  double best_ = std::numeric_limits<double>::quiet_NaN();
  int64_t wait_ = 0, cooldown_ = 0;
};

/// The weights as a safetensors file after every epoch. In the path "{epoch}" is its number, from
/// 1, and the name of a log its value, with a format as in "{epoch:02d}-{val_loss:.2f}". Throws
/// Value for a name that is not logged.
class TD_API ModelCheckpoint : public Callback {
 public:
  explicit ModelCheckpoint(std::string path, ModelCheckpointOptions options = {})
      : path_(std::move(path)), o_(std::move(options)) {
    if (o_.initial_value_threshold) best_ = *o_.initial_value_threshold;
  }
  void step_end(Trainer& t, const Logs& logs) override;
  void epoch_end(Trainer& t, const Logs& logs) override;
  io::Json state() const override;
  void load_state(const io::Json& state) override;
  const char* name() const override { return "ModelCheckpoint"; }
  bool only_main_rank() const override { return true; }

 private:
  void write(Trainer& t, const Logs& logs);
  std::string path_;
  ModelCheckpointOptions o_;
  double best_ = std::numeric_limits<double>::quiet_NaN();
};

/// A line per epoch: epoch and all that was logged.
class TD_API CSVLogger : public Callback {
 public:
  explicit CSVLogger(std::string path, char separator = ',', bool append = false)
      : path_(std::move(path)), separator_(separator), append_(append) {}
  void fit_begin(Trainer& t) override;
  void epoch_end(Trainer& t, const Logs& logs) override;
  const char* name() const override { return "CSVLogger"; }
  bool reads_weights() const override { return false; }
  bool only_main_rank() const override { return true; }

 private:
  std::string path_;
  char separator_;
  bool append_, head_ = false;
  std::unique_ptr<runs::AppendFile> file_;
};

/// Scalars of steps and epochs, histograms, graph and settings as event files. Where a run is
/// resumed, what was written after the checkpoint is not shown twice.
class TD_API TensorBoard : public Callback {
 public:
  explicit TensorBoard(std::string folder, TensorBoardOptions options = {})
      : folder_(std::move(folder)), o_(options) {}
  void fit_begin(Trainer& t) override;
  void step_end(Trainer& t, const Logs& logs) override;
  void validation_end(Trainer& t, const Logs& logs) override;
  void epoch_end(Trainer& t, const Logs& logs) override;
  void fit_end(Trainer& t) override;
  const char* name() const override { return "TensorBoard"; }
  bool reads_weights() const override { return o_.histogram_freq > 0; }
  bool only_main_rank() const override { return true; }

 private:
  void write_graph(Trainer& t);
  std::string folder_;
  TensorBoardOptions o_;
  std::unique_ptr<runs::EventFile> events_;
};

/// Ends the run (without an error) at a logged value that is not a finite number; for runs with
/// OnNonFinite::off.
class TD_API TerminateOnNaN : public Callback {
 public:
  void step_end(Trainer& t, const Logs& logs) override;
  const char* name() const override { return "TerminateOnNaN"; }
  bool reads_weights() const override { return false; }
};

/// Checkpoints of the whole state in a folder of their own: an interrupted run
/// resumes from it with identical bits. A Trainer with a folder does so by itself.
class TD_API BackupAndRestore : public Callback {
 public:
  explicit BackupAndRestore(std::string folder, BackupAndRestoreOptions options = {})
      : folder_(std::move(folder)), o_(options) {}
  void configure(TrainerOptions& options) override;
  void fit_end(Trainer& t) override;
  const char* name() const override { return "BackupAndRestore"; }
  bool reads_weights() const override { return false; }

 private:
  std::string folder_;
  BackupAndRestoreOptions o_;
};

/// Sets the rate at the start of each epoch: schedule(epoch from 0, current rate).
class TD_API LearningRateScheduler : public Callback {
 public:
  explicit LearningRateScheduler(std::function<double(int64_t epoch, double lr)> schedule)
      : schedule_(std::move(schedule)) {}
  void epoch_begin(Trainer& t) override;
  const char* name() const override { return "LearningRateScheduler"; }
  bool reads_weights() const override { return false; }

 private:
  std::function<double(int64_t, double)> schedule_;
};

/// Functions as a callback; empty ones are skipped.
struct LambdaCallbackOptions {
  std::function<void(Trainer&)> on_train_begin = {}, on_train_end = {}, on_epoch_begin = {};
  std::function<void(Trainer&, const Logs&)> on_epoch_end = {}, on_train_batch_end = {};
  std::function<void(Trainer&, const Batch&)> on_train_batch_begin = {};
  /// Around each validation of fit() and each evaluating outside of it, as in Keras.
  std::function<void(Trainer&)> on_test_begin = {};
  std::function<void(Trainer&, const Logs&)> on_test_end = {};
  std::function<void(Trainer&)> on_predict_begin = {}, on_predict_end = {};
  std::function<void(Trainer&, const std::string& folder)> on_checkpoint = {};
  std::function<void(Trainer&, const std::exception&)> on_exception = {};
};
/// Calls the functions of its options.
class TD_API LambdaCallback : public Callback {
 public:
  explicit LambdaCallback(LambdaCallbackOptions options) : o_(std::move(options)) {}
  void fit_begin(Trainer& t) override;
  void fit_end(Trainer& t) override;
  void epoch_begin(Trainer& t) override;
  void batch_begin(Trainer& t, const Batch& batch) override;
  void step_end(Trainer& t, const Logs& logs) override;
  void validation_begin(Trainer& t) override;
  void validation_end(Trainer& t, const Logs& logs) override;
  void epoch_end(Trainer& t, const Logs& logs) override;
  void checkpoint_saved(Trainer& t, const std::string& folder) override;
  void exception(Trainer& t, const std::exception& error) override;
  void test_begin(Trainer& t) override;
  void test_end(Trainer& t, const Logs& logs) override;
  void predict_begin(Trainer& t) override;
  void predict_end(Trainer& t) override;
  const char* name() const override { return "LambdaCallback"; }

 private:
  LambdaCallbackOptions o_;
};

/// Keras's exponential average of the weights: TrainerOptions::average as a callback.
class TD_API SwapEMAWeights : public Callback {
 public:
  explicit SwapEMAWeights(double ema_momentum = 0.99) : momentum_(ema_momentum) {}
  void configure(TrainerOptions& options) override;
  const char* name() const override { return "SwapEMAWeights"; }
  bool reads_weights() const override { return false; }

 private:
  double momentum_;
};

/// Sends the logs of each epoch as a JSON object in a POST. A server that does not answer is a
/// warning (one), never the end of a run.
class TD_API RemoteMonitor : public Callback {
 public:
  explicit RemoteMonitor(RemoteMonitorOptions options = {}) : o_(std::move(options)) {}
  void epoch_end(Trainer& t, const Logs& logs) override;
  const char* name() const override { return "RemoteMonitor"; }
  bool reads_weights() const override { return false; }
  bool only_main_rank() const override { return true; }

 private:
  RemoteMonitorOptions o_;
  bool told_ = false;
};

/// What was logged at the ends of the epochs, by Keras's names: history["val_loss"][epoch].
class TD_API History : public Callback {
 public:
  void fit_begin(Trainer& t) override;
  void epoch_end(Trainer& t, const Logs& logs) override;
  const char* name() const override { return "History"; }
  bool reads_weights() const override { return false; }
  /// Numbers of the epochs, from 0.
  const std::vector<int64_t>& epoch() const { return epoch_; }
  std::vector<std::string> keys() const;
  /// NaN for epochs without that value. Throws Value with the names there are.
  const std::vector<double>& operator[](const std::string& name) const;

 private:
  std::vector<int64_t> epoch_;
  std::vector<std::pair<std::string, std::vector<double>>> values_;
};

/// Figures of every layer on one batch (tandem/train/layer_figures.h), after epochs 1, 2, 4, 8 ...
/// and at the end, as lines of layers.jsonl in the run's folder. The run's bits stay the same.
class TD_API WatchLayers : public Callback {
 public:
  /// `batch` makes the batch; without it the first one of the training data is taken.
  explicit WatchLayers(std::function<Batch()> batch = {}) : batch_(std::move(batch)) {}
  void epoch_end(Trainer& t, const Logs& logs) override;
  const char* name() const override { return "WatchLayers"; }

 private:
  std::function<Batch()> batch_;
};

/// Keras's lines: "Epoch 1/5", a bar with the running means on a terminal, and the values at the
/// epoch's end. To stderr.
class TD_API ProgbarLogger : public Callback {
 public:
  /// `bar` false: a line an epoch and no more.
  explicit ProgbarLogger(bool bar = true) : bar_(bar) {}
  ~ProgbarLogger() override;
  void epoch_begin(Trainer& t) override;
  void step_end(Trainer& t, const Logs& logs) override;
  void epoch_end(Trainer& t, const Logs& logs) override;
  const char* name() const override { return "ProgbarLogger"; }
  bool reads_weights() const override { return false; }
  bool only_main_rank() const override { return true; }

 private:
  std::string line(Trainer& t, int64_t done, int64_t all, const Logs& logs) const;
  bool bar_;
  std::unique_ptr<runs::Progress> progress_;
};

}  // namespace tandem::train
