// SPDX-License-Identifier: Apache-2.0
// SAC: Haarnoja et al., "Soft actor-critic algorithms and applications": two critics, a squashed
// Gaussian policy, and an entropy weight that is learnt.
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
  std::optional<double> ent_coef = {};        ///< none: learnt, from 1 on
  std::optional<double> target_entropy = {};  ///< none: -dims of an action
  std::vector<int64_t> net_arch = {256, 256};
  uint64_t seed = 0;
  bool compile = true;  ///< the update as one planned program
};

class TD_API SAC : public Agent {
 public:
  /// Throws Value for an environment with choices.
  explicit SAC(std::string_view env, SACOptions options = {});
  Tensor predict(const Tensor& obs, bool deterministic = true) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  const char* name() const override { return "SAC"; }
  /// The present weight of the entropy.
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
  Tensor middle_, half_;  ///< of the range of actions
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
