// SPDX-License-Identifier: Apache-2.0
// Lion, and how an optimizer is written: options with their fields, what it is called, the state of
// a parameter, and its update. docs/adding-an-optimizer.md leads through this file.
#pragma once

#include "tandem/ops/nn/update.h"
#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct LionOptions {
  double lr = 1e-4;
  std::array<double, 2> betas = {0.9, 0.99};
  double weight_decay = 0;
  bool maximize = false;
  template <class V>
  void fields(V& v) {
    v("lr", lr, {.doc = "learning rate", .at_least = 0, .keras = 1e-3, .resumable = true});
    v("betas", betas,
      {.doc = "shares of the old momentum in the update and in what is kept",
       .at_least = 0,
       .below = 1,
       .elements = "beta1 beta2",
       .resumable = true});
    v("weight_decay", weight_decay,
      {.doc = "decay of the weights themselves", .at_least = 0, .resumable = true});
    v("maximize", maximize, {.doc = "ascend instead of descend"});
  }
};

class Lion : public Optimizer {
 public:
  static constexpr OptimizerAbout kAbout = {
      "lion", "Signs of an interpolated momentum (Chen et al. 2023).", "{type: lion, lr: 5e-3}"};
  explicit Lion(ParamList params, LionOptions options = {})
      : Optimizer("Lion", any_fields(options)) {
    step_is_optional();
    add_all(std::move(params));
  }

 protected:
  void init(const Options&, size_t i) override { add_state(i, "exp_avg"); }
  void update(Update& u) override {
    u.run(op::lion_update, {"exp_avg"},
          {u.number("lr"), u.number("beta1"), u.number("beta2"), u.number("weight_decay")});
  }
};

}  // namespace tandem::optim
