// SPDX-License-Identifier: Apache-2.0
// The loop: epochs, validations, logs, stops and what is done at the end.
#include <algorithm>
#include <cmath>
#include <utility>

#include "tandem/base/failures.h"
#include "tandem/base/files/folder.h"
#include "tandem/base/log.h"
#include "tandem/tensor/allocator.h"
#include "tandem/train/trainer/serving_internal.h"

namespace tandem::train {

double find_log(const Logs& logs, const std::string& name) {
  for (const auto& [key, value] : logs)
    if (key == name) return value;
  return std::nan("");
}

TrainerOptions with_switches(TrainerOptions o) {
  auto at_most = [](int64_t limit, int64_t n) { return limit < 0 ? n : std::min(limit, n); };
  if (o.debug.overfit_batches > 0) o.validation.sanity_batches = 0;
  if (o.debug.fast_dev_run > 0) {
    o.max_epochs = std::min<int64_t>(o.max_epochs, 1);
    o.limits.train_batches = at_most(o.limits.train_batches, o.debug.fast_dev_run);
    o.limits.val_batches = at_most(o.limits.val_batches, o.debug.fast_dev_run);
    o.validation.every_epochs = 1;
    o.validation.every_steps = 0;
  }
  if (o.debug.barebones) {
    o.progress = false;
    o.logging.train_metrics = false;
  }
  if (o.debug.barebones || o.debug.fast_dev_run > 0) {
    o.folder.clear();
    o.saving.folder.clear();
    o.saving.every_steps = 0;
    o.validation.sanity_batches = 0;
  }
  return o;
}

int64_t planned_batches(const TrainerOptions& o, int64_t batches) {
  if (o.debug.overfit_batches > 0) batches = std::min(batches, o.debug.overfit_batches);
  return o.limits.train_batches >= 0 ? std::min(batches, o.limits.train_batches) : batches;
}

int64_t planned_updates(const TrainerOptions& o, int64_t batches) {
  const int64_t n = planned_batches(o, batches);
  const int64_t each = n / o.accumulate + (n % o.accumulate != 0);
  int64_t all = INT64_MAX;
  if (n != INT64_MAX && (each == 0 || o.max_epochs <= INT64_MAX / each)) all = each * o.max_epochs;
  return o.max_steps >= 0 ? std::min(all, o.max_steps) : all;
}

namespace {

/// The first batches of epoch 0, whatever the epoch is.
struct FirstBatches : data::detail::Stage {
  data::detail::StageRef in;
  int64_t n;
  FirstBatches(data::detail::StageRef in, int64_t n) : in(std::move(in)), n(n) {}
  int64_t size() const override { return std::min(n, in->size()); }
  std::vector<Tensor> get(data::detail::Pass p, int64_t i) const override {
    return in->get({p.seed, 0}, i);
  }
  void origins(data::detail::Pass p, int64_t i, std::vector<int64_t>& out) const override {
    in->origins({p.seed, 0}, i, out);
  }
  std::string text() const override { return fmt::format("{} | the first {}", in->text(), n); }
};

data::AnyPipeline first_batches(const data::AnyPipeline& of, int64_t n) {
  return {std::make_shared<FirstBatches>(of.stage(), n), of.seed(), of.prefetch_options()};
}

}  // namespace

Trainer::~Trainer() = default;

Trainer& Trainer::add(std::shared_ptr<Callback> callback) {
  callbacks_.push_back(std::move(callback));
  return *this;
}
Trainer& Trainer::clear_callbacks() {
  callbacks_.clear();
  return *this;
}
Trainer& Trainer::schedule(optim::LRScheduler& schedule, ScheduleEvery every) {
  for (Scheduled& s : schedules_)
    if (&s.schedule->optimizer() == &schedule.optimizer()) {
      s = {&schedule, every};
      return *this;
    }
  schedules_.push_back({&schedule, every});
  return *this;
}
void Trainer::step_schedules(ScheduleEvery now) {
  for (const Scheduled& s : schedules_)
    if (s.every == now) s.schedule->step();
}
Trainer& Trainer::part(RunParts::Extra extra) {
  extra_.push_back(std::move(extra));
  return *this;
}
Trainer& Trainer::on_resume(ResumeHooks hooks) {
  resume_hooks_ = std::move(hooks);
  return *this;
}
void Trainer::stop(std::string reason) {
  if (stop_.empty()) stop_ = std::move(reason);
}

std::string Trainer::monitor() const {
  if (!options_.saving.monitor.empty()) return options_.saving.monitor;
  return metrics_.empty() ? "val/loss" : "val/" + metrics_[0]->name();
}

void Trainer::log(const Logs& logs) { history_.push_back({step_, epoch_, logs}); }

Logs Trainer::train_logs() const {
  Logs logs{{"train/loss", samples_ > 0 ? loss_sum_ / samples_ : std::nan("")}};
  for (const Mean& m : figures_) logs.emplace_back("train/" + m.name, m.sum / m.count);
  if (options_.logging.train_metrics)
    for (const auto& m : metrics_) logs.emplace_back("train/" + m->name(), m->compute());
  add_rates(logs);
  return logs;
}

// "lr", or "lr/generator" and so on.
void Trainer::add_rates(Logs& logs) const {
  for (const NamedOptimizer& o : optimizers_)
    logs.emplace_back(o.name.empty() ? "lr" : "lr/" + o.name,
                      o.optimizer.has_option("lr") ? o.optimizer.lr() : std::nan(""));
}

bool Trainer::higher_is_better() const {
  const std::string watched = monitor();
  bool higher = watched.find("loss") == watched.npos;
  for (const auto& m : metrics_)
    if (watched.ends_with("/" + m->name())) higher = m->higher_is_better();
  return higher;
}

// ---- what a run shows of itself

std::string Trainer::progress_line(const Running& run, const data::AnyPipeline& train) const {
  const data::PipelineState at = train.state();
  const int64_t size = planned_batches(options_, train.size());
  const int64_t position = at.position == 0 ? size : at.position;
  const double seconds = seconds_since(run.start);
  std::string line =
      fmt::format("epoch {}/{}  {}/{}  loss {:.4f}", epoch_ + 1, options_.max_epochs, position,
                  size, samples_ > 0 ? loss_sum_ / samples_ : run.last_loss);
  for (const Mean& m : figures_) line += fmt::format("  {} {:.4f}", m.name, m.sum / m.count);
  if (options_.logging.train_metrics)
    for (const auto& m : metrics_) line += fmt::format("  {} {:.4f}", m->name(), m->compute());
  const double rate = static_cast<double>(step_ - run.first_step) / seconds;
  line += fmt::format("  {:.0f} samples/s", run.samples / seconds);
  if (const int64_t all = planned_updates(options_, train.size()); all != INT64_MAX && rate > 0)
    line += fmt::format(
        "  {} left", runs::duration(static_cast<double>(std::max<int64_t>(0, all - step_)) / rate));
  const double stall = train.stats().stall();
  if (stall > 0.02) line += fmt::format("  {:.0f} % waiting for data", 100 * stall);
  line += fmt::format("  {:.0f} MB", static_cast<double>(allocator_stats().peak) / 1e6);
  return line;
}

// Since the last such line: samples a second, share of the time that waited for data, memory, and
// what the system says (runs/pressure.h).
Logs Trainer::system_logs(Running& run) const {
  const double seconds = std::max(1e-9, seconds_since(run.shown));
  const data::RunStats data = data_ ? data_->stats() : data::RunStats();
  const auto since = [&](double now, double& shown) {
    const double before = std::exchange(shown, now);
    return std::max(0.0, now < before ? now : now - before) / seconds;  // a new pass begins at 0
  };
  Logs logs{{"system/samples_per_s", (run.samples - run.shown_samples) / seconds},
            {"system/waiting", std::min(1.0, since(data.waited, run.shown_waited))},
            {"system/memory_mb", static_cast<double>(runs::resident_bytes()) / 1e6},
            {"system/tensors_mb", static_cast<double>(allocator_stats().in_use) / 1e6}};
  const runs::PressureFigures p = run.pressure.read();
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
  if (ranks_) {
    double calls = 0, exposed = 0;
    for (const distributed::CallTotals& t : ranks_->engine().call_totals()) {
      calls += t.seconds;
      exposed += t.waited;
    }
    logs.emplace_back("system/communication", since(calls, run.shown_calls));
    logs.emplace_back("system/communication_exposed", since(exposed, run.shown_exposed));
  }
  run.shown = Clock::now();
  run.shown_samples = run.samples;
  return logs;
}

// To the history and, with the system's figures, to the run's folder.
void Trainer::write_logs(Running& run, const Logs& logs) {
  if (options_.debug.barebones) return;
  log(logs);
  if (!run.folder) return;
  Logs all = logs;
  for (auto& entry : system_logs(run)) all.push_back(entry);
  run.folder->log(step_, epoch_, all);
}

// ---- stops and validations

bool Trainer::asked_to_stop(Running& run) {
  if (!stop_asked()) return false;
  run.result.interrupted = true;
  run.result.preempted = preempted();
  stop(stop_requested() ? stop_reason() : "another rank was asked to stop");
  return true;
}

// Nothing when a signal cut it off: what is left to do then stands in due_.
std::optional<Logs> Trainer::evaluate(Running& run, data::AnyPipeline& val) {
  for (auto& c : callbacks_) c->validation_begin(*this);
  Logs logs = validate(val, "val/", options_.limits.val_batches);
  if (cut_) {
    run.result.interrupted = true;
    asked_to_stop(run);
    return {};
  }
  evaluated_step_ = step_;
  evaluated_ = logs;
  for (auto& c : callbacks_) c->validation_end(*this, logs);
  return logs;
}

// In the middle of an epoch; false: cut off, and saved.
bool Trainer::step_validation(Running& run, data::AnyPipeline& val) {
  due_ = Due::validation;
  const std::optional<Logs> evaluated = evaluate(run, val);
  if (!evaluated) {
    save({});
    return false;
  }
  due_ = Due::none;
  write_logs(run, *evaluated);
  Logs logs = epoch_logs();
  logs.insert(logs.end(), evaluated->begin(), evaluated->end());
  std::string line = fmt::format("step {}", step_);
  for (const auto& [name, value] : logs) line += fmt::format("  {} {:.4g}", name, value);
  run.progress.keep(line);
  const double score = find_log(logs, monitor());
  run.result.logs = std::move(logs);
  save(std::isnan(score) ? std::optional<double>() : score);
  return true;
}

void Trainer::train_epoch(Running& run, data::AnyPipeline& train,
                          std::optional<data::AnyPipeline>& val) {
  const int64_t size = train.size();
  train.begin_pass();
  Batch batch;
  while (stop_.empty() && train.next(batch)) {
    const data::PipelineState at = train.state();
    const bool last = at.epoch != epoch_ || (options_.limits.train_batches >= 0 &&
                                             at.position >= options_.limits.train_batches);
    bool saved = false;
    if (train_batch(run, batch, last)) {
      const bool due = !options_.debug.barebones && step_ % options_.logging.every_steps == 0;
      if (!callbacks_.empty() || due) {
        Logs logs{{"train/step_loss", run.last_loss}};
        add_rates(logs);
        for (const auto& [name, value] : run.last_figures)
          logs.emplace_back("train/step_" + name, value);
        if (run.last_norm > 0) logs.emplace_back("train/grad_norm", run.last_norm);
        for (auto& c : callbacks_) c->step_end(*this, logs);
        if (due) write_logs(run, logs);
      }
      if (options_.max_steps >= 0 && step_ >= options_.max_steps) stop("max_steps");
      if (ranks_ ? ranks_->late : over_time()) stop("max_seconds");
      if (val && !last && options_.validation.every_steps > 0 && stop_ != "max_steps" &&
          step_ % options_.validation.every_steps == 0) {
        saved = true;
        if (!step_validation(run, *val)) return;
      }
      if (asked_to_stop(run) && saved) return;
      if (!saved && !last && stop_.empty() && options_.saving.every_steps > 0 &&
          step_ % options_.saving.every_steps == 0)
        save({});
    }
    if (options_.progress && !(ranks_ && ranks_->rank() > 0))
      run.progress.show([&] { return progress_line(run, train); });
    if (last) return;
    if (!stop_.empty()) {
      if (micro_ == 0 && !saved) save({});
      return;
    }
  }
  TD_CHECK(!stop_.empty() || size > 0, Value, "there is no data to train on");
}

// Logs, validation, callbacks and checkpoint of an epoch's end, or of the end of a run in the
// middle of one. False: its validation was cut off; it is repeated when the run is resumed.
bool Trainer::end_epoch(Running& run, std::optional<data::AnyPipeline>& val, bool whole) {
  Logs logs = epoch_logs();
  const bool ends = epoch_ + 1 == options_.max_epochs || stop_ == "max_steps";
  const bool evaluated = options_.validation.every_steps > 0 && evaluated_step_ == step_;
  const bool wanted = options_.validation.every_steps > 0
                          ? ends || evaluated || step_ % options_.validation.every_steps == 0
                          : ends || (epoch_ + 1) % options_.validation.every_epochs == 0;
  if (val && (wanted || due_ != Due::none)) {
    due_ = whole ? Due::epoch : Due::end;
    const std::optional<Logs> values = evaluated ? evaluated_ : evaluate(run, *val);
    if (!values) {
      save({});
      return false;
    }
    due_ = Due::none;
    logs.insert(logs.end(), values->begin(), values->end());
  }
  step_schedules(ScheduleEvery::epoch);
  const WholeParams here(*this, WholeParams::at_ends(*this));
  write_logs(run, logs);
  for (auto& c : callbacks_) c->epoch_end(*this, logs);
  const double score = find_log(logs, monitor());
  std::string line = fmt::format("epoch {}/{}  step {}", epoch_ + 1, options_.max_epochs, step_);
  for (const auto& [name, value] : logs) line += fmt::format("  {} {:.4g}", name, value);
  run.progress.keep(line);
  run.result.logs = logs;
  if (whole) ++epoch_;
  save(std::isnan(score) ? std::optional<double>() : score);
  return true;
}

// ---- fit

FitResult Trainer::fit(data::AnyPipeline train, std::optional<data::AnyPipeline> val) {
  TD_CHECK(train.size() > 0, Value, "there is no data to train on");
  for (auto& c : callbacks_) c->configure(options_);
  options_ = with_switches(std::move(options_));
  if (options_.debug.overfit_batches > 0) {
    train = first_batches(train, options_.debug.overfit_batches);
    val = first_batches(train, options_.debug.overfit_batches);
  }
  join_ranks(train);
  if (serving_ && !serving_->server.is_main()) {
    const FitResult worked = serving_->work();
    leave_ranks();
    return worked;
  }
  if (serving_) {
    train = serving_->positions();
    serving_->pass = &train;
  }
  if (ranks_) {
    ranks_->whole = train;
    train = train.part_of_batches(ranks_->part(), ranks_->parts());
  }
  Running run(options_.progress && !(ranks_ && ranks_->rank() > 0));
  StopGuard signals;
  std::optional<PreemptGuard> notice;
  if (options_.preempt.signal != 0 || !options_.preempt.url.empty())
    notice.emplace(options_.preempt);
  struct Fitting {
    Trainer& t;
    Fitting(Trainer& t, data::AnyPipeline& data) : t(t) {
      t.data_ = t.serving_ ? &t.serving_->whole : &data;
      t.fitting_ = true;
    }
    ~Fitting() {
      t.data_ = nullptr;
      t.fitting_ = false;
      t.release_checkpoints();
      t.leave_ranks();
    }
  } fitting(*this, train);
  try {
    try {
      const FitResult result = run_fit(run, train, val);
      if (serving_) serving_->server.dismiss();
      return result;
    } catch (...) {
      rethrow_as_error("training");
    }
  } catch (const std::exception& e) {
    if (run.folder) {
      write_part(run);
      run.folder->finish("failed");
      write_file(options_.folder + "/error.txt", std::string(e.what()) + "\n");
    }
    for (auto& c : callbacks_) c->exception(*this, e);
    throw;
  }
}

// Others may write to the folder now.
void Trainer::release_checkpoints() {
  if (!checkpoints_) return;
  try {
    checkpoints_->release();
  } catch (const std::exception& e) {  // fit() has waited: it ended with an error before
    log_warning("a checkpoint was not saved: {}", e.what());
  }
}

void Trainer::open(Running& run) {
  checkpoints_.reset();
  const bool writes = !ranks_ || ranks_->rank() == 0;
  if (!options_.folder.empty() && writes) run.lock.emplace(options_.folder);
  if (!options_.folder.empty() || !options_.saving.folder.empty()) {
    CheckpointOptions c = options_.checkpoints;
    c.higher_is_better = higher_is_better();
    checkpoints_ = std::make_unique<Checkpoints>(
        options_.saving.folder.empty() ? options_.folder + "/checkpoints" : options_.saving.folder,
        c);
    if (writes) checkpoints_->claim();
  }
  resume(run);  // before anything is written into the folder: it may be another run's
  if (!writes) checkpoints_.reset();
  if (options_.folder.empty() || !writes) return;
  run.folder = std::make_unique<runs::RunFolder>(options_.folder, options_.saving.files);
  run.folder->truncate(step_);  // what a run that was cut off logged after its checkpoint
}

// What this process did of the run.
void Trainer::write_part(Running& run) {
  const runs::Energy energy = run.energy.read();
  io::Json::Object part{{"steps", step_ - run.first_step},
                        {"seconds", seconds_since(run.start)},
                        {"samples", run.samples},
                        {"cpu_seconds", runs::process_seconds() - run.cpu_start},
                        {"peak_memory_mb", static_cast<double>(runs::peak_resident_bytes()) / 1e6},
                        {"joules", energy.joules},
                        {"energy", energy.source}};
  if (ranks_ || serving_) {
    io::Json::Array calls;
    for (const distributed::CallTotals& t : distributed::world()->call_totals())
      calls.emplace_back(io::Json::Object{{"label", t.label},
                                          {"calls", t.calls},
                                          {"mb", static_cast<double>(t.bytes) / 1e6},
                                          {"seconds", t.seconds},
                                          {"exposed", t.waited}});
    part.emplace_back("communication", std::move(calls));
  }
  if (ranks_) {
    io::Json::Array late;
    for (const distributed::RankDelay& d : ranks_->engine().delays())
      late.emplace_back(io::Json::Object{{"calls", d.calls}, {"seconds", d.seconds}});
    part.emplace_back("late_ranks", std::move(late));
  }
  run.folder->part(std::move(part));
}

FitResult Trainer::run_fit(Running& run, data::AnyPipeline& train,
                           std::optional<data::AnyPipeline>& val) {
  stop_.clear();
  due_ = Due::none;
  evaluated_step_ = -1;
  seconds_before_ = 0;
  fit_start_ = Clock::now();
  model_.train();
  make_average(train);
  open(run);
  if (val && step_ == 0 && options_.validation.sanity_batches > 0)
    validate(*val, "val/", options_.validation.sanity_batches);
  {
    std::optional<WholeParams> here;  // callbacks of one rank may run a net that is spread
    if (ranks_ && ranks_->spread) here.emplace(*this);
    for (auto& c : callbacks_) c->fit_begin(*this);
  }
  run.start = Clock::now();
  epoch_ = train.state().epoch - (due_ == Due::epoch ? 1 : 0);
  if (due_ == Due::end) {
    if (options_.max_steps >= 0 && step_ >= options_.max_steps)
      stop("max_steps");
    else
      due_ = Due::none;  // it was the end; now the run is longer
  }
  if (due_ == Due::validation && (!val || step_validation(run, *val))) due_ = Due::none;
  bool whole = due_ != Due::end;
  while ((epoch_ < options_.max_epochs && stop_.empty()) || due_ == Due::end) {
    if (due_ == Due::none) {
      if (options_.max_steps >= 0 && step_ >= options_.max_steps) break;
      if (train.state().position == 0) {
        loss_sum_ = samples_ = 0;
        figures_.clear();
        for (auto& m : metrics_) m->reset();
        for (auto& c : callbacks_) c->epoch_begin(*this);
      }
      micro_ = 0;
      train_epoch(run, train, val);
      whole = train.state().epoch != epoch_ ||
              (options_.limits.train_batches >= 0 &&
               train.state().position >= options_.limits.train_batches);
      if (!whole && stop_ != "max_steps") break;  // in the middle: saved there
      if (whole && train.state().epoch == epoch_) train.set_epoch(epoch_ + 1);
      average(true);
    }
    if (!end_epoch(run, val, whole)) break;
    if (stop_ == "max_steps") break;
  }
  if (checkpoints_) checkpoints_->wait();
  say_if_late();
  make_whole();
  finish_average(ranks_ ? *ranks_->whole : train, !run.result.interrupted);
  for (auto& c : callbacks_) c->fit_end(*this);
  run.result.steps = step_;
  run.result.epochs = epoch_;
  run.result.reason = stop_.empty() ? "done" : stop_;
  run.result.skipped = skipped_;
  run.result.overflows = overflows_;
  run.result.seconds = seconds_since(run.start);
  if (run.folder) {
    write_part(run);
    run.folder->finish(run.result.preempted     ? "preempted"
                       : run.result.interrupted ? "interrupted"
                                                : "done");
  }
  return run.result;
}

}  // namespace tandem::train
