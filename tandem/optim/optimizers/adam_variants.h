// SPDX-License-Identifier: Apache-2.0
// Descendants of Adam.
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct AdamaxOptions {
  double lr = 2e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0;
  bool maximize = false;
  template <class V>
  void fields(V& v) {
    v("lr", lr, {.doc = "learning rate", .at_least = 0, .keras = 1e-3, .resumable = true});
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

struct NAdamOptions {
  double lr = 2e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0, momentum_decay = 4e-3;
  bool decoupled_weight_decay = false, maximize = false;
  template <class V>
  void fields(V& v) {
    v("lr", lr, {.doc = "learning rate", .at_least = 0, .keras = 1e-3, .resumable = true});
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
    v("momentum_decay", momentum_decay,
      {.doc = "how fast momentum rises to beta1", .at_least = 0, .resumable = true});
    v("decoupled_weight_decay", decoupled_weight_decay, {.doc = "decay as AdamW does"});
    v("maximize", maximize, {.doc = "ascend instead of descend"});
  }
};

struct RAdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0;
  bool decoupled_weight_decay = false, maximize = false;
  template <class V>
  void fields(V& v) {
    v("lr", lr, {.doc = "learning rate", .at_least = 0, .resumable = true});
    v("betas", betas,
      {.doc = "shares of the old moments that are kept",
       .at_least = 0,
       .below = 1,
       .elements = "beta1 beta2",
       .resumable = true});
    v("eps", eps, {.doc = "added to the denominator", .at_least = 0, .resumable = true});
    v("weight_decay", weight_decay,
      {.doc = "decay of the weights", .at_least = 0, .resumable = true});
    v("decoupled_weight_decay", decoupled_weight_decay, {.doc = "decay as AdamW does"});
    v("maximize", maximize, {.doc = "ascend instead of descend"});
  }
};

struct SparseAdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
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
    v("eps", eps, {.doc = "added to the denominator", .at_least = 0, .resumable = true});
    v("maximize", maximize, {.doc = "ascend instead of descend"});
  }
};

class TD_API Adamax : public Optimizer {
 public:
  static constexpr OptimizerAbout kAbout = {
      "adamax", "Adam with the infinity norm (Kingma and Ba 2015, section 7.1).",
      "{type: adamax, lr: 5e-3}"};
  explicit Adamax(ParamList params, AdamaxOptions options = {});

 protected:
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;
};

class TD_API NAdam : public Optimizer {
 public:
  static constexpr OptimizerAbout kAbout = {"nadam", "Adam with Nesterov momentum (Dozat 2016).",
                                            "{type: nadam, lr: 5e-3}"};
  explicit NAdam(ParamList params, NAdamOptions options = {});

 protected:
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;
};

class TD_API RAdam : public Optimizer {
 public:
  static constexpr OptimizerAbout kAbout = {"radam", "Rectified Adam (Liu et al. 2020).",
                                            "{type: radam, lr: 5e-3}"};
  explicit RAdam(ParamList params, RAdamOptions options = {});

 protected:
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;
};

class TD_API SparseAdam : public Optimizer {
 public:
  static constexpr OptimizerAbout kAbout = {
      "sparse_adam", "Adam that touches only elements whose gradient is not 0.",
      "{type: sparse_adam, lr: 5e-3}"};
  explicit SparseAdam(ParamList params, SparseAdamOptions options = {});

 protected:
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;
};

}  // namespace tandem::optim
