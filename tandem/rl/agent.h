// SPDX-License-Identifier: Apache-2.0
// Agent: what DQN, A2C, PPO and SAC have in common (learn, predict, state in and out), and
// evaluate_policy. A run is a function of its options and seed; it needs no default generator.
#pragma once

#include <deque>
#include <functional>

#include "tandem/nn/container.h"
#include "tandem/rl/env.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::rl {

/// How far a run is.
struct Progress {
  int64_t steps = 0;       ///< of all environments together
  int64_t episodes = 0;    ///< that have ended
  double mean_reward = 0;  ///< of the last 100 of them
  double loss = 0;         ///< of the last update
};
/// Called after each rollout; false ends the run.
using ProgressFn = std::function<bool(const Progress&)>;

class TD_API Agent {
 public:
  virtual ~Agent() = default;
  /// Actions for observations f32 [n, dims]: i64 [n] for choices, else f32 [n, dims]. Without
  /// `deterministic` they are drawn from the policy.
  virtual Tensor predict(const Tensor& obs, bool deterministic = true) = 0;
  /// Go on for `total_timesteps` further steps of the environments (rounded up to whole rollouts).
  virtual void learn(int64_t total_timesteps, const ProgressFn& progress = {}) = 0;
  /// The nets' parameters; load_state_dict() throws as Module's.
  virtual StateDict state_dict() const = 0;
  virtual void load_state_dict(const StateDict& state) = 0;
  const Progress& progress() const { return progress_; }

 protected:
  /// Count the steps of one VectorStep.
  void count(const VectorStep& step);
  Progress progress_;

 private:
  std::deque<double> last_;
};

struct Evaluation {
  double mean_reward = 0, std_reward = 0;
  std::vector<double> rewards;  ///< of each episode
};
/// The returns of `n_eval_episodes` whole episodes, each from a start of its own by `seed`.
TD_API Evaluation evaluate_policy(Agent& agent, std::string_view env, int64_t n_eval_episodes = 10,
                                  bool deterministic = true, uint64_t seed = 1000);

namespace detail {

enum class Activation : uint8_t { relu, tanh };
/// Linear layers of `sizes` with activations between. With `gain` > 0 weights are orthogonal (the
/// last layer's with gain `last`) and biases 0, else as nn::Linear's.
TD_API nn::Sequential mlp(int64_t in, const std::vector<int64_t>& hidden, int64_t out,
                          Activation activation, double gain = 0, double last = 0);
/// target += tau (net - target), parameter by parameter.
TD_API void polyak_update(const nn::Module& net, const nn::Module& target, double tau);
/// f32 from host numbers.
TD_API Tensor floats(const std::vector<float>& v, Shape shape);
/// `prefix` + name of everything in `from` added to `to`, and back.
TD_API void add_state(StateDict& to, const std::string& prefix, const StateDict& from);
TD_API StateDict state_under(const StateDict& from, const std::string& prefix);

}  // namespace detail
}  // namespace tandem::rl
