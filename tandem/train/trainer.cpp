// SPDX-License-Identifier: Apache-2.0
// The loop. A step is forward, backward and update in one compiled function; an update whose loss
// or gradient norm is not finite is held back inside it (AssignIf), so the step can be run again,
// op by op, from the state before it.
#include "tandem/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "tandem/base/folder.h"
#include "tandem/base/log.h"
#include "tandem/compile/compile.h"
#include "tandem/ops/ops.h"
#include "tandem/tensor/allocator.h"
#include "tandem/train/pressure.h"
#include "tandem/train/progress.h"
#include "tandem/train/resources.h"
#include "tandem/train/run_folder.h"
#include "tandem/train/state_keeper_internal.h"

namespace tandem::train {

using Clock = std::chrono::steady_clock;

double find_log(const Logs& logs, const std::string& name) {
  for (const auto& [key, value] : logs)
    if (key == name) return value;
  return std::nan("");
}

namespace {

double rows_of(const Batch& b) {
  return b.empty() || b[0].dim() == 0 ? 1.0 : static_cast<double>(b[0].size(0));
}
double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}
io::Json numbers(const std::vector<double>& v) {
  io::Json::Array a;
  for (double x : v) a.push_back(x);
  return a;
}
double number_of(const io::Json* j) {  // null stands for NaN
  if (j && j->as_double()) return *j->as_double();
  if (j && j->as_int()) return static_cast<double>(*j->as_int());
  return std::nan("");
}
std::vector<double> numbers_of(const io::Json* j) {
  std::vector<double> out;
  if (j && j->as_array())
    for (const io::Json& x : *j->as_array()) out.push_back(number_of(&x));
  return out;
}

/// Evaluation mode while it lives.
struct EvalMode {
  nn::Module& model;
  bool before;
  explicit EvalMode(nn::Module& m) : model(m), before(m.is_training()) { model.eval(); }
  ~EvalMode() { model.train(before); }
};

}  // namespace

/// The compiled forms of the step; recompiled by themselves when shapes change.
struct Trainer::Compiled {
  using Train = std::function<std::vector<Tensor>(const Batch&, bool first, bool last)>;
  using Eval = std::function<std::vector<Tensor>(const Batch&)>;
  Train train;
  Eval eval;
};

struct Trainer::Running {
  FitResult result;
  Progress progress;
  Clock::time_point start = Clock::now();
  int64_t first_step = 0;  ///< where this process began
  double samples = 0;
  double last_loss = 0, last_norm = 0;
  double shown_samples = 0;                 ///< at the last line of the system's figures
  double shown_waited = 0, shown_busy = 0;  ///< likewise, of the data's RunStats
  PressureMeter pressure;
  Clock::time_point shown = Clock::now();
  EnergyMeter energy;
  double cpu_start = process_seconds();
  std::unique_ptr<RunFolder> folder;
  explicit Running(bool show) : progress(!show) {}
};

Trainer::Trainer(nn::Module& model, StepFunction step, optim::Optimizer& optimizer,
                 TrainerOptions options)
    : model_(model),
      step_function_(std::move(step)),
      optimizer_(optimizer),
      options_(std::move(options)),
      compiled_(std::make_unique<Compiled>()) {
  TD_CHECK(options_.accumulate >= 1 && options_.max_epochs >= 0 && options_.log_every >= 1, Value,
           "Trainer wants accumulate >= 1, max_epochs >= 0 and log_every >= 1, got {}, {} and {}",
           options_.accumulate, options_.max_epochs, options_.log_every);
  TD_CHECK(!options_.bf16 || !options_.f16, Value, "Trainer wants bf16 or f16, not both");
  if (options_.f16) scaler_ = std::make_unique<optim::GradScaler>(options_.scaler);
  for (const std::string& name : options_.metrics) metrics_.push_back(make_metric(name));
  auto forward = [this](const Batch& b) {
    AutocastGuard cast(options_.f16 ? DType::f16 : DType::bf16, options_.f16 || options_.bf16);
    return step_function_(b);
  };
  auto train = [this, forward](const Batch& b, bool first, bool last) {
    if (first) optimizer_.zero_grad();
    StepOutput o = forward(b);
    TD_CHECK(o.loss.defined() && o.loss.numel() == 1, Shape,
             "the step's loss wants one element, got {}",
             o.loss.defined() ? o.loss.shape().to_string() : "none");
    Tensor scaled =
        options_.accumulate > 1 ? o.loss / static_cast<double>(options_.accumulate) : o.loss;
    (scaler_ ? scaler_->scale(scaled) : scaled).backward();
    Tensor norm;
    if (last) {
      if (scaler_) scaler_->unscale_(optimizer_);
      const bool watch = options_.on_nonfinite != OnNonFinite::off;
      if (options_.clip_norm > 0)
        norm = optim::clip_grad_norm_(optimizer_.params(), options_.clip_norm);
      else if (watch)
        norm = optim::get_total_norm(optimizer_.params());
      // The scaler holds back what is not finite by itself, and tries a smaller scale.
      if (scaler_) {
        scaler_->step(optimizer_);
        scaler_->update();
      } else if (watch) {
        AssignIf good(
            logical_and(isfinite(o.loss.detach()).reshape({}), isfinite(norm).reshape({})));
        optimizer_.step();
      } else {
        optimizer_.step();
      }
    }
    auto free = [](const Tensor& t) { return t.defined() ? t.detach() : t; };
    return std::vector<Tensor>{o.loss.detach(), norm, free(o.output), free(o.target)};
  };
  auto eval = [forward](const Batch& b) {
    NoGradGuard no_grad;
    StepOutput o = forward(b);
    return std::vector<Tensor>{o.loss, o.output, o.target, o.prediction};
  };
  if (options_.compile) {
    compiled_->train = tandem::compile(train, {.name = "train step"});
    compiled_->eval = tandem::compile(eval, {.name = "validation step"});
  } else {
    compiled_->train = train;
    compiled_->eval = eval;
  }
}

Trainer::~Trainer() = default;

Trainer& Trainer::add(std::shared_ptr<Callback> callback) {
  callbacks_.push_back(std::move(callback));
  return *this;
}
Trainer& Trainer::clear_callbacks() {
  callbacks_.clear();
  return *this;
}
Trainer& Trainer::schedule(optim::LRScheduler& schedule) {
  schedule_ = &schedule;
  return *this;
}
Trainer& Trainer::part(RunParts::Extra extra) {
  extra_.push_back(std::move(extra));
  return *this;
}
void Trainer::stop(std::string reason) {
  if (stop_.empty()) stop_ = std::move(reason);
}

RunParts Trainer::parts() {
  return {&model_, &optimizer_, schedule_, scaler_.get(), data_, extra_};
}

std::string Trainer::monitor() const {
  if (!options_.monitor.empty()) return options_.monitor;
  return metrics_.empty() ? "val/loss" : "val/" + metrics_[0]->name();
}

void Trainer::log(const Logs& logs) { history_.push_back({step_, epoch_, logs}); }

Logs Trainer::train_logs() const {
  Logs logs{{"train/loss", samples_ > 0 ? loss_sum_ / samples_ : std::nan("")}};
  if (options_.train_metrics)
    for (const auto& m : metrics_) logs.emplace_back("train/" + m->name(), m->compute());
  logs.emplace_back("lr", optimizer_.has_option("lr") ? optimizer_.lr() : std::nan(""));
  return logs;
}

Logs Trainer::validate(data::AnyPipeline data, const std::string& prefix, int64_t limit,
                       const BatchViewer& see) {
  EvalMode mode(model_);
  std::vector<std::unique_ptr<Metric>> metrics;
  for (const std::string& name : options_.metrics) metrics.push_back(make_metric(name));
  double sum = 0, count = 0;
  data.set_epoch(0);
  data.begin_pass();
  Batch batch;
  for (int64_t k = 0; k != limit && data.next(batch); ++k) {
    const std::vector<Tensor> out = compiled_->eval(batch);
    sum += out[0].to(DType::f64).item<double>() * rows_of(batch);
    count += rows_of(batch);
    if (out[1].defined() && out[2].defined())
      for (auto& m : metrics) m->update(out[1], out[2]);
    if (see) see(batch, {out[0], out[1], out[2], out[3]});
  }
  TD_CHECK(count > 0, Value, "there is no data to validate on");
  Logs logs{{prefix + "loss", sum / count}};
  for (auto& m : metrics) logs.emplace_back(prefix + m->name(), m->compute());
  return logs;
}

Tensor Trainer::predict(data::AnyPipeline data) {
  EvalMode mode(model_);
  std::vector<Tensor> parts;
  data.set_epoch(0);
  data.begin_pass();
  for (Batch batch; data.next(batch);) {
    const std::vector<Tensor> out = compiled_->eval(batch);
    parts.push_back(out[3].defined() ? out[3] : out[1]);
    TD_CHECK(parts.back().defined(), Value, "the step gives no output to predict");
  }
  TD_CHECK(!parts.empty(), Value, "there is no data to predict");
  return parts.size() == 1 ? parts[0] : cat(parts, 0);
}

// ---- saving and resuming

std::string Trainer::callback_key(size_t i) const {
  return fmt::format("{}.{}", i, callbacks_[i]->name());
}
std::string Trainer::callback_prefix(size_t i) const { return "callback." + callback_key(i) + "."; }

void Trainer::save(std::optional<double> score) {
  if (!checkpoints_) return;
  io::Json::Object metrics, callbacks;
  for (const auto& m : metrics_) metrics.emplace_back(m->name(), numbers(m->state()));
  for (size_t i = 0; i < callbacks_.size(); ++i)
    callbacks.emplace_back(callback_key(i), callbacks_[i]->state());
  io::Json::Object more{{"loss_sum", loss_sum_},
                        {"samples", samples_},
                        {"metrics", std::move(metrics)},
                        {"callbacks", std::move(callbacks)}};
  Snapshot s = snapshot(parts(), step_, std::move(more));
  for (size_t i = 0; i < callbacks_.size(); ++i)
    for (const auto& [name, value] : callbacks_[i]->tensors())
      s.optimizer[callback_prefix(i) + name] = value;
  s.files = options_.files;
  s.score = score;
  checkpoints_->save(std::move(s));
}

void Trainer::resume(Running& run) {
  if (!checkpoints_ || !options_.resume) return;
  std::optional<Snapshot> s = checkpoints_->load_latest();
  if (!s) return;
  io::Json more;
  try {
    more = restore(parts(), *s);
  } catch (const Error& e) {
    throw Error(e.kind(),
                fmt::format("'{}' holds a run of another model or with other parts: {}",
                            checkpoints_->folder(), e.message()),
                "Go on with the recipe that the folder holds, or take another folder.", e.op(),
                e.where(), e.layer());
  }
  step_ = run.first_step = s->step;
  loss_sum_ = number_of(more.find("loss_sum"));
  samples_ = number_of(more.find("samples"));
  if (const io::Json* metrics = more.find("metrics"))
    for (auto& m : metrics_) m->load_state(numbers_of(metrics->find(m->name())));
  if (const io::Json* states = more.find("callbacks"))
    for (size_t i = 0; i < callbacks_.size(); ++i)
      if (const io::Json* j = states->find(callback_key(i))) callbacks_[i]->load_state(*j);
  for (size_t i = 0; i < callbacks_.size(); ++i) {
    const std::string prefix = callback_prefix(i);
    StateDict tensors;
    for (const auto& [name, value] : s->optimizer)
      if (name.starts_with(prefix)) tensors[name.substr(prefix.size())] = value;
    if (!tensors.empty()) callbacks_[i]->load_tensors(tensors);
  }
  run.progress.keep(fmt::format("resumed at step {} of '{}'", step_, checkpoints_->folder()));
}

bool Trainer::load_best() {
  if (!checkpoints_) return false;
  checkpoints_->wait();
  std::optional<Snapshot> s = checkpoints_->load_best();
  if (s) model_.load_state_dict(s->model);
  return s.has_value();
}

// ---- one step

void Trainer::explain(const Batch& batch, double loss, double norm, GeneratorState rng) {
  std::string samples;
  if (data_) {
    const data::PipelineState at = data_->state();
    // state() counts the batch in hand; at a pass's end it stands at the next epoch's front.
    const int64_t position = at.position > 0 ? at.position - 1 : data_->size() - 1;
    const std::vector<int64_t> ids =
        data_->samples_of(position, at.position > 0 ? at.epoch : at.epoch - 1);
    for (size_t i = 0; i < ids.size() && i < 16; ++i)
      samples += fmt::format("{}{}", i ? ", " : "", ids[i]);
    if (ids.size() > 16) samples += fmt::format(" and {} more", ids.size() - 16);
  }
  std::string file;
  if (!options_.folder.empty()) {
    StateDict inputs;
    for (size_t i = 0; i < batch.size(); ++i) inputs[fmt::format("batch.{}", i)] = batch[i];
    file = options_.folder + "/nonfinite_batch.safetensors";
    tandem::save(inputs, file);
  }
  std::string found = "the replay op by op found no such value.";
  set_generator_state(rng);
  try {
    DetectAnomalyGuard anomaly;
    optimizer_.zero_grad();
    AutocastGuard cast(options_.f16 ? DType::f16 : DType::bf16, options_.f16 || options_.bf16);
    step_function_(batch).loss.backward();
  } catch (const Error& e) {
    found = e.what();
  }
  optimizer_.zero_grad();
  auto text = [](double v) {
    return std::isnan(v) ? std::string("nan") : fmt::format("{:.6g}", v);
  };
  TD_FAIL(Value,
          "step {} of epoch {}: the loss is {}, the gradient norm {}. First in: {} Samples of the "
          "batch: {}.{}\nThe weights are those before this step. Lower the learning rate, clip the "
          "gradient (clip_norm), or look at these samples.",
          step_ + 1, epoch_, text(loss), text(norm), found, samples.empty() ? "unknown" : samples,
          file.empty() ? "" : fmt::format(" The batch is in '{}'", file));
}

// Gives true when the batch ended an update.
bool Trainer::train_batch(Running& run, const Batch& batch, bool last) {
  const GeneratorState rng = generator_state();
  const bool first = micro_ == 0, update = last || micro_ + 1 == options_.accumulate;
  const std::vector<Tensor> out = compiled_->train(batch, first, update);
  const double loss = out[0].to(DType::f64).item<double>();
  const double norm = out[1].defined() ? out[1].to(DType::f64).item<double>() : 0;
  run.last_loss = loss;
  run.last_norm = norm;
  // Gradients beyond float16's range are the scaler's daily bread, not a fault of the run.
  const bool overflow = scaler_ && std::isfinite(loss) && !std::isfinite(norm);
  if (overflow) ++overflows_;
  if (!overflow && options_.on_nonfinite != OnNonFinite::off &&
      !(std::isfinite(loss) && std::isfinite(norm))) {
    if (options_.on_nonfinite == OnNonFinite::stop) explain(batch, loss, norm, rng);
    ++skipped_;
  } else {
    loss_sum_ += loss * rows_of(batch);
    samples_ += rows_of(batch);
    if (options_.train_metrics && out[2].defined() && out[3].defined())
      for (auto& m : metrics_) m->update(out[2], out[3]);
  }
  run.samples += rows_of(batch);
  micro_ = update ? 0 : micro_ + 1;
  if (!update) return false;
  ++step_;
  if (schedule_ && !options_.schedule_per_epoch) schedule_->step();
  return true;
}

void Trainer::show(Running& run, data::AnyPipeline& train) {
  const data::PipelineState at = train.state();
  const int64_t size = train.size();
  const int64_t position = at.position == 0 ? size : at.position;
  const double seconds = seconds_since(run.start);
  std::string line =
      fmt::format("epoch {}/{}  {}/{}  loss {:.4f}", epoch_ + 1, options_.max_epochs, position,
                  size, samples_ > 0 ? loss_sum_ / samples_ : run.last_loss);
  if (options_.train_metrics)
    for (const auto& m : metrics_) line += fmt::format("  {} {:.4f}", m->name(), m->compute());
  const double rate = static_cast<double>(step_ - run.first_step) / seconds;
  line += fmt::format("  {:.0f} samples/s", run.samples / seconds);
  if (size != INT64_MAX && rate > 0) {
    const double steps =
        std::ceil(static_cast<double>(size) / static_cast<double>(options_.accumulate));
    double left = steps * static_cast<double>(options_.max_epochs) - static_cast<double>(step_);
    if (options_.max_steps > 0)
      left = std::min(left, static_cast<double>(options_.max_steps - step_));
    line += fmt::format("  {} left", duration(std::max(0.0, left / rate)));
  }
  const double stall = train.stats().stall();
  if (stall > 0.02) line += fmt::format("  {:.0f} % waiting for data", 100 * stall);
  line += fmt::format("  {:.0f} MB", static_cast<double>(allocator_stats().peak) / 1e6);
  run.progress.show(line);
}

void Trainer::train_epoch(Running& run, data::AnyPipeline& train) {
  const int64_t size = train.size();
  train.begin_pass();
  Batch batch;
  while (stop_.empty() && train.next(batch)) {
    const data::PipelineState at = train.state();
    const bool last = at.epoch != epoch_ || (options_.limit_train_batches >= 0 &&
                                             at.position >= options_.limit_train_batches);
    const bool updated = train_batch(run, batch, last);
    if (updated) {
      const bool end = options_.max_steps >= 0 && step_ >= options_.max_steps;
      if (!callbacks_.empty() || step_ % options_.log_every == 0) {
        Logs logs{{"train/step_loss", run.last_loss}, {"lr", optimizer_.lr()}};
        if (run.last_norm > 0) logs.emplace_back("train/grad_norm", run.last_norm);
        for (auto& c : callbacks_) c->step_end(*this, logs);
        if (step_ % options_.log_every == 0) {
          log(logs);
          if (run.folder) {
            for (auto& entry : system_logs(run)) logs.push_back(entry);
            run.folder->log(step_, epoch_, logs);
          }
        }
      }
      if (end) stop("max_steps");
      if (options_.max_seconds > 0 && seconds_since(run.start) > options_.max_seconds)
        stop("max_seconds");
      if (stop_requested()) {
        run.result.interrupted = true;
        stop(stop_signal() ? fmt::format("signal {}", stop_signal()) : "asked to stop");
      }
      if (!last && stop_.empty() && options_.save_every_steps > 0 &&
          step_ % options_.save_every_steps == 0)
        save({});
    }
    if (options_.progress) show(run, train);
    if (last) return;
    if (!stop_.empty()) {
      if (micro_ == 0) save({});
      return;
    }
  }
  TD_CHECK(!stop_.empty() || size > 0, Value, "there is no data to train on");
}

// Since the last such line: samples a second, share of the time that waited for data, memory, and
// what the system says (train/pressure.h).
Logs Trainer::system_logs(Running& run) const {
  const double seconds = std::max(1e-9, seconds_since(run.shown));
  const data::RunStats data = data_ ? data_->stats() : data::RunStats();
  const auto since = [&](double now, double& shown) {
    const double before = std::exchange(shown, now);
    return std::max(0.0, now < before ? now : now - before) / seconds;  // a new pass begins at 0
  };
  Logs logs{{"system/samples_per_s", (run.samples - run.shown_samples) / seconds},
            {"system/waiting", std::min(1.0, since(data.waited, run.shown_waited))},
            {"system/memory_mb", static_cast<double>(resident_bytes()) / 1e6},
            {"system/tensors_mb", static_cast<double>(allocator_stats().in_use) / 1e6}};
  const PressureFigures p = run.pressure.read();
  logs.insert(logs.end(), {{"system/cores", p.cores},
                           {"system/cores_allowed", p.cores_allowed},
                           {"system/queued", p.queued},
                           {"system/loaders", p.loaders},
                           {"system/loader_busy", since(data.busy, run.shown_busy)},
                           {"system/loader_cores", p.loader_cores},
                           {"system/loader_queued", p.loader_queued},
                           {"system/read_mb_s", p.read / 1e6},
                           {"system/received_mb_s", p.received / 1e6},
                           {"system/memory_stall", p.memory_stall},
                           {"system/memory_share", p.memory_share}});
  run.shown = Clock::now();
  run.shown_samples = run.samples;
  return logs;
}

double Trainer::update(const Batch& batch) {
  model_.train();
  return compiled_->train(batch, true, true)[0].to(DType::f64).item<double>();
}

LRFindResult Trainer::lr_find(data::AnyPipeline train, const LRFindOptions& options) {
  RunParts p = parts();
  p.data = &train;
  return train::lr_find(
      p, [this](const Batch& b) { return update(b); }, options);
}

FindBatchResult Trainer::find_batch(const std::function<data::AnyPipeline(int64_t size)>& make,
                                    const FindBatchOptions& options) {
  StateKeeper keep(parts());
  int64_t size = 0;
  Batch batch;
  return train::find_batch(
      [&](int64_t n) {
        if (n != size) {
          const data::AnyPipeline p = make(n);
          if (p.size() < 1) return false;
          batch = p.fields(0);
          if (rows_of(batch) < static_cast<double>(n)) return false;
          size = n;
        }
        update(batch);
        return true;
      },
      options);
}

FitResult Trainer::fit(data::AnyPipeline train, std::optional<data::AnyPipeline> val) {
  TD_CHECK(train.size() > 0, Value, "there is no data to train on");
  for (auto& c : callbacks_) c->configure(options_);
  Running run(options_.progress);
  StopGuard signals;
  data_ = &train;
  struct Forget {
    data::AnyPipeline*& data;
    ~Forget() { data = nullptr; }
  } forget{data_};
  stop_.clear();
  model_.train();
  checkpoints_.reset();
  if (!options_.folder.empty() || !options_.checkpoint_folder.empty()) {
    const std::string watched = monitor();
    CheckpointOptions c = options_.checkpoints;
    c.higher_is_better = watched.find("loss") == watched.npos;
    for (const auto& m : metrics_)
      if (watched.ends_with("/" + m->name())) c.higher_is_better = m->higher_is_better();
    checkpoints_ = std::make_unique<Checkpoints>(options_.checkpoint_folder.empty()
                                                     ? options_.folder + "/checkpoints"
                                                     : options_.checkpoint_folder,
                                                 c);
  }
  resume(run);  // before anything is written into the folder: it may be another run's
  if (!options_.folder.empty()) {
    run.folder = std::make_unique<RunFolder>(options_.folder, options_.files);
    run.folder->truncate(step_);  // what a run that was cut off logged after its checkpoint
  }
  if (val && step_ == 0 && options_.sanity_batches > 0)
    validate(*val, "val/", options_.sanity_batches);
  for (auto& c : callbacks_) c->fit_begin(*this);
  run.start = Clock::now();
  try {
    for (epoch_ = train.state().epoch; epoch_ < options_.max_epochs && stop_.empty();) {
      if (options_.max_steps >= 0 && step_ >= options_.max_steps) break;
      if (train.state().position == 0) {
        loss_sum_ = samples_ = 0;
        for (auto& m : metrics_) m->reset();
        for (auto& c : callbacks_) c->epoch_begin(*this);
      }
      micro_ = 0;
      train_epoch(run, train);
      const bool whole = train.state().epoch != epoch_ || options_.limit_train_batches >= 0;
      if (!whole && stop_ != "max_steps") break;  // in the middle: saved there
      if (whole && train.state().epoch == epoch_) train.set_epoch(epoch_ + 1);
      Logs logs = train_logs();
      const bool ends = epoch_ + 1 == options_.max_epochs || stop_ == "max_steps";
      if (val && (ends || (epoch_ + 1) % options_.val_every_epochs == 0))
        for (auto& entry : validate(*val, "val/", options_.limit_val_batches))
          logs.push_back(entry);
      if (schedule_ && options_.schedule_per_epoch) schedule_->step();
      log(logs);
      if (run.folder) {
        Logs all = logs;
        for (auto& entry : system_logs(run)) all.push_back(entry);
        run.folder->log(step_, epoch_, all);
      }
      for (auto& c : callbacks_) c->epoch_end(*this, logs);
      const double score = find_log(logs, monitor());
      std::string line =
          fmt::format("epoch {}/{}  step {}", epoch_ + 1, options_.max_epochs, step_);
      for (const auto& [name, value] : logs) line += fmt::format("  {} {:.4g}", name, value);
      run.progress.keep(line);
      run.result.logs = logs;
      if (whole) ++epoch_;
      save(std::isnan(score) ? std::optional<double>() : score);
    }
    if (checkpoints_) checkpoints_->wait();
  } catch (...) {
    if (run.folder) run.folder->finish("failed");
    throw;
  }
  for (auto& c : callbacks_) c->fit_end(*this);
  run.result.steps = step_;
  run.result.epochs = epoch_;
  run.result.reason = stop_.empty() ? "done" : stop_;
  run.result.skipped = skipped_;
  run.result.overflows = overflows_;
  run.result.seconds = seconds_since(run.start);
  if (run.folder) {
    const Energy energy = run.energy.read();
    run.folder->part({{"steps", step_ - run.first_step},
                      {"seconds", run.result.seconds},
                      {"samples", run.samples},
                      {"cpu_seconds", process_seconds() - run.cpu_start},
                      {"peak_memory_mb", static_cast<double>(peak_resident_bytes()) / 1e6},
                      {"joules", energy.joules},
                      {"energy", energy.source}});
    run.folder->finish(run.result.interrupted ? "interrupted" : "done");
  }
  return run.result;
}

}  // namespace tandem::train
