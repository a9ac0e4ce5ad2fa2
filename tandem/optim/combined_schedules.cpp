// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/combined_schedules.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tandem/base/error.h"
#include "tandem/optim/schedule_state_internal.h"

namespace tandem::optim {

using namespace detail;

namespace {

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
  TD_CHECK(!list.empty(), Value, "{} expects at least one schedule", type);
  for (const LRScheduler* s : list)
    TD_CHECK(s && &s->optimizer() == o, Value, "{}: all schedules must belong to one optimizer",
             type);
}

}  // namespace

SequentialLR::SequentialLR(Optimizer& optimizer, std::vector<LRScheduler*> schedulers,
                           std::vector<int64_t> milestones)
    : LRScheduler(optimizer),
      schedulers_(std::move(schedulers)),
      milestones_(std::move(milestones)) {
  type_ = "SequentialLR";
  check_list(schedulers_, &optimizer, type_);
  TD_CHECK(milestones_.size() + 1 == schedulers_.size(), Value,
           "SequentialLR expects one milestone less than schedules, got {} and {}",
           milestones_.size(), schedulers_.size());
  TD_CHECK(std::is_sorted(milestones_.begin(), milestones_.end()), Value,
           "SequentialLR expects milestones in ascending order");
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
                 "ChainedScheduler expects at least one schedule");
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
           "{} expects min_lr of one number or {}, got {}", type, optimizer.num_groups(),
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
