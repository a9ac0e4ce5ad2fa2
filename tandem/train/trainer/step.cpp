// SPDX-License-Identifier: Apache-2.0
// A step is forward, backward and update in one compiled function; an update whose loss or gradient
// norm is not finite is held back inside it (AssignIf), so the step can be run again, op by op,
// from the state before it.
#include <algorithm>
#include <cmath>

#include "tandem/compile/compile.h"
#include "tandem/ops/ops.h"
#include "tandem/train/trainer/serving_internal.h"
#include "tandem/train/trainer/state_keeper_internal.h"

namespace tandem::train {

Tensor mean_loss(Tensor loss, const Tensor& weights) {
  if (weights.defined()) {
    const Tensor w = weights.to(loss.dtype());
    TD_CHECK(loss.dim() >= 1 && w.dim() == 1 && w.size(0) == loss.size(0), Shape,
             "sample weights expect a loss with a value per sample, [n] or [n, ...], and weights "
             "[n], got {} and {}",
             loss.shape().to_string(), w.shape().to_string());
    if (loss.dim() > 1) loss = loss.flatten(1).mean({1});
    loss = loss * w;
  }
  return loss.dim() > 0 ? loss.mean() : loss;
}

namespace {

void check_options(const TrainerOptions& o) {
  TD_CHECK(
      o.accumulate >= 1 && o.max_epochs >= 0 && o.logging.every_steps >= 1, Value,
      "Trainer expects accumulate >= 1, max_epochs >= 0 and logging.every_steps >= 1, got {}, {} "
      "and {}",
      o.accumulate, o.max_epochs, o.logging.every_steps);
  const int64_t fast = o.debug.fast_dev_run, overfit = o.debug.overfit_batches;
  const ValidationOptions& v = o.validation;
  TD_CHECK(
      fast >= 0 && overfit >= 0 && v.every_steps >= 0 && v.every_epochs >= 1, Value,
      "Trainer expects debug.fast_dev_run, debug.overfit_batches and validation.every_steps >= 0 "
      "and validation.every_epochs >= 1, got {}, {}, {} and {}",
      fast, overfit, v.every_steps, v.every_epochs);
}

}  // namespace

Trainer::Trainer(nn::Module& model, StepFunction step, optim::Optimizer& optimizer,
                 TrainerOptions options)
    : model_(model),
      step_function_(std::move(step)),
      optimizers_{NamedOptimizer{"", optimizer}},
      options_(std::move(options)),
      compiled_(std::make_unique<Compiled>()) {
  make_steps();
}

Device Trainer::device() const {
  return ranks_ && ranks_->offloaded ? *ranks_->offloaded : device_of(optimizer());
}

void Trainer::make_steps() {
  check_options(options_);
  if (options_.precision == TrainPrecision::fp16)
    scaler_ = std::make_unique<optim::GradScaler>(options_.scaler);
  for (const std::string& name : options_.metrics) metrics_.push_back(make_metric(name));
  compile_steps();
}

void Trainer::compile_steps() {
  auto train = [this](const Batch& b, bool first, bool last, int64_t due) {
    return train_step(b, first, last, due);
  };
  auto update = [this](Tensor loss) {
    Tensor good;
    const Tensor norm = apply_update(optimizer(), loss, good);
    if (scaler_) scaler_->update();
    return norm.defined() ? norm : zeros({});
  };
  auto eval = [this](const Batch& b) {
    NoGradGuard no_grad;
    const AutocastGuard cast = autocast_of(options_);
    StepOutput o = step_function_(b);
    return StepResult{.loss = o.loss,
                      .norm = {},
                      .output = o.output,
                      .target = o.target,
                      .prediction = o.prediction,
                      .figures = o.figures};
  };
  const bool staged = ranks_ && ranks_->staged();
  compiled_->train = train;
  compiled_->eval = eval;
  compiled_->update = update;
  // A program runs on one device.
  if (options_.compile && !(ranks_ && ranks_->offloaded)) {
    if (!staged) compiled_->train = tandem::compile(train, {.name = "train step"});
    compiled_->eval = tandem::compile(eval, {.name = "validation step"});
    compiled_->update = tandem::compile(update, {.name = "update"});
  }
  // Steps run where the model is.
  compiled_->train = [this, run = std::move(compiled_->train)](const Batch& b, bool first,
                                                               bool last, int64_t due) {
    const DeviceGuard there(device());
    return run(batch_on(device(), b), first, last, due);
  };
  compiled_->eval = [this, run = std::move(compiled_->eval)](const Batch& b) {
    const DeviceGuard there(device());
    return run(batch_on(device(), b));
  };
}

// The optimizer's update by gradients that are there, unless something in it is not finite. Gives
// their norm where it was asked for. `good` holds the look at earlier updates of the step.
Tensor Trainer::apply_update(optim::Optimizer& optimizer, const Tensor& loss, Tensor& good) {
  if (scaler_) scaler_->unscale_(optimizer);
  const bool watch = options_.on_nonfinite != OnNonFinite::off;
  Tensor norm;
  if (options_.clip_norm > 0)
    norm = sharded()  ? ranks_->clip_grad_norm_(options_.clip_norm)
           : serving_ ? serving_->server.clip_grad_norm_(optimizer.params(), options_.clip_norm)
                      : optim::clip_grad_norm_(optimizer.params(), options_.clip_norm);
  else if (watch)
    norm = sharded()  ? ranks_->get_total_norm()
           : serving_ ? serving_->server.get_total_norm(optimizer.params())
                      : optim::get_total_norm(optimizer.params());
  // The scaler holds back what is not finite by itself, and tries a smaller scale.
  if (scaler_) {
    scaler_->step(optimizer);
  } else if (watch) {
    Tensor now = logical_and(isfinite(loss.detach()).reshape({}), isfinite(norm).reshape({}));
    good = good.defined() ? logical_and(good, now) : now;
    AssignIf keep(good);
    optimizer.step();
  } else {
    optimizer.step();
  }
  return norm;
}

Trainer::StepResult Trainer::single_step(const Batch& b, bool first, bool last) {
  if (first) optimizer().zero_grad();
  StepOutput o;
  {
    const AutocastGuard cast = autocast_of(options_);
    o = step_function_(b);
  }
  TD_CHECK(o.loss.defined() && o.loss.numel() == 1, Shape,
           "the step's loss expects one element, got {}\nReduce it: loss.mean().",
           o.loss.defined() ? o.loss.shape().to_string() : "none");
  Tensor scaled =
      options_.accumulate > 1 ? o.loss / static_cast<double>(options_.accumulate) : o.loss;
  (scaler_ ? scaler_->scale(scaled) : scaled).backward();
  Tensor norm, good;
  if (last) {
    norm = apply_update(optimizer(), o.loss, good);
    if (scaler_) scaler_->update();
  }
  auto free = [](const Tensor& t) { return t.defined() ? t.detach() : t; };
  StepResult r{.loss = o.loss.detach(),
               .norm = norm,
               .output = free(o.output),
               .target = free(o.target),
               .prediction = {}};
  for (const auto& [name, value] : o.figures) r.figures.emplace_back(name, value.detach());
  return r;
}

void Trainer::zero_gradients() {
  for (const NamedOptimizer& o : optimizers_) o.optimizer.zero_grad();
}

void Trainer::explain(const Batch& batch, const std::string& what, GeneratorState rng) {
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
  make_whole();    // all ranks are here: loss and norm are those of all of them
  ranks_.reset();  // what follows is this rank's alone
  set_generator_state(rng);
  try {
    DetectAnomalyGuard anomaly;
    zero_gradients();
    const AutocastGuard cast = autocast_of(options_);
    const DeviceGuard there(device());
    step_function_(batch_on(device(), batch)).loss.backward();
  } catch (const Error& e) {
    found = e.what();
  }
  zero_gradients();
  const std::string text = fmt::format(
      "step {} of epoch {}: {}. First in: {} Samples of the batch: {}.{}\nThe weights are those "
      "before this {}. Lower the learning rate, clip the gradient (clip_norm), or look at these "
      "samples.",
      step_ + 1, epoch_, what, found, samples.empty() ? "unknown" : samples,
      file.empty() ? "" : fmt::format(" The batch is in '{}'", file),
      several() ? "step, but for the optimizers whose update came first" : "step");
  if (!options_.folder.empty()) write_file(options_.folder + "/nonfinite.txt", text + "\n");
  TD_FAIL(Value, "{}", text);
}

namespace {

double double_of(const Tensor& t) { return t.to(DType::f64).item<double>(); }

// A number, or "nan" whatever its sign.
std::string finite_text(double v) { return std::isnan(v) ? "nan" : fmt::format("{:.6g}", v); }

StepOutput on_host(StepOutput o) {
  for (Tensor* t : {&o.loss, &o.output, &o.target, &o.prediction})
    if (t->defined()) *t = t->cpu();
  for (auto& [name, value] : o.figures) value = value.cpu();
  return o;
}

// Adds values of a batch of `rows` samples to their means.
template <class Mean>
void add_figures(std::vector<Mean>& means, const Logs& values, double rows) {
  for (const auto& [name, value] : values) {
    auto at = std::find_if(means.begin(), means.end(),
                           [&name = name](const Mean& m) { return m.name == name; });
    if (at == means.end()) at = means.insert(means.end(), Mean{name});
    at->sum += value * rows;
    at->count += rows;
  }
}

}  // namespace

// Gives true when the batch ended an update.
bool Trainer::train_batch(Running& run, const Batch& batch, bool last) {
  for (auto& c : callbacks_) c->batch_begin(*this, batch);
  const GeneratorState rng = generator_state();
  const bool first = micro_ == 0, update = last || micro_ + 1 == options_.accumulate;
  const int64_t due = due_optimizers(step_ + 1);
  if (serving_ && !update) {  // its workers compute all batches of an update
    ++micro_;
    return false;
  }
  const StepResult out = serving_ ? serving_->step()
                         : ranks_ ? step_on_ranks(batch, first, update, due)
                                  : compiled_->train(batch, first, update, due);
  // Whole batches of a data parallel run count once.
  const bool whole = !ranks_ || whole_batch();
  const double own = serving_ ? serving_->rows : batch_rows(batch);
  const double rows = own * static_cast<double>(whole ? 1 : ranks_->parts());
  const bool counts = !ranks_ || (ranks_->counts() && (!whole || ranks_->part() == 0));
  const double loss = double_of(out.loss);
  const double norm = out.norm.defined() ? double_of(out.norm) : 0;
  run.last_loss = loss;
  run.last_norm = norm;
  run.last_figures.clear();
  bool finite = std::isfinite(loss);
  std::string what = "the loss is " + finite_text(loss);
  for (const auto& [name, value] : out.figures) {
    run.last_figures.emplace_back(name, double_of(value));
    if (static_cast<int64_t>(run.last_figures.size()) > out.losses) continue;
    finite &= std::isfinite(run.last_figures.back().second);
    what += fmt::format(", {} {}", name, finite_text(run.last_figures.back().second));
  }
  // Gradients beyond float16's range are the scaler's daily bread, not a fault of the run.
  const bool overflow = scaler_ && finite && !std::isfinite(norm);
  if (overflow) ++overflows_;
  if (!overflow && options_.on_nonfinite != OnNonFinite::off && !(finite && std::isfinite(norm))) {
    if (options_.on_nonfinite == OnNonFinite::stop)
      explain(serving_ ? serving_->batch() : batch,
              fmt::format("{}, the gradient norm {}", what, finite_text(norm)), rng);
    ++skipped_;
  } else {
    loss_sum_ += serving_ ? serving_->loss_sum : loss * rows;
    samples_ += rows;
    add_figures(figures_, run.last_figures, own * (counts ? 1 : 0));
    if (serving_) serving_->merge_metrics();
    if (options_.logging.train_metrics && counts && out.output.defined() && out.target.defined())
      for (auto& m : metrics_) m->update(out.output, out.target);
  }
  run.samples += rows;
  micro_ = update ? 0 : micro_ + 1;
  if (!update) return false;
  ++step_;
  step_schedules(ScheduleEvery::step);
  average(false);
  return true;
}

Logs Trainer::validate(data::AnyPipeline data, const std::string& prefix, int64_t limit,
                       const BatchViewer& see) {
  if (!fitting_)
    for (auto& c : callbacks_) c->test_begin(*this);
  AveragedWeights averaged(average_.get());
  const bool shared = ranks_ && fitting_ && !see;  // by the ranks
  // Parameters that come and go: each pass of one rank is a pass of all.
  const bool together =
      shared && !ranks_->spread && options_.strategy == TrainStrategy::fsdp && !ranks_->unsharded();
  const WholeParams whole(*this, !together);
  EvalMode mode(model_);
  std::vector<std::unique_ptr<Metric>> metrics;
  for (const std::string& name : options_.metrics) metrics.push_back(make_metric(name));
  std::vector<Mean> figures;
  double sum = 0, count = 0;
  int64_t counted = limit;
  if (shared) {
    data = own_elements(data, counted, together);
    limit = -1;
  }
  data.set_epoch(0);
  data.begin_pass();
  Batch batch;
  cut_ = false;
  for (int64_t k = 0; k != limit && data.next(batch); ++k) {
    if (fitting_ && !ranks_ && stop_requested()) {
      cut_ = true;
      return {};
    }
    const StepResult out = compiled_->eval(batch);
    if (shared && k >= counted) continue;
    TD_CHECK(out.loss.defined(), Value,
             "the step gave no loss to validate by\nIts output's loss is undefined; of several "
             "optimizers, hand a loss to each in validation too.");
    sum += double_of(out.loss) * batch_rows(batch);
    count += batch_rows(batch);
    Logs values;
    for (const auto& [name, value] : out.figures) values.emplace_back(name, double_of(value));
    add_figures(figures, values, batch_rows(batch));
    if (out.output.defined() && out.target.defined())
      for (auto& m : metrics) m->update(out.output, out.target);
    if (see) see(batch, on_host({out.loss, out.output, out.target, out.prediction, out.figures}));
  }
  if (together) ranks_->reshard();
  if (shared) {
    std::vector<double> sums{sum, count};
    merge_ranks(figures, metrics, &sums);
    sum = sums[0];
    count = sums[1];
  }
  TD_CHECK(count > 0, Value, "there is no data to validate on");
  Logs logs{{prefix + "loss", sum / count}};
  for (const Mean& m : figures) logs.emplace_back(prefix + m.name, m.sum / m.count);
  for (auto& m : metrics) logs.emplace_back(prefix + m->name(), m->compute());
  if (!fitting_)
    for (auto& c : callbacks_) c->test_end(*this, logs);
  return logs;
}

Tensor Trainer::predict(data::AnyPipeline data) {
  for (auto& c : callbacks_) c->predict_begin(*this);
  AveragedWeights averaged(average_.get());
  EvalMode mode(model_);
  std::vector<Tensor> parts;
  data.set_epoch(0);
  data.begin_pass();
  for (Batch batch; data.next(batch);) {
    const StepResult out = compiled_->eval(batch);
    parts.push_back(out.prediction.defined() ? out.prediction : out.output);
    TD_CHECK(parts.back().defined(), Value, "the step gives no output to predict");
  }
  TD_CHECK(!parts.empty(), Value, "there is no data to predict");
  for (auto& c : callbacks_) c->predict_end(*this);
  return parts.size() == 1 ? parts[0] : cat(parts, 0);
}

double Trainer::update(const Batch& batch) {
  model_.train();
  return double_of(compiled_->train(batch, true, true, due_optimizers(0)).loss);
}

LRFindResult Trainer::lr_find(data::AnyPipeline train, const LRFindOptions& options) {
  TD_CHECK(
      !several(), Unsupported,
      "lr_find() sweeps the rate of one optimizer, this trainer has {}\nSweep each in a trainer "
      "of its own, with the others' parameters fixed.",
      optimizers_.size());
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
          if (batch_rows(batch) < static_cast<double>(n)) return false;
          size = n;
        }
        update(batch);
        return true;
      },
      options);
}

}  // namespace tandem::train
