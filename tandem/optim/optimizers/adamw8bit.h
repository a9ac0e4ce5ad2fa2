// SPDX-License-Identifier: Apache-2.0
// AdamW whose moments are codes of 8 bits (bitsandbytes' AdamW8bit).
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct AdamW8bitOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 1e-2;
  double min_8bit_size = 4096;
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
    v("weight_decay", weight_decay,
      {.doc = "decay of the weights themselves", .at_least = 0, .resumable = true});
    v("min_8bit_size", min_8bit_size,
      {.doc = "elements from which a parameter's moments are codes", .at_least = 0});
    v("maximize", maximize, {.doc = "ascend instead of descend"});
  }
};

/// Blocks of 256 elements share a scale, the largest magnitude in them, and codes stand for the 256
/// numbers of the dynamic data type, which has more digits for large numbers and more range for
/// small ones. States: "exp_avg" u8 and "exp_avg_absmax" f32 [blocks], and both of "exp_avg_sq". A
/// second moment above 0 never becomes the code of 0. Its update is made of general ops and takes
/// many times as long as AdamW's: it is for nets whose memory is short.
class TD_API AdamW8bit : public Optimizer {
 public:
  static constexpr OptimizerAbout kAbout = {
      "adamw8bit",
      "AdamW with moments of 8 bits, a quarter of their memory (Dettmers et al. 2022, 8-bit "
      "Optimizers via Block-wise Quantization).",
      "{type: adamw8bit, lr: 5e-3, min_8bit_size: 256}"};
  explicit AdamW8bit(ParamList params, AdamW8bitOptions options = {});
  bool elementwise() const override { return false; }  // a block has one scale

 protected:
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;
};

}  // namespace tandem::optim
