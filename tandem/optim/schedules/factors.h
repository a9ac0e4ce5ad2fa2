// SPDX-License-Identifier: Apache-2.0
// Schedules that are a factor of the step, with PyTorch's names, options and recursive forms (so
// that they can be chained), and those that recipes add: constant, cosine, linear.
#pragma once

#include "tandem/optim/scheduler.h"

namespace tandem::optim {

struct StepLROptions {
  int64_t step_size = 1;
  double gamma = 0.1;
  template <class V>
  void fields(V& v) {
    v("step_size", step_size,
      {.doc = "steps between changes", .unit = "steps", .at_least = 1, .required = true});
    v("gamma", gamma, {.doc = "factor of each change"});
  }
};
struct MultiStepLROptions {
  std::vector<int64_t> milestones = {};
  double gamma = 0.1;
  template <class V>
  void fields(V& v) {
    v("milestones", milestones, {.doc = "when the rate changes", .unit = "steps"});
    v("gamma", gamma, {.doc = "factor of each change"});
  }
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
  template <class V>
  void fields(V& v) {
    v("gamma", gamma, {.doc = "factor of each step"});
  }
};
struct PolynomialLROptions {
  int64_t total_iters = 5;
  double power = 1.0;
  template <class V>
  void fields(V& v) {
    v("power", power, {.doc = "of the share of steps that is left"});
  }
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
  template <class V>
  void fields(V& v) {
    v("model_size", model_size, {.doc = "width of the model", .at_least = 1});
    v("factor", factor, {.doc = "factor of the rate"});
  }
};
/// Of the recipe's cosine and linear.
struct ToMinimumOptions {
  double min_lr = 0;
  template <class V>
  void fields(V& v) {
    v("min_lr", min_lr, {.doc = "the rate at the end"});
  }
};
struct NoScheduleOptions {
  template <class V>
  void fields(V&) {}
};

/// Times gamma every step_size steps.
class TD_API StepLR : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, StepLROptions options);

 protected:
  double next(size_t group, double lr) override;
  double closed(size_t group, double lr) override;

 private:
  StepLROptions o_;
};

/// Times gamma at each milestone.
class TD_API MultiStepLR : public LRScheduler {
 public:
  MultiStepLR(Optimizer& optimizer, MultiStepLROptions options);

 protected:
  double next(size_t group, double lr) override;
  double closed(size_t group, double lr) override;

 private:
  MultiStepLROptions o_;
};

/// Times factor for total_iters steps.
class TD_API ConstantLR : public LRScheduler {
 public:
  ConstantLR(Optimizer& optimizer, ConstantLROptions options);

 protected:
  double next(size_t group, double lr) override;
  double closed(size_t group, double lr) override;

 private:
  ConstantLROptions o_;
};

/// A factor that goes from start_factor to end_factor over total_iters steps.
class TD_API LinearLR : public LRScheduler {
 public:
  LinearLR(Optimizer& optimizer, LinearLROptions options);

 protected:
  double next(size_t group, double lr) override;
  double closed(size_t group, double lr) override;

 private:
  LinearLROptions o_;
};

/// Times gamma every step.
class TD_API ExponentialLR : public LRScheduler {
 public:
  ExponentialLR(Optimizer& optimizer, ExponentialLROptions options);

 protected:
  double next(size_t group, double lr) override;
  double closed(size_t group, double lr) override;

 private:
  ExponentialLROptions o_;
};

/// (1 - step / total_iters)^power.
class TD_API PolynomialLR : public LRScheduler {
 public:
  PolynomialLR(Optimizer& optimizer, PolynomialLROptions options);

 protected:
  double next(size_t group, double lr) override;
  double closed(size_t group, double lr) override;

 private:
  PolynomialLROptions o_;
};

/// The base rate times lr_lambda(step).
class TD_API LambdaLR : public LRScheduler {
 public:
  LambdaLR(Optimizer& optimizer, LambdaLROptions options);

 protected:
  double next(size_t group, double lr) override;
  double closed(size_t group, double lr) override;

 private:
  LambdaLROptions o_;
};

/// The last rate times lr_lambda(step).
class TD_API MultiplicativeLR : public LRScheduler {
 public:
  MultiplicativeLR(Optimizer& optimizer, MultiplicativeLROptions options);

 protected:
  double next(size_t group, double lr) override;
  double closed(size_t group, double lr) override;

 private:
  MultiplicativeLROptions o_;
};

/// factor model_size^-0.5 min(s^-0.5, s warmup^-1.5), s from 1 (Vaswani 2017).
class TD_API NoamLR : public LRScheduler {
 public:
  NoamLR(Optimizer& optimizer, NoamLROptions options);

 protected:
  double next(size_t group, double lr) override;
  double closed(size_t group, double lr) override;

 private:
  NoamLROptions o_;
};

namespace schedule_rows {
extern TD_API const ScheduleRow constant, cosine, linear, step, multistep, exponential, polynomial,
    noam;
}  // namespace schedule_rows

}  // namespace tandem::optim
