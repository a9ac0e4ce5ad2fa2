// SPDX-License-Identifier: Apache-2.0
// SAC: Haarnoja et al., "Soft actor-critic algorithms and applications": two critics, a squashed
// Gaussian policy, and a learnt entropy weight.
#pragma once

#include "tandem/optim/optimizers.h"
#include "tandem/rl/agent.h"
#include "tandem/rl/buffers.h"

namespace tandem::rl {

/// Names and defaults of Stable-Baselines3.
struct SACOptions {
  double learning_rate = 3e-4;
  int64_t buffer_size = 1'000'000, learning_starts = 100, batch_size = 256;
  double tau = 0.005, gamma = 0.99;
  int64_t train_freq = 1, gradient_steps = 1;
  std::optional<double> ent_coef = {};
  std::optional<double> target_entropy = {};
  std::vector<int64_t> net_arch = {256, 256};
  uint64_t seed = 0;
  bool compile = true;

  /// All but the seed.
  template <class V>
  void fields(V& v) {
    v("learning_rate", learning_rate, {.doc = "learning rate", .at_least = 0});
    v("buffer_size", buffer_size, {.doc = "steps that the memory holds", .at_least = 1});
    v("learning_starts", learning_starts, {.doc = "steps before the first update", .at_least = 0});
    v("batch_size", batch_size, {.doc = "samples of an update", .at_least = 1});
    v("tau", tau,
      {.doc = "how much of the net goes to the target at each update of that one",
       .at_least = 0,
       .at_most = 1});
    v("gamma", gamma, {.doc = "discount of rewards to come", .at_least = 0, .at_most = 1});
    v("train_freq", train_freq, {.doc = "steps between updates", .at_least = 1});
    v("gradient_steps", gradient_steps, {.doc = "gradient steps of an update", .at_least = 1});
    v("ent_coef", ent_coef, {.doc = "weight of the entropy; none: learned, from 1 on"});
    v("target_entropy", target_entropy,
      {.doc = "entropy that the weight is learned for; none: -dims of an action"});
    v("net_arch", net_arch, {.doc = "widths of the hidden layers", .at_least = 1});
    v("compile", compile, {.doc = "the update as one planned program"});
  }
};

class TD_API SAC : public Agent {
 public:
  /// Throws Value for an environment with discrete actions.
  explicit SAC(std::string_view env, SACOptions options = {});
  Tensor predict(const Tensor& obs, bool deterministic = true) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  const char* name() const override { return "SAC"; }
  /// The current weight of the entropy.
  double ent_coef() const;

 private:
  struct Drawn {
    Tensor actions, log_probs;  ///< in -1 .. 1 [n, dims], [n]
  };
  void run(const ProgressFn& progress) override;
  void fields(detail::StateFields& f) override;
  Drawn draw(const Tensor& obs, const Tensor& noise);
  Tensor noise(int64_t n);
  Tensor update(const Transitions& b, const Tensor& noise, const Tensor& next_noise);
  Tensor scaled(const Tensor& actions) const;

  SACOptions options_;
  VectorEnv env_;
  int64_t dims_;
  Tensor middle_, half_;  ///< of the action range
  PhiloxStream random_;
  nn::Sequential actor_, q1_, q2_, target1_, target2_;
  Param log_alpha_;
  optim::Adam actor_optimizer_, critic_optimizer_, alpha_optimizer_;
  ReplayBuffer buffer_;
  std::function<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                       const Tensor&, const Tensor&)>
      step_;
  Tensor obs_;
};

}  // namespace tandem::rl
