// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules with PyTorch's names, options and recursive forms (so that they can be
// chained). A schedule sets the rate when it is made and at each step(), which belongs after the
// optimizer's step. The optimizer must outlive it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

/// A number for all groups, or one for each.
struct PerGroup {
  PerGroup(double v) : values{v} {}
  PerGroup(std::vector<double> v) : values(std::move(v)) {}
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

struct StepLROptions {
  int64_t step_size = 1;
  double gamma = 0.1;
};
struct MultiStepLROptions {
  std::vector<int64_t> milestones = {};
  double gamma = 0.1;
};
struct ConstantLROptions {
  double factor = 1.0 / 3;
  int64_t total_iters = 5;
};
struct LinearLROptions {
  double start_factor = 1.0 / 3, end_factor = 1.0;
  int64_t total_iters = 5;
};
struct ExponentialLROptions {
  double gamma = 0.9;
};
struct PolynomialLROptions {
  int64_t total_iters = 5;
  double power = 1.0;
};
struct CosineAnnealingLROptions {
  int64_t T_max = 1;
  double eta_min = 0;
};
struct CosineAnnealingWarmRestartsOptions {
  int64_t T_0 = 1, T_mult = 1;
  double eta_min = 0;
};
struct LambdaLROptions {
  std::function<double(int64_t)> lr_lambda;  ///< of the step, for all groups
};
struct MultiplicativeLROptions {
  std::function<double(int64_t)> lr_lambda;
};
struct NoamLROptions {
  int64_t model_size = 512, warmup_steps = 4000;
  double factor = 1;
};
struct CyclicLROptions {
  PerGroup base_lr = 1e-3, max_lr = 1e-2;
  int64_t step_size_up = 2000;
  int64_t step_size_down = -1;                  ///< -1: as up
  std::string mode = "triangular";              ///< or "triangular2", "exp_range"
  double gamma = 1;                             ///< of "exp_range": gamma^steps
  std::function<double(double)> scale_fn = {};  ///< instead of mode
  std::string scale_mode = "cycle";             ///< what scale_fn is given: "cycle" or "iterations"
  bool cycle_momentum = true;
  PerGroup base_momentum = 0.8, max_momentum = 0.9;
};
struct OneCycleLROptions {
  PerGroup max_lr = 1e-2;
  int64_t total_steps = 0;  ///< or both of the next
  int64_t epochs = 0, steps_per_epoch = 0;
  double pct_start = 0.3;
  std::string anneal_strategy = "cos";  ///< or "linear"
  bool cycle_momentum = true;
  PerGroup base_momentum = 0.85, max_momentum = 0.95;
  double div_factor = 25, final_div_factor = 1e4;
  bool three_phase = false;
};
struct SWALROptions {
  PerGroup swa_lr = 0.05;
  int64_t anneal_epochs = 10;
  std::string anneal_strategy = "cos";  ///< or "linear"
};

/// X(class, what it does)
#define TD_FOR_EACH_SCHEDULE(X)                                                             \
  X(StepLR, "Times gamma every step_size steps.")                                           \
  X(MultiStepLR, "Times gamma at each milestone.")                                          \
  X(ConstantLR, "Times factor for total_iters steps.")                                      \
  X(LinearLR, "A factor that goes from start_factor to end_factor over total_iters steps.") \
  X(ExponentialLR, "Times gamma every step.")                                               \
  X(PolynomialLR, "(1 - step / total_iters)^power.")                                        \
  X(CosineAnnealingLR, "Half a cosine from the base rate to eta_min over T_max steps.")     \
  X(LambdaLR, "The base rate times lr_lambda(step).")                                       \
  X(MultiplicativeLR, "The last rate times lr_lambda(step).")                               \
  X(NoamLR, "factor model_size^-0.5 min(s^-0.5, s warmup^-1.5), s from 1 (Vaswani 2017).")

#define X(name, text)                                  \
  /** text */                                          \
  class TD_API name : public LRScheduler {             \
   public:                                             \
    name(Optimizer& optimizer, name##Options options); \
                                                       \
   protected:                                          \
    double next(size_t group, double lr) override;     \
    double closed(size_t group, double lr) override;   \
                                                       \
   private:                                            \
    name##Options o_;                                  \
  };
TD_FOR_EACH_SCHEDULE(X)
#undef X

/// Cosines that start again after T_0, T_0 T_mult, ... steps (Loshchilov and Hutter 2017).
class TD_API CosineAnnealingWarmRestarts : public LRScheduler {
 public:
  CosineAnnealingWarmRestarts(Optimizer& optimizer, CosineAnnealingWarmRestartsOptions options);
  void step() override;
  /// At a fraction of an epoch, e.g. epoch + batch / batches.
  void step(double epoch);

 protected:
  double next(size_t group, double lr) override;
  std::vector<std::pair<const char*, double*>> numbers() override {
    return {{"T_cur", &t_cur_}, {"T_i", &t_i_}};
  }

 private:
  CosineAnnealingWarmRestartsOptions o_;
  double t_cur_ = 0, t_i_;
};

/// Between base_lr and max_lr in triangles (Smith 2017), momentum the other way round.
class TD_API CyclicLR : public LRScheduler {
 public:
  CyclicLR(Optimizer& optimizer, CyclicLROptions options);

 protected:
  double next(size_t group, double lr) override;

 private:
  CyclicLROptions o_;
  std::vector<double> low_, high_, low_momentum_, high_momentum_;
};

/// Up to max_lr and down to nearly 0 once (Smith and Topin 2018), momentum the other way round.
class TD_API OneCycleLR : public LRScheduler {
 public:
  OneCycleLR(Optimizer& optimizer, OneCycleLROptions options);

 protected:
  double next(size_t group, double lr) override;

 private:
  OneCycleLROptions o_;
  std::vector<double> max_lr_, low_momentum_, high_momentum_;
};

/// From the present rate to swa_lr over anneal_epochs, then constant (Izmailov et al. 2018).
class TD_API SWALR : public LRScheduler {
 public:
  SWALR(Optimizer& optimizer, SWALROptions options);

 protected:
  double next(size_t group, double lr) override;

 private:
  double anneal(double t) const;
  SWALROptions o_;
  std::vector<double> swa_lr_;
};

}  // namespace tandem::optim
