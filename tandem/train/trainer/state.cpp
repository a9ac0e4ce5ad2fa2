// SPDX-License-Identifier: Apache-2.0
// What a run keeps over its steps: checkpoints in and out, and the average of its weights.
#include <algorithm>
#include <cmath>

#include "tandem/base/log.h"
#include "tandem/io/tensor_spool.h"
#include "tandem/ops/ops.h"
#include "tandem/train/trainer/serving_internal.h"

namespace tandem::train {
namespace {

constexpr std::string_view kOptimizerPart = "optimizer.";

io::Json numbers(const std::vector<double>& v) {
  io::Json::Array a;
  for (double x : v) a.push_back(x);
  return a;
}
std::vector<double> numbers_of(const io::Json* j) {
  std::vector<double> out;
  if (j && j->as_array())
    for (const io::Json& x : *j->as_array()) out.push_back(io::number_of(&x));
  return out;
}

// Before the names of a callback's tensors.
std::string prefix_of(const std::string& callback) { return "callback." + callback + "."; }

}  // namespace

std::string Trainer::callback_key(size_t i) const {
  return fmt::format("{}.{}", i, callbacks_[i]->name());
}

// Whole values of model and optimizer, where ranks have parts of them; all ranks call it. They pass
// one after the other, and the rank that writes puts them aside in a file.
void Trainer::take_whole(RunParts& to) {
  if (ranks_->spread) {
    to.optimizer_state = ranks_->spread->optim_state_dict(optimizer());
    return;
  }
  constexpr std::string_view kModel = "model.";
  std::optional<io::TensorSpool> spool;
  std::exception_ptr error;
  if (checkpoints_) try {  // the one before must be written: each takes the disk's space twice
      checkpoints_->wait();
    } catch (...) {
      error = std::current_exception();
    }
  const auto keep = [&](const std::string& name, const Tensor& value) {
    if (checkpoints_ && !error) try {
        if (!spool) spool.emplace(checkpoints_->folder());
        spool->add(name, value);
      } catch (...) {  // the others wait for this rank's part of the next one
        error = std::current_exception();
      }
  };
  ranks_->model.each_state([&](const std::string& name, const Tensor& value) {
    keep(std::string(kModel) + name, value);
  });
  ranks_->model.each_optim_state(optimizer(), [&](const std::string& name, const Tensor& value) {
    keep(std::string(kOptimizerPart) + name, value);
  });
  if (error) std::rethrow_exception(error);
  if (!spool) return;
  to.model_state.emplace();
  to.optimizer_state.emplace();
  for (const auto& [name, value] : spool->finish())
    if (name.starts_with(kModel))
      (*to.model_state)[name.substr(kModel.size())] = value;
    else
      (*to.optimizer_state)[name.substr(kOptimizerPart.size())] = value;
}

void Trainer::save(std::optional<double> score) {
  const WholeSums whole(*this);
  const WholeParams here(*this, WholeParams::at_ends(*this));
  RunParts now = parts();
  if (sharded()) take_whole(now);
  if (serving_ && serving_->shared())
    now.optimizer_state = serving_->server.optim_state_dict(optimizer());
  if (!checkpoints_) return;
  io::Json::Object metrics, callbacks;
  for (const auto& m : metrics_) metrics.emplace_back(m->name(), numbers(m->state()));
  for (size_t i = 0; i < callbacks_.size(); ++i)
    callbacks.emplace_back(callback_key(i), callbacks_[i]->state());
  io::Json::Object more{{"loss_sum", loss_sum_},
                        {"samples", samples_},
                        {"metrics", std::move(metrics)},
                        {"callbacks", std::move(callbacks)},
                        {"seconds", seconds_before_ + seconds_since(fit_start_)},
                        {"higher_is_better", higher_is_better()}};
  if (!figures_.empty()) {
    io::Json::Object figures;
    for (const Mean& m : figures_) figures.emplace_back(m.name, numbers({m.sum, m.count}));
    more.emplace_back("figures", std::move(figures));
  }
  if (due_ != Due::none) more.emplace_back("due", static_cast<int64_t>(due_));
  if (evaluated_step_ >= 0) {
    io::Json::Object values;
    for (const auto& [name, value] : evaluated_) values.emplace_back(name, value);
    more.emplace_back("evaluated_step", evaluated_step_);
    more.emplace_back("evaluated", std::move(values));
  }
  Snapshot s = snapshot(now, step_, std::move(more));
  for (size_t i = 0; i < callbacks_.size(); ++i)
    for (const auto& [name, value] : callbacks_[i]->tensors())
      s.optimizer[prefix_of(callback_key(i)) + name] = value;
  s.files = options_.saving.files;
  s.score = score;
  checkpoints_->save(std::move(s));
  for (auto& c : callbacks_) c->checkpoint_saved(*this, checkpoints_->folder());
}

namespace {

// A checkpoint holds whole moments; this rank takes its parts of them.
template <class Ranks>
void take_parts(Ranks& ranks, const optim::Optimizer& optimizer, Snapshot& s) {
  StateDict whole;
  for (const auto& [name, value] : s.optimizer)
    if (name.starts_with(kOptimizerPart)) whole[name.substr(kOptimizerPart.size())] = value;
  for (const auto& [name, value] : ranks.parts_of_optim_state(optimizer, whole))
    s.optimizer[std::string(kOptimizerPart) + name] = value;
}

std::vector<double> initial_rates(const std::vector<NamedOptimizer>& optimizers) {
  std::vector<double> rates;
  for (const NamedOptimizer& o : optimizers)
    for (size_t g = 0; o.optimizer.has_option("lr") && g < o.optimizer.num_groups(); ++g)
      rates.push_back(o.optimizer.initial_lr(g));
  return rates;
}

}  // namespace

void Trainer::resume(Running& run) {
  if (!checkpoints_ || !options_.resume) return;
  std::optional<Snapshot> s = load_shared();
  if (!s) return;
  if (resume_hooks_.before) resume_hooks_.before(*s);
  const std::vector<double> given = initial_rates(optimizers_);
  io::Json more;
  if (sharded()) take_parts(*ranks_, optimizer(), *s);
  if (serving_) take_parts(serving_->server, optimizer(), *s);
  try {
    std::optional<WholeParams> here;  // which a checkpoint holds
    if (sharded() && ranks_->spread) here.emplace(*this);
    more = restore(parts(), *s);
    if (sharded() && !here) ranks_->reshard();
  } catch (const Error& e) {
    throw Error(e.kind(),
                fmt::format("'{}' holds a run of another model or with other parts: {}",
                            checkpoints_->folder(), e.message()),
                "Resume it with the recipe in the folder, or use another folder.", e.op(), e.loc(),
                e.layer());
  }
  const std::vector<double> resumed = initial_rates(optimizers_);
  for (size_t i = 0; i < given.size() && !resume_hooks_.after; ++i)
    if (given[i] != resumed[i]) {
      log_warning(
          "the run resumed from '{}' keeps its learning rate {}; the optimizer was made with {}, "
          "which counts only where on_resume()'s `after` sets it",
          checkpoints_->folder(), resumed[i], given[i]);
      break;
    }
  if (serving_) {
    serving_->server.scatter();
    serving_->follow();
  }
  step_ = run.first_step = s->step;
  loss_sum_ = io::number_of(more.find("loss_sum"));
  samples_ = io::number_of(more.find("samples"));
  figures_.clear();
  if (const io::Json* figures = more.find("figures"); figures && figures->as_object())
    for (const auto& [name, value] : *figures->as_object())
      if (const std::vector<double> v = numbers_of(&value); v.size() == 2)
        figures_.push_back({name, v[0], v[1]});
  if (const double before = io::number_of(more.find("seconds")); before > 0)
    seconds_before_ = before;
  if (options_.max_seconds > 0 && seconds_before_ > options_.max_seconds) stop("max_seconds");
  if (const io::Json* due = more.find("due"); due && due->as_int())
    due_ = static_cast<Due>(std::clamp<int64_t>(*due->as_int(), 0, 3));
  if (const io::Json* evaluated = more.find("evaluated"); evaluated && evaluated->as_object()) {
    evaluated_.clear();
    for (const auto& [name, value] : *evaluated->as_object())
      evaluated_.emplace_back(name, io::number_of(&value));
    const io::Json* at = more.find("evaluated_step");
    evaluated_step_ = at && at->as_int() ? *at->as_int() : -1;
  }
  // Sums of all ranks: one of them has them from here on.
  const bool main = !ranks_ || ranks_->rank() == 0;
  if (!main) figures_.clear();
  if (const io::Json* metrics = more.find("metrics"); metrics && main)
    for (auto& m : metrics_) m->load_state(numbers_of(metrics->find(m->name())));
  if (const io::Json* states = more.find("callbacks"))
    for (size_t i = 0; i < callbacks_.size(); ++i)
      if (const io::Json* j = states->find(callback_key(i))) callbacks_[i]->load_state(*j);
  for (size_t i = 0; i < callbacks_.size(); ++i) {
    const std::string prefix = prefix_of(callback_key(i));
    StateDict tensors;
    for (const auto& [name, value] : s->optimizer)
      if (name.starts_with(prefix)) tensors[name.substr(prefix.size())] = value;
    if (!tensors.empty()) callbacks_[i]->load_tensors(tensors);
  }
  const std::string changed = resume_hooks_.after ? resume_hooks_.after() : "";
  run.progress.keep(fmt::format("resumed at step {} of '{}'{}", step_, checkpoints_->folder(),
                                changed.empty() ? "" : ", from here on with " + changed));
}

bool Trainer::load_best() {
  if (!checkpoints_) return false;
  checkpoints_->wait();
  std::optional<Snapshot> s = checkpoints_->load_best();
  if (s) model_.load_state_dict(weights_of(*s));
  return s.has_value();
}

// ---- the average

RunParts Trainer::parts() {
  RunParts p{.model = &model_,
             .scaler = scaler_.get(),
             .data = serving_ ? serving_->pass : data_,
             .extra = extra_};
  if (!several()) {
    p.optimizer = &optimizer();
    if (!schedules_.empty()) p.schedule = schedules_.front().schedule;
  } else {
    for (const NamedOptimizer& o : optimizers_) {
      p.optimizers.emplace_back(o.name, &o.optimizer);
      for (const Scheduled& s : schedules_)
        if (&s.schedule->optimizer() == &o.optimizer) p.schedules.emplace_back(o.name, s.schedule);
    }
  }
  if (average_)
    p.extra.push_back({kAveragePart, [this] { return average_->state_dict(); },
                       [this](const StateDict& s) { average_->load_state_dict(s); }});
  return p;
}

StateDict Trainer::weights() {
  const AveragedWeights averaged(average_.get());
  return model_.state_dict();
}

void Trainer::make_average(const data::AnyPipeline& train) {
  AverageOptions& a = options_.average;
  if (a.type == AverageKind::none) {
    average_.reset();
    return;
  }
  const bool ema = a.type == AverageKind::ema;
  TD_CHECK(a.every >= -1 && a.start <= 1 && (a.start >= 0 || a.start == -1), Value,
           "average expects every >= 0 and a start from 0 to 1, got {} and {}", a.every, a.start);
  if (a.every < 0) a.every = ema ? 1 : 0;
  if (a.start < 0) a.start = ema ? 0 : 0.75;
  const int64_t planned = planned_updates(options_, train.size());
  TD_CHECK(a.start == 0 || planned != INT64_MAX, Value,
           "average.start {} is a share of a run that has no end\nSet max_steps, or start 0.",
           a.start);
  average_from_ =
      a.start == 0 ? 0 : static_cast<int64_t>(std::ceil(a.start * static_cast<double>(planned)));
  if (average_ && average_->swapped()) average_->swap();  // on from where an earlier fit() ended
  if (!average_)
    average_ = std::make_unique<optim::WeightAverage>(
        model_, optim::AveragedModelOptions{
                    .decay = ema ? std::optional<double>(a.decay) : std::optional<double>(),
                    .use_buffers = a.buffers,
                    .warmup = ema && a.warmup});
}

void Trainer::average(bool epoch_end) {
  if (!average_ || step_ < average_from_) return;
  const int64_t every = options_.average.every;
  if (every == 0 ? epoch_end : !epoch_end && step_ % every == 0) average_->update();
}

// The average into the model. Those of SWA get batch statistics of their own: the ones of training
// belong to other weights.
void Trainer::finish_average(const data::AnyPipeline& train, bool renew) {
  if (!average_ || average_->count() == 0) {
    if (average_) log_warning("the run ended before the first value of its average was taken");
    return;
  }
  average_->swap();
  if (!renew || options_.average.type != AverageKind::swa || options_.average.buffers) return;
  const optim::detail::BatchNormReset reset(model_);
  if (!reset.any()) return;
  const GeneratorState rng = generator_state();
  NoGradGuard no_grad;
  const AutocastGuard cast = autocast_of(options_);
  data::AnyPipeline pass(train.stage(), train.seed(), train.prefetch_options());
  const int64_t batches = planned_batches(options_, train.size());
  pass.set_epoch(0);
  pass.begin_pass();
  Batch batch;
  for (int64_t k = 0; k < batches && pass.next(batch); ++k) step_function_(batch);
  set_generator_state(rng);
}

}  // namespace tandem::train
