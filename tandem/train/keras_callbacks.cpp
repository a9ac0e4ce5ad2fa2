// SPDX-License-Identifier: Apache-2.0
// Callbacks that Keras has besides: backups, rates, functions, averages, a remote monitor, history
// and the bar.
#include <algorithm>
#include <cmath>

#include "tandem/base/files/folder.h"
#include "tandem/base/log.h"
#include "tandem/base/nearest.h"
#include "tandem/train/callbacks.h"
#include "tandem/train/http_request.h"
#include "tandem/train/layer_figures.h"
#include "tandem/train/trainer/trainer_internal.h"

namespace tandem::train {

void BackupAndRestore::configure(TrainerOptions& options) {
  options.saving.folder = folder_;
  options.resume = true;
  if (o_.save_freq > 0) options.saving.every_steps = o_.save_freq;
}
void BackupAndRestore::fit_end(Trainer& t) {
  const bool kept = t.options().saving.folder.empty();  // fast_dev_run: there is none
  if (o_.delete_checkpoint && !kept && !stop_requested()) remove_folder(t.options().saving.folder);
}

void LearningRateScheduler::epoch_begin(Trainer& t) {
  for (const NamedOptimizer& o : t.optimizers()) {
    const double rate = schedule_(t.epoch(), o.optimizer.lr());
    TD_CHECK(std::isfinite(rate) && rate >= 0, Value,
             "LearningRateScheduler: the rate of epoch {} is {}", t.epoch(), rate);
    o.optimizer.set_lr(rate);
  }
}

void LambdaCallback::fit_begin(Trainer& t) {
  if (o_.on_train_begin) o_.on_train_begin(t);
}
void LambdaCallback::fit_end(Trainer& t) {
  if (o_.on_train_end) o_.on_train_end(t);
}
void LambdaCallback::epoch_begin(Trainer& t) {
  if (o_.on_epoch_begin) o_.on_epoch_begin(t);
}
void LambdaCallback::epoch_end(Trainer& t, const Logs& logs) {
  if (o_.on_epoch_end) o_.on_epoch_end(t, logs);
}
void LambdaCallback::batch_begin(Trainer& t, const Batch& batch) {
  if (o_.on_train_batch_begin) o_.on_train_batch_begin(t, batch);
}
void LambdaCallback::step_end(Trainer& t, const Logs& logs) {
  if (o_.on_train_batch_end) o_.on_train_batch_end(t, logs);
}
void LambdaCallback::validation_begin(Trainer& t) { test_begin(t); }
void LambdaCallback::validation_end(Trainer& t, const Logs& logs) { test_end(t, logs); }
void LambdaCallback::test_begin(Trainer& t) {
  if (o_.on_test_begin) o_.on_test_begin(t);
}
void LambdaCallback::test_end(Trainer& t, const Logs& logs) {
  if (o_.on_test_end) o_.on_test_end(t, logs);
}
void LambdaCallback::predict_begin(Trainer& t) {
  if (o_.on_predict_begin) o_.on_predict_begin(t);
}
void LambdaCallback::predict_end(Trainer& t) {
  if (o_.on_predict_end) o_.on_predict_end(t);
}
void LambdaCallback::checkpoint_saved(Trainer& t, const std::string& folder) {
  if (o_.on_checkpoint) o_.on_checkpoint(t, folder);
}
void LambdaCallback::exception(Trainer& t, const std::exception& error) {
  if (o_.on_exception) o_.on_exception(t, error);
}

void SwapEMAWeights::configure(TrainerOptions& options) {
  options.average.type = AverageKind::ema;
  options.average.decay = momentum_;
  options.average.warmup = false;
}

void RemoteMonitor::epoch_end(Trainer& t, const Logs& logs) {
  io::Json::Object values{{"epoch", t.epoch()}};
  for (const auto& [name, value] : logs) values.emplace_back(keras_name(name), value);
  HttpRequest r{.method = "POST",
                .url = o_.root + o_.path,
                .headers = o_.headers,
                .body = io::Json(std::move(values)).dump(),
                .seconds = o_.seconds};
  r.headers.emplace_back("Content-Type", "application/json");
  try {
    http_request(r);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Io) throw;  // an address of another form
    if (!told_) log_warning("RemoteMonitor: {}", e.what());
    told_ = true;
  }
}

void History::fit_begin(Trainer&) {
  epoch_.clear();
  values_.clear();
}
void History::epoch_end(Trainer& t, const Logs& logs) {
  for (const auto& [name, value] : logs) {
    const std::string key = keras_name(name);
    auto it = std::find_if(values_.begin(), values_.end(),
                           [&](const auto& entry) { return entry.first == key; });
    if (it == values_.end()) it = values_.insert(it, {key, {}});
    it->second.resize(epoch_.size(), std::nan(""));
    it->second.push_back(value);
  }
  epoch_.push_back(t.epoch());
  for (auto& [key, v] : values_) v.resize(epoch_.size(), std::nan(""));
}
std::vector<std::string> History::keys() const {
  std::vector<std::string> names;
  for (const auto& [key, v] : values_) names.push_back(key);
  return names;
}
const std::vector<double>& History::operator[](const std::string& name) const {
  const std::string key = keras_name(log_name(name));
  for (const auto& [k, v] : values_)
    if (k == key) return v;
  std::string names;
  for (const std::string& k : keys()) names += (names.empty() ? "" : ", ") + k;
  TD_FAIL(Value, "the history has no '{}'\nThere are {}.", name, names);
}

void WatchLayers::epoch_end(Trainer& t, const Logs&) {
  const int64_t done = t.epoch() + 1;
  if ((done & (done - 1)) != 0 && done < t.options().max_epochs) return;
  if (t.options().folder.empty() || (!batch_ && !t.data())) return;
  const DeviceGuard there(t.device());
  const Batch batch = batch_on(t.device(), batch_ ? batch_() : t.data()->fields(0));
  io::Json line = to_json(model_figures(t.model(), [&] { return t.step_function()(batch).loss; }));
  io::Json::Object o{{"step", t.step()}, {"epoch", t.epoch()}};
  for (const auto& entry : *line.as_object()) o.push_back(entry);
  runs::AppendFile(t.options().folder + "/layers.jsonl", runs::AppendFile::Content::lines)
      .append(io::Json(std::move(o)).dump() + "\n");
}

// ---- the bar

ProgbarLogger::~ProgbarLogger() = default;

std::string ProgbarLogger::line(Trainer& t, int64_t done, int64_t all, const Logs& logs) const {
  constexpr int64_t kWidth = 20;
  const bool endless = all == INT64_MAX;
  const int64_t full = endless || all == 0 ? 0 : std::min(done, all) * kWidth / all;
  std::string s = endless ? fmt::format("{}/? ", done) : fmt::format("{}/{} ", done, all);
  for (int64_t k = 0; k < kWidth; ++k) s += k < full ? "━" : "─";
  const double seconds = progress_->seconds();
  const double each = seconds / static_cast<double>(std::max<int64_t>(done, 1));
  if (done < all && !endless && done > 0)
    s += " " + runs::duration(each * static_cast<double>(all - done));
  else
    s += " " + runs::duration(seconds);
  s += each >= 1      ? fmt::format(" {:.1f}s/step", each)
       : each >= 1e-3 ? fmt::format(" {:.0f}ms/step", 1e3 * each)
                      : fmt::format(" {:.0f}us/step", 1e6 * each);
  const double rate = t.optimizer().has_option("lr") ? t.optimizer().lr() : 0;
  for (const auto& [name, value] : logs)
    if (name != "lr")
      s += fmt::format(" - {}: {}", keras_name(name),
                       std::abs(value) >= 1e-3 || value == 0 ? fmt::format("{:.4f}", value)
                                                             : fmt::format("{:.4e}", value));
  if (find_log(logs, "lr") == rate && rate > 0) s += fmt::format(" - learning_rate: {:.4g}", rate);
  return s;
}

void ProgbarLogger::epoch_begin(Trainer& t) {
  if (bar_) fmt::print(stderr, "Epoch {}/{}\n", t.epoch() + 1, t.options().max_epochs);
  progress_ = std::make_unique<runs::Progress>();
}
void ProgbarLogger::step_end(Trainer& t, const Logs&) {
  if (!bar_ || !t.data() || !progress_) return;
  const int64_t all = planned_batches(t.options(), t.data()->size());
  const data::PipelineState at = t.data()->state();
  const int64_t done = at.epoch == t.epoch() ? at.position : all;
  if (done >= all) return;  // the epoch's end has a line of its own
  progress_->show([&] { return line(t, done, all, t.train_logs()); });
}
void ProgbarLogger::epoch_end(Trainer& t, const Logs& logs) {
  if (!progress_) progress_ = std::make_unique<runs::Progress>();  // resumed in the middle
  const int64_t all = t.data() ? planned_batches(t.options(), t.data()->size()) : 0;
  const std::string text = line(t, all, all, logs);
  progress_->keep(bar_ ? text
                       : fmt::format("Epoch {}/{} - {}", t.epoch() + 1, t.options().max_epochs,
                                     text.substr(text.find(' ') + 1)));
  progress_.reset();
}

}  // namespace tandem::train
