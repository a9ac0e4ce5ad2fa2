// SPDX-License-Identifier: Apache-2.0
// Optimizers whose rate is scaled for each parameter by the ratio of two norms.
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct LAMBOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-6, weight_decay = 0;
  bool maximize = false;
  template <class V>
  void fields(V& v) {
    v("lr", lr, {.doc = "learning rate", .at_least = 0, .resumable = true});
    v("betas", betas,
      {.doc = "shares of the old moments that are kept",
       .at_least = 0,
       .below = 1,
       .elements = "beta1 beta2",
       .resumable = true});
    v("eps", eps,
      {.doc = "added to the denominator", .at_least = 0, .keras = 1e-7, .resumable = true});
    v("weight_decay", weight_decay,
      {.doc = "decay of the weights", .at_least = 0, .resumable = true});
    v("maximize", maximize, {.doc = "ascend instead of descend"});
  }
};

struct LARSOptions {
  double lr = 1e-3, momentum = 0.9, dampening = 0, weight_decay = 0, trust_coefficient = 1e-3,
         eps = 1e-8;
  bool nesterov = false, maximize = false;
  template <class V>
  void fields(V& v) {
    v("lr", lr, {.doc = "learning rate", .at_least = 0, .resumable = true});
    v("momentum", momentum, {.doc = "share of the old step that is kept", .at_least = 0});
    v("dampening", dampening, {.doc = "share of the gradient that momentum leaves out"});
    v("weight_decay", weight_decay,
      {.doc = "decay of the weights", .at_least = 0, .resumable = true});
    v("trust_coefficient", trust_coefficient,
      {.doc = "factor of |p| / |g|", .at_least = 0, .resumable = true});
    v("eps", eps, {.doc = "added to the denominator", .at_least = 0, .resumable = true});
    v("nesterov", nesterov, {.doc = "look one step of momentum ahead"});
    v("maximize", maximize, {.doc = "ascend instead of descend"});
  }
};

class TD_API LAMB : public Optimizer {
 public:
  static constexpr OptimizerAbout kAbout = {
      "lamb", "Adam scaled by |p| / |update| per parameter (You et al. 2020).",
      "{type: lamb, lr: 5e-3}"};
  explicit LAMB(ParamList params, LAMBOptions options = {});
  bool elementwise() const override { return false; }

 protected:
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;
};

class TD_API LARS : public Optimizer {
 public:
  static constexpr OptimizerAbout kAbout = {
      "lars",
      "SGD scaled by |p| / |g| per parameter (You et al. 2017); parameters with |p| = 0 or |g| = 0 "
      "take the plain step.",
      "{type: lars, lr: 5}"};
  explicit LARS(ParamList params, LARSOptions options = {});
  bool elementwise() const override { return false; }

 protected:
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;
};

}  // namespace tandem::optim
