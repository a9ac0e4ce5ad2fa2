// SPDX-License-Identifier: Apache-2.0
// Schedules made of schedules (one after the other, at once, after a warm-up), and the one that
// follows a measured value. Rules as in schedules.h.
#pragma once

#include "tandem/optim/schedules.h"

namespace tandem::optim {

/// One schedule after the other; number i + 1 starts at milestones[i]. They must outlive it.
class TD_API SequentialLR : public LRScheduler {
 public:
  SequentialLR(Optimizer& optimizer, std::vector<LRScheduler*> schedulers,
               std::vector<int64_t> milestones);
  void step() override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 protected:
  double next(size_t, double lr) override { return lr; }
  void start() override;
  void undo() override;

 private:
  size_t active() const;
  std::vector<LRScheduler*> schedulers_;
  std::vector<int64_t> milestones_;
};

/// All of them at every step. They must outlive it.
class TD_API ChainedScheduler : public LRScheduler {
 public:
  explicit ChainedScheduler(std::vector<LRScheduler*> schedulers);
  void step() override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 protected:
  double next(size_t, double lr) override { return lr; }
  void undo() override;

 private:
  std::vector<LRScheduler*> schedulers_;
};

struct WarmupLROptions {
  int64_t warmup_steps = 1000;
  double start_factor = 1e-3;
};
namespace detail {
struct TD_API WarmupPart {
  WarmupPart(Optimizer& optimizer, const WarmupLROptions& o);
  LinearLR linear;
};
}  // namespace detail
/// From start_factor times the base rate to all of it over warmup_steps, then `after` (made on the
/// same optimizer before; it must outlive this).
class TD_API WarmupLR : private detail::WarmupPart, public SequentialLR {
 public:
  WarmupLR(Optimizer& optimizer, LRScheduler& after, WarmupLROptions options = {})
      : WarmupPart(optimizer, options),
        SequentialLR(optimizer, {&linear, &after}, {options.warmup_steps}) {}
};

struct ReduceLROnPlateauOptions {
  std::string mode = "min";  ///< or "max": what is better
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  std::string threshold_mode = "rel";  ///< or "abs"
  int64_t cooldown = 0;
  PerGroup min_lr = 0.0;
  double eps = 1e-8;  ///< smaller changes are not made
};
/// Times factor when the metric has not got better for `patience` steps.
class TD_API ReduceLROnPlateau {
 public:
  explicit ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions options = {});
  void step(double metric);
  std::vector<double> get_last_lr() const;
  int64_t num_bad_epochs() const { return static_cast<int64_t>(bad_); }
  StateDict state_dict() const;
  void load_state_dict(const StateDict& state);

 private:
  bool better(double metric) const;
  Optimizer* optimizer_;
  ReduceLROnPlateauOptions o_;
  double best_, bad_ = 0, cooldown_ = 0, last_epoch_ = 0;
};

}  // namespace tandem::optim
