// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/callback_table.h"

#include "tandem/base/error.h"

namespace tandem::train {
namespace {

std::string within(const std::string& folder, const std::string& path) {
  return folder.empty() || path.starts_with("/") ? path : folder + "/" + path;
}

/// A callback that writes a file or a folder and has options besides.
template <class C, class Options>
struct Writes {
  std::string path = {};
  Options options = {};
  template <class V>
  void fields(V& v) {
    v("path", path, {.doc = "what it writes, in the run's folder", .required = true});
    options.fields(v);
  }
  std::shared_ptr<Callback> make(const std::string& folder) const {
    return std::make_shared<C>(within(folder, path), options);
  }
};
template <class C, class Options>
struct Has {
  Options options = {};
  template <class V>
  void fields(V& v) {
    options.fields(v);
  }
  std::shared_ptr<Callback> make(const std::string&) const { return std::make_shared<C>(options); }
};
struct CSVLoggerArguments {
  std::string path = "log.csv", separator = ",";
  bool append = false;
  template <class V>
  void fields(V& v) {
    v("path", path, {.doc = "what it writes, in the run's folder"});
    v("separator", separator, {.doc = "one character between values"});
    v("append", append, {.doc = "add to a file that is there"});
  }
  std::shared_ptr<Callback> make(const std::string& folder) const {
    TD_CHECK(separator.size() == 1, Value,
             "CSVLogger expects a separator of one character, got '{}'", separator);
    return std::make_shared<CSVLogger>(within(folder, path), separator[0], append);
  }
};
struct SwapEMAWeightsArguments {
  double ema_momentum = 0.99;
  template <class V>
  void fields(V& v) {
    v("ema_momentum", ema_momentum,
      {.doc = "share of the average that an update keeps", .at_least = 0, .at_most = 1});
  }
  std::shared_ptr<Callback> make(const std::string&) const {
    return std::make_shared<SwapEMAWeights>(ema_momentum);
  }
};
struct ProgbarLoggerArguments {
  bool bar = true;
  template <class V>
  void fields(V& v) {
    v("bar", bar, {.doc = "a bar with the running means; else a line an epoch"});
  }
  std::shared_ptr<Callback> make(const std::string&) const {
    return std::make_shared<ProgbarLogger>(bar);
  }
};

template <class P>
constexpr CallbackRow row(const char* name, const char* doc, const char* example) {
  return {{name, doc, example, &kFieldsType<P>},
          [](const void* options, const std::string& folder) {
            return static_cast<const P*>(options)->make(folder);
          }};
}
template <class C>
constexpr CallbackRow plain_row(const char* name, const char* doc, const char* example) {
  return {{name, doc, example}, [](const void*, const std::string&) -> std::shared_ptr<Callback> {
            return std::make_shared<C>();
          }};
}

constexpr CallbackRow kCallbacks[] = {
    row<Has<EarlyStopping, EarlyStoppingOptions>>(
        "early_stopping", "Ends the run when the watched value has not got better.",
        "{type: early_stopping, monitor: train/loss, patience: 3}"),
    row<Has<ReduceLROnPlateau, ReduceLROnPlateauOptions>>(
        "reduce_lr_on_plateau",
        "The learning rate times a factor when the watched value has not got better.",
        "{type: reduce_lr_on_plateau, monitor: train/loss, patience: 2}"),
    row<Writes<ModelCheckpoint, ModelCheckpointOptions>>(
        "model_checkpoint", "The weights as a safetensors file after every epoch.",
        "{type: model_checkpoint, path: \"{epoch:02d}.safetensors\", monitor: train/loss}"),
    row<CSVLoggerArguments>("csv_logger", "A line per epoch with all that was logged.",
                            "{type: csv_logger, path: log.csv}"),
    row<Writes<TensorBoard, TensorBoardOptions>>(
        "tensorboard", "Scalars, histograms and the graph as event files.",
        "{type: tensorboard, path: events, histogram_freq: 1}"),
    plain_row<TerminateOnNaN>(
        "terminate_on_nan",
        "Ends the run, without an error, at a value that is not a finite number.",
        "{type: terminate_on_nan}"),
    row<Writes<BackupAndRestore, BackupAndRestoreOptions>>(
        "backup_and_restore", "Checkpoints of the whole state in a folder of their own.",
        "{type: backup_and_restore, path: backup}"),
    row<SwapEMAWeightsArguments>("swap_ema_weights", "An exponential average of the weights.",
                                 "{type: swap_ema_weights, ema_momentum: 0.9}"),
    row<Has<RemoteMonitor, RemoteMonitorOptions>>(
        "remote_monitor", "Sends the logs of each epoch as JSON in a POST.",
        "{type: remote_monitor, root: \"http://127.0.0.1:9\", seconds: 0.1}"),
    row<ProgbarLoggerArguments>("progbar_logger", "Keras's lines of progress, to stderr.",
                                "{type: progbar_logger, bar: false}"),
    plain_row<WatchLayers>("watch_layers",
                           "Figures of every layer after epochs 1, 2, 4, 8 ... and at the end.",
                           "{type: watch_layers}"),
};

}  // namespace

const RegistryBase& CallbackRow::registry() { return callbacks(); }

Registry<CallbackRow>& callbacks() {
  static Registry<CallbackRow> all("callback", std::span<const CallbackRow>(kCallbacks));
  return all;
}

std::shared_ptr<Callback> make_callback(const ChosenCallback& chosen, const std::string& folder) {
  TD_CHECK(chosen, Value, "no callback was chosen");
  return chosen->make(chosen.options.get(), folder);
}

}  // namespace tandem::train
