// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/combined_schedules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "tandem/ops/create.h"

namespace tandem::optim {
namespace {

constexpr double kPi = 3.14159265358979323846;

std::vector<double> rates(const Optimizer& o) {
  std::vector<double> v;
  for (size_t g = 0; g < o.num_groups(); ++g) v.push_back(o.lr(g));
  return v;
}

void put(StateDict& d, const std::string& name, double v) { d[name] = full({}, v, DType::f64); }

// The n numbers of `name`.
std::vector<double> get(const StateDict& d, const char* type, const std::string& name, size_t n) {
  const Tensor* v = d.find(name);
  TD_CHECK(v, Value, "{}: the state has no '{}'", type, name);
  TD_CHECK(v->numel() == static_cast<int64_t>(n), Shape, "{}: '{}' wants {} numbers, has {}", type,
           name, n, v->numel());
  return v->to_vector<double>();
}

void check_names(const StateDict& d, const char* type,
                 const std::unordered_set<std::string>& known) {
  for (const auto& [name, v] : d)
    TD_CHECK(known.count(name), Value, "{}: the state holds '{}', which is not known here", type,
             name);
}

void want(bool good, const char* type, const char* what, double got) {
  TD_CHECK(good, Value, "{} wants {}, got {}", type, what, got);
}

double cosine(double from, double to, double part) {
  return to + (from - to) / 2 * (1 + std::cos(kPi * part));
}
double linear(double from, double to, double part) { return from + (to - from) * part; }

// momentum or beta1, whichever the optimizer has.
const char* momentum_of(const Optimizer& o, const char* type) {
  TD_CHECK(o.has_option("momentum") || o.has_option("beta1"), Value,
           "{} with cycle_momentum wants an optimizer with momentum or betas, {} has none\n"
           "Set cycle_momentum = false.",
           type, o.type());
  return o.has_option("momentum") ? "momentum" : "beta1";
}

StateDict states_of(const std::vector<LRScheduler*>& list, int64_t epoch) {
  StateDict d;
  put(d, "last_epoch", static_cast<double>(epoch));
  for (size_t i = 0; i < list.size(); ++i)
    for (const auto& [name, v] : list[i]->state_dict())
      d[fmt::format("schedulers.{}.{}", i, name)] = v;
  return d;
}

StateDict part_of(const StateDict& d, const std::string& prefix) {
  StateDict out;
  for (const auto& [name, v] : d)
    if (name.rfind(prefix, 0) == 0) out[name.substr(prefix.size())] = v;
  return out;
}

// Gives the epoch.
int64_t load_states(const std::vector<LRScheduler*>& list, const StateDict& state,
                    const char* type) {
  const double epoch = get(state, type, "last_epoch", 1)[0];
  for (size_t i = 0; i < list.size(); ++i)
    list[i]->load_state_dict(part_of(state, fmt::format("schedulers.{}.", i)));
  return static_cast<int64_t>(epoch);
}

void check_list(const std::vector<LRScheduler*>& list, const Optimizer* o, const char* type) {
  TD_CHECK(!list.empty(), Value, "{} wants at least one schedule", type);
  for (const LRScheduler* s : list)
    TD_CHECK(s && &s->optimizer() == o, Value, "{}: all schedules must belong to one optimizer",
             type);
}

}  // namespace

// ---- base

LRScheduler::LRScheduler(Optimizer& optimizer) : optimizer_(&optimizer) {
  for (size_t g = 0; g < optimizer.num_groups(); ++g) {
    optimizer.set_initial_lr(optimizer.initial_lr(g), g);
    base_lrs_.push_back(optimizer.initial_lr(g));
  }
}

void LRScheduler::set(bool closed_form) {
  TD_CHECK(base_lrs_.size() == optimizer_->num_groups(), Value,
           "{}: the optimizer has {} groups, {} when the schedule was made\nAdd groups first.",
           type_, optimizer_->num_groups(), base_lrs_.size());
  std::vector<double> lr = rates(*optimizer_);
  for (size_t g = 0; g < lr.size(); ++g) lr[g] = closed_form ? closed(g, lr[g]) : next(g, lr[g]);
  for (size_t g = 0; g < lr.size(); ++g) optimizer_->set_lr(lr[g], g);
}

void LRScheduler::step() {
  ++step_count_;
  ++epoch_;
  try {
    set(false);
  } catch (...) {
    --step_count_;
    --epoch_;
    throw;
  }
}

void LRScheduler::start() {
  step_count_ = 0;
  step();
}

void LRScheduler::restart() {
  epoch_ = 0;
  set(true);
}

std::vector<double> LRScheduler::get_last_lr() const { return rates(*optimizer_); }

std::vector<double> LRScheduler::spread(const PerGroup& v, const char* name) const {
  size_t n = optimizer_->num_groups();
  if (v.values.size() == 1) return std::vector<double>(n, v.values[0]);
  TD_CHECK(v.values.size() == n, Value, "{} wants {} of one number or {}, got {}", type_, name, n,
           v.values.size());
  return v.values;
}

StateDict LRScheduler::state_dict() const {
  StateDict d;
  put(d, "last_epoch", static_cast<double>(epoch_));
  put(d, "_step_count", static_cast<double>(step_count_));
  d["base_lrs"] = tensor(base_lrs_, {base_lrs_.size()});
  for (auto& [name, v] : const_cast<LRScheduler*>(this)->numbers()) put(d, name, *v);
  return d;
}

void LRScheduler::load_state_dict(const StateDict& state) {
  double epoch = get(state, type_, "last_epoch", 1)[0];
  double count = get(state, type_, "_step_count", 1)[0];
  std::vector<double> base = get(state, type_, "base_lrs", base_lrs_.size());
  std::vector<std::pair<double*, double>> plan;
  std::unordered_set<std::string> known = {"last_epoch", "_step_count", "base_lrs"};
  for (auto& [name, v] : numbers()) {
    plan.emplace_back(v, get(state, type_, name, 1)[0]);
    known.insert(name);
  }
  check_names(state, type_, known);
  epoch_ = static_cast<int64_t>(epoch);
  step_count_ = static_cast<int64_t>(count);
  base_lrs_ = base;
  for (auto& [to, v] : plan) *to = v;
}

// ---- factors of the step

#define TD_MAKE(name, ...)                                \
  name::name(Optimizer& optimizer, name##Options options) \
      : LRScheduler(optimizer), o_(std::move(options)) {  \
    type_ = #name;                                        \
    __VA_ARGS__;                                          \
    start();                                              \
  }

TD_MAKE(StepLR, want(o_.step_size > 0, type_, "step_size > 0", double(o_.step_size)))
double StepLR::next(size_t, double lr) {
  return epoch_ == 0 || epoch_ % o_.step_size != 0 ? lr : lr * o_.gamma;
}
double StepLR::closed(size_t g, double) {
  return base(g) * std::pow(o_.gamma, static_cast<double>(epoch_ / o_.step_size));
}

TD_MAKE(MultiStepLR, std::sort(o_.milestones.begin(), o_.milestones.end()))
double MultiStepLR::next(size_t, double lr) {
  auto n = std::count(o_.milestones.begin(), o_.milestones.end(), epoch_);
  return n ? lr * std::pow(o_.gamma, static_cast<double>(n)) : lr;
}
double MultiStepLR::closed(size_t g, double) {
  auto n =
      std::upper_bound(o_.milestones.begin(), o_.milestones.end(), epoch_) - o_.milestones.begin();
  return base(g) * std::pow(o_.gamma, static_cast<double>(n));
}

TD_MAKE(ConstantLR, want(o_.factor >= 0 && o_.factor <= 1, type_, "factor in 0..1", o_.factor))
double ConstantLR::next(size_t, double lr) {
  if (epoch_ == 0) return lr * o_.factor;
  return epoch_ == o_.total_iters ? lr * (1.0 / o_.factor) : lr;
}
double ConstantLR::closed(size_t g, double) {
  return base(g) * (o_.factor + static_cast<double>(epoch_ >= o_.total_iters) * (1 - o_.factor));
}

TD_MAKE(LinearLR, want(o_.start_factor > 0 && o_.start_factor <= 1, type_,
                       "start_factor above 0 and at most 1", o_.start_factor);
        want(o_.end_factor >= 0 && o_.end_factor <= 1, type_, "end_factor in 0..1", o_.end_factor);
        want(o_.total_iters > 0, type_, "total_iters > 0", double(o_.total_iters)))
double LinearLR::next(size_t, double lr) {
  if (epoch_ == 0) return lr * o_.start_factor;
  if (epoch_ > o_.total_iters) return lr;
  double rise = o_.end_factor - o_.start_factor, n = static_cast<double>(o_.total_iters);
  return lr * (1 + rise / (n * o_.start_factor + (epoch() - 1) * rise));
}
double LinearLR::closed(size_t g, double) {
  double done = std::min(epoch(), static_cast<double>(o_.total_iters));
  return base(g) * (o_.start_factor +
                    (o_.end_factor - o_.start_factor) * done / static_cast<double>(o_.total_iters));
}

TD_MAKE(ExponentialLR)
double ExponentialLR::next(size_t, double lr) { return epoch_ == 0 ? lr : lr * o_.gamma; }
double ExponentialLR::closed(size_t g, double) { return base(g) * std::pow(o_.gamma, epoch()); }

TD_MAKE(PolynomialLR, want(o_.total_iters > 0, type_, "total_iters > 0", double(o_.total_iters)))
double PolynomialLR::next(size_t, double lr) {
  if (epoch_ == 0 || epoch_ > o_.total_iters) return lr;
  double n = static_cast<double>(o_.total_iters);
  return lr * std::pow((1 - epoch() / n) / (1 - (epoch() - 1) / n), o_.power);
}
double PolynomialLR::closed(size_t g, double) {
  double n = static_cast<double>(o_.total_iters);
  return base(g) * std::pow(1 - std::min(n, epoch()) / n, o_.power);
}

TD_MAKE(CosineAnnealingLR, want(o_.T_max > 0, type_, "T_max > 0", double(o_.T_max)))
double CosineAnnealingLR::next(size_t g, double lr) {
  double n = static_cast<double>(o_.T_max);
  if (epoch_ == 0) return lr;
  if (step_count_ == 1 && epoch_ > 0) return closed(g, lr);
  if ((epoch_ - 1 - o_.T_max) % (2 * o_.T_max) == 0)
    return lr + (base(g) - o_.eta_min) * (1 - std::cos(kPi / n)) / 2;
  return (1 + std::cos(kPi * epoch() / n)) / (1 + std::cos(kPi * (epoch() - 1) / n)) *
             (lr - o_.eta_min) +
         o_.eta_min;
}
double CosineAnnealingLR::closed(size_t g, double) {
  return o_.eta_min +
         (base(g) - o_.eta_min) * (1 + std::cos(kPi * epoch() / static_cast<double>(o_.T_max))) / 2;
}

TD_MAKE(LambdaLR, TD_CHECK(o_.lr_lambda, Value, "LambdaLR wants a function lr_lambda"))
double LambdaLR::next(size_t g, double) { return base(g) * o_.lr_lambda(epoch_); }
double LambdaLR::closed(size_t g, double lr) { return next(g, lr); }

TD_MAKE(MultiplicativeLR,
        TD_CHECK(o_.lr_lambda, Value, "MultiplicativeLR wants a function lr_lambda"))
double MultiplicativeLR::next(size_t, double lr) {
  return epoch_ > 0 ? lr * o_.lr_lambda(epoch_) : lr;
}
double MultiplicativeLR::closed(size_t g, double lr) { return next(g, lr); }

TD_MAKE(NoamLR,
        want(o_.model_size > 0 && o_.warmup_steps > 0, type_, "model_size and warmup_steps > 0",
             double(std::min(o_.model_size, o_.warmup_steps))))
double NoamLR::next(size_t, double) {
  double s = epoch() + 1, warm = static_cast<double>(o_.warmup_steps);
  return o_.factor / std::sqrt(static_cast<double>(o_.model_size)) *
         std::min(1 / std::sqrt(s), s * std::pow(warm, -1.5));
}
double NoamLR::closed(size_t g, double lr) { return next(g, lr); }
#undef TD_MAKE

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(Optimizer& optimizer,
                                                         CosineAnnealingWarmRestartsOptions o)
    : LRScheduler(optimizer), o_(o), t_i_(static_cast<double>(o.T_0)) {
  type_ = "CosineAnnealingWarmRestarts";
  want(o.T_0 > 0, type_, "T_0 > 0", static_cast<double>(o.T_0));
  want(o.T_mult >= 1, type_, "T_mult >= 1", static_cast<double>(o.T_mult));
  start();
}

double CosineAnnealingWarmRestarts::next(size_t g, double) {
  return o_.eta_min + (base(g) - o_.eta_min) * (1 + std::cos(kPi * t_cur_ / t_i_)) / 2;
}

void CosineAnnealingWarmRestarts::step() {
  if (epoch_ < 0) return step(0.0);
  ++step_count_;
  ++epoch_;
  if (++t_cur_ >= t_i_) {
    t_cur_ -= t_i_;
    t_i_ *= static_cast<double>(o_.T_mult);
  }
  set(false);
}

void CosineAnnealingWarmRestarts::step(double epoch) {
  want(epoch >= 0, type_, "an epoch >= 0", epoch);
  double first = static_cast<double>(o_.T_0), mult = static_cast<double>(o_.T_mult);
  t_i_ = first;
  t_cur_ = epoch;
  if (epoch >= first && o_.T_mult == 1) t_cur_ = std::fmod(epoch, first);
  if (epoch >= first && o_.T_mult > 1) {
    double n = std::floor(std::log(epoch / first * (mult - 1) + 1) / std::log(mult));
    t_cur_ = epoch - first * (std::pow(mult, n) - 1) / (mult - 1);
    t_i_ = first * std::pow(mult, n);
  }
  ++step_count_;
  epoch_ = static_cast<int64_t>(std::floor(epoch));
  set(false);
}

// ---- cycles

CyclicLR::CyclicLR(Optimizer& optimizer, CyclicLROptions o)
    : LRScheduler(optimizer), o_(std::move(o)) {
  type_ = "CyclicLR";
  want(o_.step_size_up > 0, type_, "step_size_up > 0", static_cast<double>(o_.step_size_up));
  TD_CHECK(
      o_.scale_fn || o_.mode == "triangular" || o_.mode == "triangular2" || o_.mode == "exp_range",
      Value, "CyclicLR knows the modes triangular, triangular2 and exp_range, got \"{}\"", o_.mode);
  TD_CHECK(o_.scale_mode == "cycle" || o_.scale_mode == "iterations", Value,
           "CyclicLR knows the scale modes cycle and iterations, got \"{}\"", o_.scale_mode);
  if (o_.step_size_down < 0) o_.step_size_down = o_.step_size_up;
  low_ = spread(o_.base_lr, "base_lr");
  high_ = spread(o_.max_lr, "max_lr");
  if (!o_.scale_fn) {
    double gamma = o_.gamma;
    o_.scale_mode = o_.mode == "exp_range" ? "iterations" : "cycle";
    if (o_.mode == "triangular2")
      o_.scale_fn = [](double x) { return std::pow(2.0, 1 - x); };
    else if (o_.mode == "exp_range")
      o_.scale_fn = [gamma](double x) { return std::pow(gamma, x); };
    else
      o_.scale_fn = [](double) { return 1.0; };
  }
  if (o_.cycle_momentum) {
    momentum_of(optimizer, type_);
    low_momentum_ = spread(o_.base_momentum, "base_momentum");
    high_momentum_ = spread(o_.max_momentum, "max_momentum");
  }
  for (size_t g = 0; g < low_.size(); ++g) optimizer.set_lr(low_[g], g);
  start();
  base_lrs_ = low_;
}

double CyclicLR::next(size_t g, double) {
  double up = static_cast<double>(o_.step_size_up),
         total = up + static_cast<double>(o_.step_size_down), ratio = up / total;
  double cycle = std::floor(1 + epoch() / total), x = 1 + epoch() / total - cycle;
  double height = x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
  height *= o_.scale_fn(o_.scale_mode == "cycle" ? cycle : epoch());
  if (o_.cycle_momentum)
    optimizer_->set_option(momentum_of(*optimizer_, type_),
                           high_momentum_[g] - (high_momentum_[g] - low_momentum_[g]) * height, g);
  return low_[g] + (high_[g] - low_[g]) * height;
}

OneCycleLR::OneCycleLR(Optimizer& optimizer, OneCycleLROptions o)
    : LRScheduler(optimizer), o_(std::move(o)) {
  type_ = "OneCycleLR";
  if (o_.total_steps == 0) o_.total_steps = o_.epochs * o_.steps_per_epoch;
  TD_CHECK(o_.total_steps > 0, Value,
           "OneCycleLR wants total_steps, or epochs and steps_per_epoch, above 0");
  want(o_.pct_start >= 0 && o_.pct_start <= 1, type_, "pct_start in 0..1", o_.pct_start);
  TD_CHECK(o_.anneal_strategy == "cos" || o_.anneal_strategy == "linear", Value,
           "OneCycleLR knows anneal_strategy \"cos\" and \"linear\", got \"{}\"",
           o_.anneal_strategy);
  max_lr_ = spread(o_.max_lr, "max_lr");
  for (size_t g = 0; g < max_lr_.size(); ++g) {
    base_lrs_[g] = max_lr_[g] / o_.div_factor;
    optimizer.set_initial_lr(base_lrs_[g], g);
  }
  if (o_.cycle_momentum) {
    momentum_of(optimizer, type_);
    low_momentum_ = spread(o_.base_momentum, "base_momentum");
    high_momentum_ = spread(o_.max_momentum, "max_momentum");
  }
  start();
}

double OneCycleLR::next(size_t g, double) {
  TD_CHECK(epoch_ <= o_.total_steps, Value, "OneCycleLR: step {} of {}\nGive it more total_steps.",
           epoch_, o_.total_steps);
  struct Phase {
    double end, from, to;
    int from_momentum, to_momentum;  // 0 low, 1 high
  };
  double n = static_cast<double>(o_.total_steps), low = base(g), top = max_lr_[g],
         least = low / o_.final_div_factor;
  std::vector<Phase> phases = {{o_.pct_start * n - 1, low, top, 1, 0}};
  if (o_.three_phase) {
    phases.push_back({2 * o_.pct_start * n - 2, top, low, 0, 1});
    phases.push_back({n - 1, low, least, 1, 1});
  } else {
    phases.push_back({n - 1, top, least, 0, 1});
  }
  double begin = 0;
  size_t k = 0;
  while (k + 1 < phases.size() && epoch() > phases[k].end) begin = phases[k++].end;
  const Phase& p = phases[k];
  auto anneal = o_.anneal_strategy == "cos" ? cosine : linear;
  double part = (epoch() - begin) / (p.end - begin);
  if (o_.cycle_momentum) {
    double ends[] = {low_momentum_[g], high_momentum_[g]};
    optimizer_->set_option(momentum_of(*optimizer_, type_),
                           anneal(ends[p.from_momentum], ends[p.to_momentum], part), g);
  }
  return anneal(p.from, p.to, part);
}

SWALR::SWALR(Optimizer& optimizer, SWALROptions o) : LRScheduler(optimizer), o_(std::move(o)) {
  type_ = "SWALR";
  want(o_.anneal_epochs >= 0, type_, "anneal_epochs >= 0", static_cast<double>(o_.anneal_epochs));
  TD_CHECK(o_.anneal_strategy == "cos" || o_.anneal_strategy == "linear", Value,
           "SWALR knows anneal_strategy \"cos\" and \"linear\", got \"{}\"", o_.anneal_strategy);
  swa_lr_ = spread(o_.swa_lr, "swa_lr");
  start();
}

double SWALR::anneal(double t) const {
  return o_.anneal_strategy == "cos" ? (1 - std::cos(kPi * t)) / 2 : t;
}

double SWALR::next(size_t g, double lr) {
  double step = static_cast<double>(step_count_ - 1),
         n = static_cast<double>(std::max<int64_t>(1, o_.anneal_epochs));
  if (o_.anneal_epochs == 0) step = std::max(1.0, step);
  double before = anneal(std::clamp((step - 1) / n, 0.0, 1.0));
  double now = anneal(std::clamp(step / n, 0.0, 1.0));
  double first = before == 1 ? swa_lr_[g] : (lr - before * swa_lr_[g]) / (1 - before);
  return swa_lr_[g] * now + first * (1 - now);
}

// ---- several schedules

SequentialLR::SequentialLR(Optimizer& optimizer, std::vector<LRScheduler*> schedulers,
                           std::vector<int64_t> milestones)
    : LRScheduler(optimizer),
      schedulers_(std::move(schedulers)),
      milestones_(std::move(milestones)) {
  type_ = "SequentialLR";
  check_list(schedulers_, &optimizer, type_);
  TD_CHECK(milestones_.size() + 1 == schedulers_.size(), Value,
           "SequentialLR wants one milestone less than schedules, got {} and {}",
           milestones_.size(), schedulers_.size());
  TD_CHECK(std::is_sorted(milestones_.begin(), milestones_.end()), Value,
           "SequentialLR wants milestones in ascending order");
  start();
}

void SequentialLR::start() {
  epoch_ = 0;
  for (size_t g = 0; g < optimizer_->num_groups(); ++g)
    optimizer_->set_lr(optimizer_->initial_lr(g), g);
  for (LRScheduler* s : schedulers_) s->undo();
  schedulers_[active()]->start();
}

void SequentialLR::undo() {
  for (LRScheduler* s : schedulers_) s->undo();
}

size_t SequentialLR::active() const {
  return static_cast<size_t>(std::upper_bound(milestones_.begin(), milestones_.end(), epoch_) -
                             milestones_.begin());
}

void SequentialLR::step() {
  ++epoch_;
  size_t k = active();
  if (k > 0 && milestones_[k - 1] == epoch_)
    schedulers_[k]->restart();
  else
    schedulers_[k]->step();
}

StateDict SequentialLR::state_dict() const { return states_of(schedulers_, epoch_); }

void SequentialLR::load_state_dict(const StateDict& state) {
  epoch_ = load_states(schedulers_, state, type_);
}

ChainedScheduler::ChainedScheduler(std::vector<LRScheduler*> schedulers)
    : LRScheduler([&]() -> Optimizer& {
        TD_CHECK(!schedulers.empty() && schedulers[0], Value,
                 "ChainedScheduler wants at least one schedule");
        return schedulers[0]->optimizer();
      }()),
      schedulers_(std::move(schedulers)) {
  type_ = "ChainedScheduler";
  check_list(schedulers_, optimizer_, type_);
  epoch_ = 0;
}

void ChainedScheduler::step() {
  ++epoch_;
  for (LRScheduler* s : schedulers_) s->step();
}

void ChainedScheduler::undo() {
  --epoch_;
  for (LRScheduler* s : schedulers_) s->undo();
}

StateDict ChainedScheduler::state_dict() const { return states_of(schedulers_, epoch_); }

void ChainedScheduler::load_state_dict(const StateDict& state) {
  epoch_ = load_states(schedulers_, state, type_);
}

detail::WarmupPart::WarmupPart(Optimizer& optimizer, const WarmupLROptions& o)
    : linear(optimizer, {.start_factor = o.start_factor, .total_iters = o.warmup_steps}) {}

// ---- ReduceLROnPlateau

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions o)
    : optimizer_(&optimizer), o_(std::move(o)) {
  const char* type = "ReduceLROnPlateau";
  want(o_.factor < 1, type, "factor < 1", o_.factor);
  TD_CHECK(o_.mode == "min" || o_.mode == "max", Value,
           "{} knows the modes \"min\" and \"max\", got \"{}\"", type, o_.mode);
  TD_CHECK(o_.threshold_mode == "rel" || o_.threshold_mode == "abs", Value,
           "{} knows threshold_mode \"rel\" and \"abs\", got \"{}\"", type, o_.threshold_mode);
  TD_CHECK(o_.min_lr.values.size() == 1 || o_.min_lr.values.size() == optimizer.num_groups(), Value,
           "{} wants min_lr of one number or {}, got {}", type, optimizer.num_groups(),
           o_.min_lr.values.size());
  best_ = std::numeric_limits<double>::infinity();
  if (o_.mode == "max") best_ = -best_;
}

bool ReduceLROnPlateau::better(double v) const {
  if (o_.mode == "min")
    return o_.threshold_mode == "rel" ? v < best_ * (1 - o_.threshold) : v < best_ - o_.threshold;
  return o_.threshold_mode == "rel" ? v > best_ * (o_.threshold + 1) : v > best_ + o_.threshold;
}

void ReduceLROnPlateau::step(double metric) {
  ++last_epoch_;
  if (better(metric)) {
    best_ = metric;
    bad_ = 0;
  } else {
    ++bad_;
  }
  if (cooldown_ > 0) {
    --cooldown_;
    bad_ = 0;
  }
  if (bad_ <= static_cast<double>(o_.patience)) return;
  for (size_t g = 0; g < optimizer_->num_groups(); ++g) {
    const std::vector<double>& least = o_.min_lr.values;
    double old = optimizer_->lr(g);
    double lr = std::max(old * o_.factor, least[g < least.size() ? g : 0]);
    if (old - lr > o_.eps) optimizer_->set_lr(lr, g);
  }
  cooldown_ = static_cast<double>(o_.cooldown);
  bad_ = 0;
}

std::vector<double> ReduceLROnPlateau::get_last_lr() const { return rates(*optimizer_); }

StateDict ReduceLROnPlateau::state_dict() const {
  StateDict d;
  put(d, "best", best_);
  put(d, "num_bad_epochs", bad_);
  put(d, "cooldown_counter", cooldown_);
  put(d, "last_epoch", last_epoch_);
  return d;
}

void ReduceLROnPlateau::load_state_dict(const StateDict& state) {
  const char* type = "ReduceLROnPlateau";
  double best = get(state, type, "best", 1)[0], bad = get(state, type, "num_bad_epochs", 1)[0],
         cooldown = get(state, type, "cooldown_counter", 1)[0],
         last = get(state, type, "last_epoch", 1)[0];
  check_names(state, type, {"best", "num_bad_epochs", "cooldown_counter", "last_epoch"});
  best_ = best;
  bad_ = bad;
  cooldown_ = cooldown;
  last_epoch_ = last;
}

}  // namespace tandem::optim
