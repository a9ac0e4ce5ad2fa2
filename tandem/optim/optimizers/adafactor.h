// SPDX-License-Identifier: Apache-2.0
// Adafactor.
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct AdafactorOptions {
  double lr = 1e-2, beta2_decay = -0.8;
  std::optional<double> eps1 = {};  ///< none: the epsilon of the parameter's dtype
  double eps2 = 1e-3, d = 1.0, weight_decay = 0;
  bool maximize = false;
  template <class V>
  void fields(V& v) {
    v("lr", lr, {.doc = "learning rate", .at_least = 0, .keras = 1e-3, .resumable = true});
    v("beta2_decay", beta2_decay,
      {.doc = "power of the step that moments decay with", .at_most = 0, .resumable = true});
    v("eps1", eps1, {.doc = "least second moment; null: the epsilon of the dtype", .none = 0});
    v("eps2", eps2, {.doc = "least scale of a parameter", .at_least = 0, .resumable = true});
    v("d", d, {.doc = "clipping threshold", .at_least = 1, .resumable = true});
    v("weight_decay", weight_decay,
      {.doc = "decay of the weights", .at_least = 0, .resumable = true});
    v("maximize", maximize, {.doc = "ascend instead of descend"});
  }
};

class TD_API Adafactor : public Optimizer {
 public:
  static constexpr OptimizerAbout kAbout = {
      "adafactor", "Shazeer and Stern 2018: second moments as rows and columns.",
      "{type: adafactor, lr: 5e-3}"};
  explicit Adafactor(ParamList params, AdafactorOptions options = {});
  bool elementwise() const override { return false; }

 protected:
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;
};

}  // namespace tandem::optim
