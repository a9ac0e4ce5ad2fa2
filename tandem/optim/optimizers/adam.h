// SPDX-License-Identifier: Apache-2.0
// Adam and AdamW.
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct AdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0;
  bool amsgrad = false, maximize = false;
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
      {.doc = "decay, added to the gradient", .at_least = 0, .resumable = true});
    v("amsgrad", amsgrad, {.doc = "divide by the largest second moment so far"});
    v("maximize", maximize, {.doc = "ascend instead of descend"});
  }
};

struct AdamWOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 1e-2;
  bool amsgrad = false, maximize = false;
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
      {.doc = "decay of the weights themselves", .at_least = 0, .keras = 4e-3, .resumable = true});
    v("amsgrad", amsgrad, {.doc = "divide by the largest second moment so far"});
    v("maximize", maximize, {.doc = "ascend instead of descend"});
  }
};

namespace detail {
class TD_API AdamBase : public Optimizer {
 protected:
  AdamBase(ParamList params, AnyFields options, bool decoupled, const char* type);
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;

 private:
  bool decoupled_;
};
}  // namespace detail

class TD_API Adam : public detail::AdamBase {
 public:
  static constexpr OptimizerAbout kAbout = {
      "adam", "Kingma and Ba 2015; weight decay is added to the gradient.",
      "{type: adam, lr: 5e-3}"};
  explicit Adam(ParamList params, AdamOptions options = {})
      : AdamBase(std::move(params), any_fields(options), false, "Adam") {}
};

class TD_API AdamW : public detail::AdamBase {
 public:
  static constexpr OptimizerAbout kAbout = {
      "adamw", "Loshchilov and Hutter 2019; weight decay acts on the parameter itself.",
      "{type: adamw, lr: 5e-3, weight_decay: 0.05}"};
  explicit AdamW(ParamList params, AdamWOptions options = {})
      : AdamBase(std::move(params), any_fields(options), true, "AdamW") {}
};

}  // namespace tandem::optim
