// SPDX-License-Identifier: Apache-2.0
// DQN: Mnih et al., "Human-level control through deep reinforcement learning", with double
// (van Hasselt), dueling (Wang) and prioritised (Schaul) variants as switches.
#pragma once

#include "tandem/optim/optimizers.h"
#include "tandem/rl/agent.h"
#include "tandem/rl/buffers.h"

namespace tandem::rl {

/// Names and defaults of Stable-Baselines3.
struct DQNOptions {
  double learning_rate = 1e-4;
  int64_t buffer_size = 1'000'000, learning_starts = 100, batch_size = 32;
  double tau = 1.0;
  double gamma = 0.99;
  int64_t train_freq = 4, gradient_steps = 1, target_update_interval = 10'000;
  double exploration_fraction = 0.1, exploration_initial_eps = 1.0, exploration_final_eps = 0.05;
  double max_grad_norm = 10;
  bool double_q = false, dueling = false, prioritized = false;
  bool linear_schedule = false;
  std::vector<int64_t> net_arch = {64, 64};
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
    v("target_update_interval", target_update_interval,
      {.doc = "steps between updates of the target", .at_least = 1});
    v("exploration_fraction", exploration_fraction,
      {.doc = "share of the run over which random actions become fewer",
       .at_least = 0,
       .at_most = 1});
    v("exploration_initial_eps", exploration_initial_eps,
      {.doc = "share of random actions at first", .at_least = 0, .at_most = 1});
    v("exploration_final_eps", exploration_final_eps,
      {.doc = "share of random actions afterwards", .at_least = 0, .at_most = 1});
    v("max_grad_norm", max_grad_norm, {.doc = "norm that gradients are clipped to"});
    v("double_q", double_q, {.doc = "choose by one net, value by the other (van Hasselt)"});
    v("dueling", dueling, {.doc = "value and advantages apart (Wang)"});
    v("prioritized", prioritized, {.doc = "draw samples by their errors (Schaul)"});
    v("linear_schedule", linear_schedule, {.doc = "the learning rate falls to 0 over learn()"});
    v("net_arch", net_arch, {.doc = "widths of the hidden layers", .at_least = 1});
    v("compile", compile, {.doc = "the update as one planned program"});
  }
};

/// Action values: obs [n, dims] -> [n, choices].
class TD_API QNet : public nn::Module {
 public:
  QNet(int64_t dims, int64_t choices, const std::vector<int64_t>& hidden, bool dueling);
  Tensor forward(Tensor obs);

 private:
  nn::Sequential net_;
  std::optional<nn::Sequential> value_;  ///< for a dueling net; net_ then gives the advantages
};

class TD_API DQN : public Agent {
 public:
  /// Throws Value for an environment with continuous actions.
  explicit DQN(std::string_view env, DQNOptions options = {});
  Tensor predict(const Tensor& obs, bool deterministic = true) override;
  StateDict state_dict() const override { return net_.state_dict(); }
  void load_state_dict(const StateDict& state) override;
  const char* name() const override { return "DQN"; }

 private:
  void run(const ProgressFn& progress) override;
  void fields(detail::StateFields& f) override;
  double epsilon() const;
  void train();
  Tensor update(const Transitions& b);

  DQNOptions options_;
  VectorEnv env_;
  PhiloxStream random_;
  QNet net_, target_;
  optim::Adam optimizer_;
  std::unique_ptr<ReplayBuffer> buffer_;
  PrioritizedReplayBuffer* prioritized_ = nullptr;
  std::function<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                       const Tensor&)>
      step_;
  Tensor obs_;
  int64_t since_target_ = 0;
};

}  // namespace tandem::rl
