// SPDX-License-Identifier: Apache-2.0
// The base of learning-rate schedules, and the row that makes one known by name. A schedule sets
// the rate when it is made and at each step(), which belongs after the optimizer's step. The
// optimizer must outlive it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/base/registry.h"
#include "tandem/optim/optimizer.h"

namespace tandem::optim {

/// A number for all groups, or one for each.
struct PerGroup {
  PerGroup(double v) : values{v} {}
  PerGroup(std::vector<double> v) : values(std::move(v)) {}
  /// As a field: one number where it is one.
  template <class V>
  void field(V& v, const char* name, const Field& f) {
    if (values.size() == 1)
      v(name, values[0], f);
    else
      v(name, values, f);
  }
  std::vector<double> values;
};

/// Base of the schedules that follow the number of steps.
class TD_API LRScheduler {
 public:
  virtual ~LRScheduler() = default;
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;

  /// The next rate, for all groups.
  virtual void step();
  /// The rates that were set last.
  std::vector<double> get_last_lr() const;
  int64_t last_epoch() const { return epoch_; }
  Optimizer& optimizer() const { return *optimizer_; }
  /// "last_epoch", "base_lrs" and what the schedule keeps besides. Functions are not saved.
  virtual StateDict state_dict() const;
  /// Throws Value for a missing or unknown name; changes nothing then. The rates themselves are
  /// part of the optimizer's state.
  virtual void load_state_dict(const StateDict& state);

 protected:
  friend class SequentialLR;
  friend class ChainedScheduler;
  explicit LRScheduler(Optimizer& optimizer);
  /// The first step; at the end of the derived constructor.
  virtual void start();
  /// The rate of a group at step epoch(), from the one before.
  virtual double next(size_t group, double lr) = 0;
  /// The same from the step alone.
  virtual double closed(size_t group, double lr) { return next(group, lr); }
  /// To step 0 again, and one step back.
  virtual void restart();
  virtual void undo() { --epoch_; }
  double base(size_t group) const { return base_lrs_[group]; }
  double epoch() const { return static_cast<double>(epoch_); }
  /// More numbers of the state.
  virtual std::vector<std::pair<const char*, double*>> numbers() { return {}; }
  /// Give every group its value.
  std::vector<double> spread(const PerGroup& v, const char* name) const;
  void set(bool closed_form);

  Optimizer* optimizer_;
  std::vector<double> base_lrs_;
  int64_t epoch_ = -1, step_count_ = 0;
  const char* type_ = "schedule";
};

/// What a schedule that is chosen by name is made for.
struct ScheduleRun {
  Optimizer& optimizer;
  int64_t steps = 1;   ///< updates of the whole run, the warm-up's too
  int64_t warmup = 0;  ///< updates of the warm-up
  int64_t unit = 1;    ///< updates in what options call a step: 1, or those of an epoch
  /// Updates after the warm-up; at least 1.
  int64_t after() const { return steps - warmup > 1 ? steps - warmup : 1; }
};
/// What becomes of `warmup_steps`.
enum class ScheduleWarmup : uint8_t {
  before,   ///< a warm-up goes before the schedule
  own,      ///< the schedule has one, of a number of steps
  refused,  ///< it has one of another kind
};
/// A row of schedules(). Fields whose unit is "steps" are multiplied by the run's unit.
struct ScheduleRow : Component {
  std::unique_ptr<LRScheduler> (*make)(const ScheduleRun& run, const void* options);
  ScheduleWarmup warmup = ScheduleWarmup::before;
  /// Sets defaults that depend on the run; nullptr: there are none.
  void (*prepare)(const ScheduleRun& run, void* options) = nullptr;
};
/// A row whose options have type P: `make(run, options)` gives the schedule.
template <class P, auto make>
constexpr ScheduleRow schedule_row(const char* name, const char* doc, const char* example,
                                   ScheduleWarmup warmup = ScheduleWarmup::before) {
  return {{name, doc, example, &kFieldsType<P>},
          [](const ScheduleRun& run, const void* options) -> std::unique_ptr<LRScheduler> {
            return make(run, *static_cast<const P*>(options));
          },
          warmup};
}

}  // namespace tandem::optim
