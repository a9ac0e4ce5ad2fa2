// SPDX-License-Identifier: Apache-2.0
// Agents that learn from their latest experience: A2C (Mnih et al.) and PPO (Schulman et al.,
// "Proximal policy optimization algorithms"), with discrete or continuous actions. Uses generalised
// advantage estimation.
#pragma once

#include "tandem/optim/optimizers.h"
#include "tandem/rl/agent.h"

namespace tandem::rl {

/// Names and defaults of Stable-Baselines3.
struct A2COptions {
  double learning_rate = 7e-4;
  int64_t n_envs = 1, n_steps = 5;
  double gamma = 0.99, gae_lambda = 1.0, ent_coef = 0.0, vf_coef = 0.5, max_grad_norm = 0.5;
  double rms_prop_eps = 1e-5;
  bool normalize_advantage = false;
  bool linear_schedule = false;
  std::vector<int64_t> net_arch = {64, 64};
  uint64_t seed = 0;
  bool compile = true;

  /// All but the seed.
  template <class V>
  void fields(V& v) {
    v("learning_rate", learning_rate, {.doc = "learning rate", .at_least = 0});
    v("n_envs", n_envs, {.doc = "environments side by side", .at_least = 1});
    v("n_steps", n_steps, {.doc = "steps of each environment between updates", .at_least = 1});
    v("gamma", gamma, {.doc = "discount of rewards to come", .at_least = 0, .at_most = 1});
    v("gae_lambda", gae_lambda,
      {.doc = "decay of the generalised advantage estimates", .at_least = 0, .at_most = 1});
    v("ent_coef", ent_coef, {.doc = "weight of the entropy"});
    v("vf_coef", vf_coef, {.doc = "weight of the value loss"});
    v("max_grad_norm", max_grad_norm, {.doc = "norm that gradients are clipped to"});
    v("rms_prop_eps", rms_prop_eps, {.doc = "RMSprop's epsilon", .at_least = 0});
    v("normalize_advantage", normalize_advantage, {.doc = "advantages of mean 0 and deviation 1"});
    v("linear_schedule", linear_schedule, {.doc = "the learning rate falls to 0 over learn()"});
    v("net_arch", net_arch, {.doc = "widths of the hidden layers", .at_least = 1});
    v("compile", compile, {.doc = "the update as one planned program"});
  }
};
struct PPOOptions {
  double learning_rate = 3e-4;
  int64_t n_envs = 1, n_steps = 2048, batch_size = 64, n_epochs = 10;
  double gamma = 0.99, gae_lambda = 0.95, clip_range = 0.2, ent_coef = 0.0, vf_coef = 0.5,
         max_grad_norm = 0.5;
  bool normalize_advantage = true;
  bool linear_schedule = false;
  std::optional<double> target_kl = {};
  std::vector<int64_t> net_arch = {64, 64};
  uint64_t seed = 0;
  bool compile = true;

  /// All but the seed.
  template <class V>
  void fields(V& v) {
    v("learning_rate", learning_rate, {.doc = "learning rate", .at_least = 0});
    v("n_envs", n_envs, {.doc = "environments side by side", .at_least = 1});
    v("n_steps", n_steps, {.doc = "steps of each environment between updates", .at_least = 1});
    v("batch_size", batch_size, {.doc = "samples of an update", .at_least = 1});
    v("n_epochs", n_epochs, {.doc = "passes over what was collected", .at_least = 1});
    v("gamma", gamma, {.doc = "discount of rewards to come", .at_least = 0, .at_most = 1});
    v("gae_lambda", gae_lambda,
      {.doc = "decay of the generalised advantage estimates", .at_least = 0, .at_most = 1});
    v("clip_range", clip_range, {.doc = "clip range of the ratio of probabilities", .at_least = 0});
    v("ent_coef", ent_coef, {.doc = "weight of the entropy"});
    v("vf_coef", vf_coef, {.doc = "weight of the value loss"});
    v("max_grad_norm", max_grad_norm, {.doc = "norm that gradients are clipped to"});
    v("normalize_advantage", normalize_advantage, {.doc = "advantages of mean 0 and deviation 1"});
    v("linear_schedule", linear_schedule,
      {.doc = "learning rate and clip range fall to 0 over learn()"});
    v("target_kl", target_kl,
      {.doc = "end an update early beyond 1.5 times this; none: never", .none = 0});
    v("net_arch", net_arch, {.doc = "widths of the hidden layers", .at_least = 1});
    v("compile", compile, {.doc = "the update as one planned program"});
  }
};

/// Policy and value nets of the same shape without shared layers. obs [n, dims].
class TD_API ActorCritic : public nn::Module {
 public:
  ActorCritic(const Space& observation, const Space& action, const std::vector<int64_t>& hidden);
  /// Logits [n, choices], or means [n, dims].
  Tensor forward(Tensor obs) { return pi_(obs); }
  Tensor value(const Tensor& obs) { return vf_(obs).squeeze(1); }
  /// log probability (density) [n] of actions under forward()'s `out`, and the entropy [n].
  Tensor log_prob(const Tensor& out, const Tensor& actions) const;
  Tensor entropy(const Tensor& out) const;
  const Param& log_std() const { return log_std_; }

 private:
  bool discrete_;
  nn::Sequential pi_, vf_;
  Param log_std_;  ///< [dims]; [0] for choices
};

/// The data of a rollout, in order [steps * envs].
struct Rollout {
  Tensor obs, actions, log_probs, advantages, returns;
};

class TD_API OnPolicyAgent : public Agent {
 public:
  Tensor predict(const Tensor& obs, bool deterministic = true) override;
  StateDict state_dict() const override { return net_.state_dict(); }
  void load_state_dict(const StateDict& state) override { net_.load_state_dict(state); }

 protected:
  struct Collect {
    double learning_rate, gamma, gae_lambda;
    int64_t n_envs, n_steps;
    bool linear_schedule;
    std::vector<int64_t> net_arch;
    uint64_t seed;
  };
  OnPolicyAgent(std::string_view env, Collect collect);
  void run(const ProgressFn& progress) override;
  void fields(detail::StateFields& f) override;
  /// `left` decreases from 1 to 0 over learn().
  virtual void update(const Rollout& r, double left) = 0;
  virtual optim::Optimizer& optimizer() = 0;

  Collect collect_;
  VectorEnv env_;
  PhiloxStream random_;
  ActorCritic net_;

 private:
  Tensor act(const Tensor& out, std::vector<float>* log_probs);
  Rollout collect();
  Tensor obs_;
};

class TD_API A2C : public OnPolicyAgent {
 public:
  explicit A2C(std::string_view env, A2COptions options = {});
  const char* name() const override { return "A2C"; }

 private:
  void update(const Rollout& r, double left) override;
  optim::Optimizer& optimizer() override { return optimizer_; }
  A2COptions options_;
  optim::RMSprop optimizer_;
  std::function<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&)> step_;
};

class TD_API PPO : public OnPolicyAgent {
 public:
  /// Throws Value unless batch_size divides n_envs * n_steps.
  explicit PPO(std::string_view env, PPOOptions options = {});
  const char* name() const override { return "PPO"; }

 private:
  void update(const Rollout& r, double left) override;
  optim::Optimizer& optimizer() override { return optimizer_; }
  PPOOptions options_;
  optim::Adam optimizer_;
  std::function<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                       const Tensor&)>
      step_;
};

}  // namespace tandem::rl
