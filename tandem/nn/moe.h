// SPDX-License-Identifier: Apache-2.0
// MoE: a mixture of experts, of which each token takes a few (Shazeer et al. 2017).
#pragma once

#include <memory>

#include "tandem/nn/linear.h"

namespace tandem::nn {

struct MoEOptions {
  int64_t experts = 8, top_k = 2;
  int64_t hidden = 0;  ///< width within an expert; 0: four times the layer's
  /// An expert takes at most this times its equal share of the tokens; the others skip it, last
  /// choices first (Fedus et al. 2022). 0: every token gets its experts; sizes then depend on
  /// values, so that compile() plans for the worst case.
  double capacity_factor = 0;
  bool gated = false;               ///< act(gate) * up, as in Mixtral
  std::string activation = "gelu";  ///< or "relu", "silu"
  bool normalize = true;            ///< the weights of a token's experts sum to 1
  DType dtype = DType::f32;
};

/// x [..., width] -> the same: for each token the sum of its top_k experts' MLPs, weighted by the
/// router's softmax. Parameters gate.weight [experts, width], up_proj [experts, hidden (twice if
/// gated), width], down_proj [experts, width, hidden]. distributed::ExpertParallel gives each of
/// several processes a part of the experts.
class TD_API MoE : public Module {
 public:
  /// Throws Value for sizes that do not fit.
  explicit MoE(int64_t width, MoEOptions options = {});
  Tensor forward(Tensor x);
  /// Of the last forward pass: experts * sum over them of (share of choices * mean probability), 1
  /// where all experts get equally much (Fedus et al. 2022, eq. 4). Add a small multiple of it,
  /// such as 0.01, to the loss, in a statement after the one that calls the net: C++ does not say
  /// which side of a `+` comes first. Throws Value before the first forward pass.
  Tensor aux_loss(SourceLocation loc = SourceLocation::here()) const;
  Linear gate;
  Param up_proj, down_proj;
  int64_t width;
  MoEOptions options;

  /// How tokens reach experts of other processes: x [experts, capacity, width] -> those for the
  /// experts here [own experts, ranks * capacity, width], and back; `agree` gives the largest
  /// capacity of all. Empty: all experts are here.
  struct Exchange {
    std::function<int64_t(int64_t)> agree;
    std::function<Tensor(const Tensor&)> out, back;
  };
  void set_exchange(std::shared_ptr<const Exchange> exchange) { exchange_ = std::move(exchange); }

 private:
  struct Routes {
    Tensor slots;    ///< [top_k * tokens]: row of the experts' input, one past the end: dropped
    Tensor sources;  ///< [experts * capacity]: row of x, one past the end: none
    Tensor weights;  ///< [top_k * tokens, 1]
    int64_t capacity = 0;
  };
  Routes route(const Tensor& x);
  int64_t capacity(const Tensor& choices, int64_t tokens) const;
  Tensor run_experts(const Tensor& x) const;

  Tensor aux_;
  std::shared_ptr<const Exchange> exchange_;
};

namespace detail {
/// `m` as a MoE; nullptr if it is not one.
TD_API MoE* as_moe(Module& m);
}  // namespace detail

}  // namespace tandem::nn
