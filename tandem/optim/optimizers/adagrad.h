// SPDX-License-Identifier: Apache-2.0
// Optimizers that divide by an average or a sum of squared gradients.
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct AdagradOptions {
  double lr = 1e-2, lr_decay = 0, weight_decay = 0, initial_accumulator_value = 0, eps = 1e-10;
  bool maximize = false;
  template <class V>
  void fields(V& v) {
    v("lr", lr, {.doc = "learning rate", .at_least = 0, .keras = 1e-3, .resumable = true});
    v("lr_decay", lr_decay,
      {.doc = "lr / (1 + lr_decay (step - 1))", .at_least = 0, .resumable = true});
    v("weight_decay", weight_decay,
      {.doc = "decay of the weights", .at_least = 0, .resumable = true});
    v("initial_accumulator_value", initial_accumulator_value,
      {.doc = "where the sum of squares starts", .at_least = 0, .keras = 0.1});
    v("eps", eps,
      {.doc = "added to the denominator", .at_least = 0, .keras = 1e-7, .resumable = true});
    v("maximize", maximize, {.doc = "ascend instead of descend"});
  }
};

struct AdadeltaOptions {
  double lr = 1.0, rho = 0.9, eps = 1e-6, weight_decay = 0;
  bool maximize = false;
  template <class V>
  void fields(V& v) {
    v("lr", lr, {.doc = "learning rate", .at_least = 0, .keras = 1e-3, .resumable = true});
    v("rho", rho,
      {.doc = "share of the old averages that is kept",
       .at_least = 0,
       .at_most = 1,
       .keras = 0.95,
       .resumable = true});
    v("eps", eps,
      {.doc = "added to the denominator", .at_least = 0, .keras = 1e-7, .resumable = true});
    v("weight_decay", weight_decay,
      {.doc = "decay of the weights", .at_least = 0, .resumable = true});
    v("maximize", maximize, {.doc = "ascend instead of descend"});
  }
};

struct RMSpropOptions {
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false, maximize = false;
  template <class V>
  void fields(V& v) {
    v("lr", lr, {.doc = "learning rate", .at_least = 0, .keras = 1e-3, .resumable = true});
    v("alpha", alpha,
      {.doc = "share of the old mean square that is kept",
       .at_least = 0,
       .keras = 0.9,
       .resumable = true});
    v("eps", eps,
      {.doc = "added to the denominator", .at_least = 0, .keras = 1e-7, .resumable = true});
    v("weight_decay", weight_decay,
      {.doc = "decay of the weights", .at_least = 0, .resumable = true});
    v("momentum", momentum, {.doc = "share of the old step that is kept", .at_least = 0});
    v("centered", centered, {.doc = "divide by the variance instead of the mean square"});
    v("maximize", maximize, {.doc = "ascend instead of descend"});
  }
};

class TD_API Adagrad : public Optimizer {
 public:
  static constexpr OptimizerAbout kAbout = {"adagrad", "Duchi et al. 2011.",
                                            "{type: adagrad, lr: 5e-3}"};
  explicit Adagrad(ParamList params, AdagradOptions options = {});

 protected:
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;
};

class TD_API Adadelta : public Optimizer {
 public:
  static constexpr OptimizerAbout kAbout = {"adadelta", "Zeiler 2012.", "{type: adadelta, lr: 1}"};
  explicit Adadelta(ParamList params, AdadeltaOptions options = {});

 protected:
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;
};

class TD_API RMSprop : public Optimizer {
 public:
  static constexpr OptimizerAbout kAbout = {
      "rmsprop", "Divides by a running root mean square of the gradient (Hinton, lecture 6e).",
      "{type: rmsprop, lr: 5e-3}"};
  explicit RMSprop(ParamList params, RMSpropOptions options = {});

 protected:
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;
};

}  // namespace tandem::optim
