// SPDX-License-Identifier: Apache-2.0
// Muon.
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct MuonOptions {
  double lr = 1e-3, weight_decay = 0.1, momentum = 0.95;
  bool nesterov = true;
  std::array<double, 3> ns_coefficients = {3.4445, -4.775, 2.0315};
  double eps = 1e-7;
  int64_t ns_steps = 5;
  std::string adjust_lr_fn = "original";
  template <class V>
  void fields(V& v) {
    v("lr", lr, {.doc = "learning rate", .at_least = 0, .resumable = true});
    v("weight_decay", weight_decay,
      {.doc = "decay of the weights", .at_least = 0, .resumable = true});
    v("momentum", momentum, {.doc = "share of the old step that is kept", .at_least = 0});
    v("nesterov", nesterov, {.doc = "look one step of momentum ahead"});
    v("ns_coefficients", ns_coefficients, {.doc = "of the Newton-Schulz polynomial"});
    v("eps", eps, {.doc = "added to the denominator", .at_least = 0, .resumable = true});
    v("ns_steps", ns_steps, {.doc = "Newton-Schulz steps", .at_least = 0, .at_most = 99});
    v("adjust_lr_fn", adjust_lr_fn,
      {.doc =
           "original: sqrt(max(1, rows / columns)); match_rms_adamw: 0.2 sqrt(max(rows, columns))",
       .one_of = "original match_rms_adamw"});
  }
};

class TD_API Muon : public Optimizer {
 public:
  static constexpr OptimizerAbout kAbout = {
      "muon",
      "Jordan et al. 2024: momentum orthogonalised by Newton-Schulz steps in bf16, for matrices; "
      "give other parameters to AdamW. Throws Shape for a parameter that is not a matrix.",
      "{type: muon, lr: 0.02}"};
  explicit Muon(ParamList params, MuonOptions options = {});
  bool elementwise() const override { return false; }

 protected:
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;

 private:
  MuonOptions o_;
};

}  // namespace tandem::optim
