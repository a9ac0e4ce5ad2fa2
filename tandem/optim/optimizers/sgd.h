// SPDX-License-Identifier: Apache-2.0
// Optimizers of the gradient itself: SGD with and without momentum, its average, and Rprop, which
// reads only signs.
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct SGDOptions {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false;
  template <class V>
  void fields(V& v) {
    v("lr", lr, {.doc = "learning rate", .at_least = 0, .keras = 1e-2, .resumable = true});
    v("momentum", momentum, {.doc = "share of the old step that is kept", .at_least = 0});
    v("dampening", dampening, {.doc = "share of the gradient that momentum leaves out"});
    v("weight_decay", weight_decay,
      {.doc = "decay of the weights", .at_least = 0, .resumable = true});
    v("nesterov", nesterov, {.doc = "look one step of momentum ahead"});
    v("maximize", maximize, {.doc = "ascend instead of descend"});
  }
};

struct ASGDOptions {
  double lr = 1e-2, lambd = 1e-4, alpha = 0.75, t0 = 1e6, weight_decay = 0;
  bool maximize = false;
  template <class V>
  void fields(V& v) {
    v("lr", lr, {.doc = "learning rate", .at_least = 0, .resumable = true});
    v("lambd", lambd, {.doc = "decay term", .resumable = true});
    v("alpha", alpha, {.doc = "power of the fall of the rate", .resumable = true});
    v("t0", t0, {.doc = "step from which on values are averaged", .unit = "steps"});
    v("weight_decay", weight_decay,
      {.doc = "decay of the weights", .at_least = 0, .resumable = true});
    v("maximize", maximize, {.doc = "ascend instead of descend"});
  }
};

struct RpropOptions {
  double lr = 1e-2;
  std::array<double, 2> etas = {0.5, 1.2}, step_sizes = {1e-6, 50};
  bool maximize = false;
  template <class V>
  void fields(V& v) {
    v("lr", lr, {.doc = "the first step size", .at_least = 0});
    v("etas", etas,
      {.doc = "factors of the step size after a change of sign and without",
       .elements = "eta_minus eta_plus"});
    v("step_sizes", step_sizes,
      {.doc = "smallest and largest step size", .elements = "step_size_min step_size_max"});
    v("maximize", maximize, {.doc = "ascend instead of descend"});
  }
};

class TD_API SGD : public Optimizer {
 public:
  static constexpr OptimizerAbout kAbout = {
      "sgd", "p -= lr (g + weight_decay p), or with momentum its buffer (Sutskever et al. 2013).",
      "{type: sgd, lr: 0.1, momentum: 0.9}"};
  explicit SGD(ParamList params, SGDOptions options = {});

 protected:
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;
};

class TD_API ASGD : public Optimizer {
 public:
  static constexpr OptimizerAbout kAbout = {
      "asgd", "Averaged SGD (Polyak and Juditsky 1992); the average is the state 'ax'.",
      "{type: asgd, lr: 0.1}"};
  explicit ASGD(ParamList params, ASGDOptions options = {});

 protected:
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;
};

class TD_API Rprop : public Optimizer {
 public:
  static constexpr OptimizerAbout kAbout = {
      "rprop", "Signs of the gradient only (Riedmiller and Braun 1993); for full batches.",
      "{type: rprop, lr: 5e-3}"};
  explicit Rprop(ParamList params, RpropOptions options = {});

 protected:
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;
};

}  // namespace tandem::optim
