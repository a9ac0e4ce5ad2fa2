// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/callbacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "tandem/base/files/folder.h"
#include "tandem/base/log.h"
#include "tandem/train/trainer/trainer_internal.h"

namespace tandem::train {
namespace {

bool lower_is_better(const std::string& mode, const std::string& monitor) {
  if (mode == "min") return true;
  if (mode == "max") return false;
  TD_CHECK(mode == "auto", Value, "a mode is 'auto', 'min' or 'max', got '{}'", mode);
  for (const char* end : {"loss", "mae", "mse", "rmse"})
    if (monitor.ends_with(end)) return true;
  return false;
}

// NaN as best: there is none yet.
bool better(double value, double best, const std::string& mode, const std::string& monitor,
            double delta) {
  if (std::isnan(value)) return false;
  if (std::isnan(best)) return true;
  return lower_is_better(mode, monitor) ? value < best - delta : value > best + delta;
}

double watched(const Logs& logs, const std::string& monitor, const char* callback) {
  const std::string wanted = log_name(monitor);
  for (const auto& [name, value] : logs)
    if (name == monitor || name == wanted) return value;
  std::string names;
  for (const auto& [name, value] : logs) names += (names.empty() ? "" : ", ") + name;
  TD_FAIL(Value, "{} watches '{}', which is not logged\nThere are {}.", callback, monitor, names);
}

}  // namespace

std::string log_name(const std::string& name) {
  if (name == "lr" || name == "learning_rate") return "lr";
  if (name.find('/') != name.npos) return name;
  return name.rfind("val_", 0) == 0 ? "val/" + name.substr(4) : "train/" + name;
}
std::string keras_name(const std::string& name) {
  if (name == "lr") return "learning_rate";
  if (name.rfind("train/", 0) == 0) return name.substr(6);
  return name.rfind("val/", 0) == 0 ? "val_" + name.substr(4) : name;
}

// With val_every_steps the validations are what is watched, unless it is a value of training.
bool at_validations(const Trainer& t, const std::string& monitor) {
  return t.options().validation.every_steps > 0 && log_name(monitor).starts_with("val/");
}

void EarlyStopping::validation_end(Trainer& t, const Logs& logs) {
  if (at_validations(t, o_.monitor)) evaluate(t, logs);
}
void EarlyStopping::epoch_end(Trainer& t, const Logs& logs) {
  if (at_validations(t, o_.monitor)) return;
  if (std::isnan(find_log(logs, log_name(o_.monitor))) && t.options().validation.every_epochs > 1)
    return;
  evaluate(t, logs);
}
void EarlyStopping::evaluate(Trainer& t, const Logs& logs) {
  const double value = watched(logs, o_.monitor, name());
  if (t.epoch() < o_.start_from_epoch) return;
  if (std::isnan(best_) && o_.baseline) best_ = *o_.baseline;
  if (better(value, best_, o_.mode, o_.monitor, o_.min_delta)) {
    best_ = value;
    wait_ = 0;
    if (o_.restore_best_weights) weights_ = t.weights();
    return;
  }
  ++wait_;
  stop_if_due(t);
}
void EarlyStopping::stop_if_due(Trainer& t) const {
  if (wait_ >= std::max<int64_t>(o_.patience, 1))
    t.stop(fmt::format("early stopping: {} has not got better than {:.6g} for {} {}(s)", o_.monitor,
                       best_, wait_, at_validations(t, o_.monitor) ? "validation" : "epoch"));
}
// Of a resumed run alone: a further fit() of the same trainer waits for its first value.
void EarlyStopping::fit_begin(Trainer& t) {
  if (std::exchange(resumed_, false)) stop_if_due(t);
}
void EarlyStopping::fit_end(Trainer& t) {
  if (!weights_.empty()) t.model().load_state_dict(weights_);
}
io::Json EarlyStopping::state() const { return io::Json::Object{{"best", best_}, {"wait", wait_}}; }
void EarlyStopping::load_state(const io::Json& s) {
  best_ = io::number_of(s.find("best"));
  wait_ = io::whole_of(s.find("wait"));
  resumed_ = true;
}

void ReduceLROnPlateau::validation_end(Trainer& t, const Logs& logs) {
  if (at_validations(t, o_.monitor)) evaluate(t, logs);
}
void ReduceLROnPlateau::epoch_end(Trainer& t, const Logs& logs) {
  if (at_validations(t, o_.monitor)) return;
  if (std::isnan(find_log(logs, log_name(o_.monitor))) && t.options().validation.every_epochs > 1)
    return;
  evaluate(t, logs);
}
void ReduceLROnPlateau::evaluate(Trainer& t, const Logs& logs) {
  const double value = watched(logs, o_.monitor, name());
  if (cooldown_ > 0) {
    --cooldown_;
    wait_ = 0;
  }
  if (better(value, best_, o_.mode, o_.monitor, o_.min_delta)) {
    best_ = value;
    wait_ = 0;
    return;
  }
  if (cooldown_ > 0 || ++wait_ < std::max<int64_t>(o_.patience, 1)) return;
  for (const NamedOptimizer& o : t.optimizers())
    for (size_t g = 0; g < o.optimizer.num_groups(); ++g)
      o.optimizer.set_lr(std::max(o.optimizer.lr(g) * o_.factor, o_.min_lr), g);
  cooldown_ = o_.cooldown;
  wait_ = 0;
}
io::Json ReduceLROnPlateau::state() const {
  return io::Json::Object{{"best", best_}, {"wait", wait_}, {"cooldown", cooldown_}};
}
void ReduceLROnPlateau::load_state(const io::Json& s) {
  best_ = io::number_of(s.find("best"));
  wait_ = io::whole_of(s.find("wait"));
  cooldown_ = io::whole_of(s.find("cooldown"));
}

namespace {

// "{epoch:02d}-{val_loss:.2f}": names of logs with a format of fmt's.
std::string fill_in(const std::string& text, int64_t epoch, const Logs& logs) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    const size_t end = text[at] == '{' ? text.find('}', at) : text.npos;
    if (end == text.npos) {
      out += text[at];
      continue;
    }
    const std::string inside = text.substr(at + 1, end - at - 1);
    const std::string key = inside.substr(0, inside.find(':'));
    const std::string format = "{" + inside.substr(key.size()) + "}";
    try {
      out += key == "epoch" ? fmt::format(fmt::runtime(format), epoch)
                            : fmt::format(fmt::runtime(format), watched(logs, key, "the path"));
    } catch (const fmt::format_error& e) {
      TD_FAIL(Value, "'{}': '{{{}}}' is not a format of a number ({})", text, inside, e.what());
    }
    at = end;
  }
  return out;
}

}  // namespace

void ModelCheckpoint::write(Trainer& t, const Logs& logs) {
  if (t.options().debug.fast_dev_run > 0) return;
  if (o_.save_best_only) {
    const double value = watched(logs, o_.monitor, name());
    if (!better(value, best_, o_.mode, o_.monitor, 0)) return;
    best_ = value;
  }
  tandem::save(t.weights(), fill_in(path_, t.epoch() + 1, logs));
}
void ModelCheckpoint::step_end(Trainer& t, const Logs& logs) {
  if (o_.save_freq <= 0 || t.step() % o_.save_freq != 0) return;
  Logs all = t.train_logs();
  all.insert(all.end(), logs.begin(), logs.end());
  write(t, all);
}
void ModelCheckpoint::epoch_end(Trainer& t, const Logs& logs) {
  if (o_.save_freq <= 0) write(t, logs);
}
io::Json ModelCheckpoint::state() const { return io::Json::Object{{"best", best_}}; }
void ModelCheckpoint::load_state(const io::Json& s) { best_ = io::number_of(s.find("best")); }

namespace {

// Drops the rows of epochs from `epoch` on, which are repeated, and a last one without its end.
void keep_epochs_before(const std::string& path, int64_t epoch) {
  const std::string text = read_file(path);
  std::string kept;
  for (size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    int64_t row = -1;  // the head
    std::from_chars(text.data() + at, text.data() + end, row);
    if (row < epoch) kept += text.substr(at, end + 1 - at);
  }
  if (kept != text) write_file(path, kept);
}

}  // namespace

void CSVLogger::fit_begin(Trainer& t) {
  file_.reset();
  if (t.options().debug.fast_dev_run > 0) return;
  head_ = (append_ || t.step() > 0) && file_exists(path_);
  if (!head_) write_file(path_, "");
  if (head_ && !append_ && t.data()) keep_epochs_before(path_, t.data()->state().epoch);
  file_ = std::make_unique<runs::AppendFile>(path_, runs::AppendFile::Content::lines);
}
void CSVLogger::epoch_end(Trainer& t, const Logs& logs) {
  if (!file_) return;
  std::string line;
  if (!head_) {
    line = "epoch";
    for (const auto& [name, value] : logs) line += separator_ + name;
    line += "\n";
    head_ = true;
  }
  line += std::to_string(t.epoch());
  for (const auto& [name, value] : logs) line += separator_ + fmt::format("{}", value);
  file_->append(line + "\n");
}

void TensorBoard::fit_begin(Trainer& t) {
  events_.reset();
  if (t.options().debug.fast_dev_run > 0) return;
  bool earlier = false;
  if (file_exists(folder_))
    for (const std::string& name : list_folder(folder_))
      earlier = earlier || name.starts_with("events.out.tfevents.");
  events_ = std::make_unique<runs::EventFile>(folder_, !earlier       ? -1
                                                       : t.step() > 0 ? t.step() + 1
                                                                      : 0);
  if (t.step() > 0) return;  // the file of the run's begin has the rest
  if (!o_.hparams.empty()) events_->hparams(o_.hparams);
  for (const auto& [tag, text] : o_.texts) events_->text(tag, text, 0);
  if (o_.write_graph && t.options().compile && t.data()) write_graph(t);
}
void TensorBoard::write_graph(Trainer& t) {
  const DeviceGuard there(t.device());
  const Batch batch = batch_on(t.device(), t.data()->fields(0));
  std::vector<Spec> specs;
  for (const Tensor& x : batch) specs.push_back(spec_of(x));
  try {
    const Ref<Graph> graph = trace(
        [&](std::span<const Tensor> in) {
          const StepOutput o = t.step_function()(Batch(in.begin(), in.end()));
          return o.output.defined() ? std::vector<Tensor>{o.loss, o.output}
                                    : std::vector<Tensor>{o.loss};
        },
        specs, Captures::refuse);
    events_->graph(*graph, &t.model());
  } catch (const Error& e) {  // the first step says the same, or is run op by op
    log_warning("TensorBoard gets no graph: {}", e.what());
  }
}
void TensorBoard::fit_end(Trainer&) {
  if (events_ && !o_.hparams.empty() && !stop_requested()) events_->hparams_end();
}
void TensorBoard::step_end(Trainer& t, const Logs& logs) {
  if (!events_ || t.step() % t.options().logging.every_steps != 0) return;
  for (const auto& [name, value] : logs) events_->scalar(name, value, t.step());
}
// With val_every_steps each validation is shown once, here.
void TensorBoard::validation_end(Trainer& t, const Logs& logs) {
  if (!events_ || t.options().validation.every_steps == 0) return;
  for (const auto& [name, value] : logs) events_->scalar(name, value, t.step());
}
void TensorBoard::epoch_end(Trainer& t, const Logs& logs) {
  if (!events_) return;
  for (const auto& [name, value] : logs)
    if (name != "lr" && !name.starts_with("lr/") &&
        !(t.options().validation.every_steps > 0 && name.starts_with("val/")))
      events_->scalar(name, value, t.step());
  if (o_.histogram_freq == 0 || (t.epoch() + 1) % o_.histogram_freq != 0) return;
  for (const auto& [name, p] : t.model().named_parameters())
    events_->histogram(name, p.value(), t.step());
}

void TerminateOnNaN::step_end(Trainer& t, const Logs& logs) {
  for (const auto& [name, value] : logs)
    if (!std::isfinite(value)) t.stop(fmt::format("{} is {}", name, value));
}

}  // namespace tandem::train
