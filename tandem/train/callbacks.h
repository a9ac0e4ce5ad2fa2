// SPDX-License-Identifier: Apache-2.0
// Callbacks with Keras's names, options and defaults. What they watch is named as the logs are:
// "val/loss", "train/accuracy". A mode is told from the name: what ends in loss, mae, mse or rmse
// is better when lower, everything else when higher; or say "min" or "max".
#pragma once

#include "tandem/optim/combined_schedules.h"
#include "tandem/train/event_file.h"
#include "tandem/train/trainer.h"

namespace tandem::train {

struct EarlyStoppingOptions {
  std::string monitor = "val/loss";
  double min_delta = 0;
  int64_t patience = 0;  ///< epochs without getting better
  std::string mode = "auto";
  bool restore_best_weights = false;
  int64_t start_from_epoch = 0;
};
/// Ends the run when the watched value has not got better.
class TD_API EarlyStopping : public Callback {
 public:
  explicit EarlyStopping(EarlyStoppingOptions options = {}) : o_(std::move(options)) {}
  void epoch_end(Trainer& t, const Logs& logs) override;
  void fit_end(Trainer& t) override;
  io::Json state() const override;
  void load_state(const io::Json& state) override;
  const char* name() const override { return "EarlyStopping"; }
  double best() const { return best_; }

 private:
  EarlyStoppingOptions o_;
  double best_ = std::numeric_limits<double>::quiet_NaN();
  int64_t wait_ = 0;
  StateDict weights_;
};

struct ReduceLROnPlateauOptions {
  std::string monitor = "val/loss";
  double factor = 0.1;
  int64_t patience = 10;
  std::string mode = "auto";
  double min_delta = 1e-4;
  int64_t cooldown = 0;
  double min_lr = 0;
};
/// The learning rate times `factor` when the watched value has not got better.
class TD_API ReduceLROnPlateau : public Callback {
 public:
  explicit ReduceLROnPlateau(ReduceLROnPlateauOptions options = {}) : o_(std::move(options)) {}
  void epoch_end(Trainer& t, const Logs& logs) override;
  io::Json state() const override;
  void load_state(const io::Json& state) override;
  const char* name() const override { return "ReduceLROnPlateau"; }

 private:
  ReduceLROnPlateauOptions o_;
  double best_ = std::numeric_limits<double>::quiet_NaN();
  int64_t wait_ = 0, cooldown_ = 0;
};

struct ModelCheckpointOptions {
  std::string monitor = "val/loss";
  bool save_best_only = false;
  std::string mode = "auto";
};
/// The weights as a safetensors file after every epoch; "{epoch}" in the path is its number,
/// from 1.
class TD_API ModelCheckpoint : public Callback {
 public:
  explicit ModelCheckpoint(std::string path, ModelCheckpointOptions options = {})
      : path_(std::move(path)), o_(std::move(options)) {}
  void epoch_end(Trainer& t, const Logs& logs) override;
  io::Json state() const override;
  void load_state(const io::Json& state) override;
  const char* name() const override { return "ModelCheckpoint"; }

 private:
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

 private:
  std::string path_;
  char separator_;
  bool append_, head_ = false;
  std::unique_ptr<AppendFile> file_;
};

struct TensorBoardOptions {
  int64_t histogram_freq = 0;  ///< epochs between histograms of the weights; 0: none
};
/// Scalars of steps and epochs, and histograms, as event files.
class TD_API TensorBoard : public Callback {
 public:
  explicit TensorBoard(std::string folder, TensorBoardOptions options = {})
      : folder_(std::move(folder)), o_(options) {}
  void fit_begin(Trainer& t) override;
  void step_end(Trainer& t, const Logs& logs) override;
  void epoch_end(Trainer& t, const Logs& logs) override;
  const char* name() const override { return "TensorBoard"; }

 private:
  std::string folder_;
  TensorBoardOptions o_;
  std::unique_ptr<EventFile> events_;
};

/// Ends the run (without an error) at a logged value that is no finite number; for runs with
/// OnNonFinite::off.
class TD_API TerminateOnNaN : public Callback {
 public:
  void step_end(Trainer& t, const Logs& logs) override;
  const char* name() const override { return "TerminateOnNaN"; }
};

}  // namespace tandem::train
