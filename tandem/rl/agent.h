// SPDX-License-Identifier: Apache-2.0
// Agent: what DQN, A2C, PPO and SAC share (learn, predict, saving and loading state), and
// evaluate_policy. A run is a function of its options and seed, not of the default generator.
#pragma once

#include <deque>
#include <functional>
#include <optional>

#include "tandem/nn/container.h"
#include "tandem/rl/env.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::rl {

/// The progress of a run.
struct Progress {
  int64_t steps = 0;       ///< over all environments
  int64_t episodes = 0;    ///< that have ended
  double mean_reward = 0;  ///< of the last 100 of them
  double loss = 0;         ///< of the last update
};
/// Called after each rollout; false ends the run.
using ProgressFn = std::function<bool(const Progress&)>;

class TD_API Agent {
 public:
  virtual ~Agent() = default;
  /// Actions for observations f32 [n, dims]: i64 [n] for discrete actions, else f32 [n, dims].
  /// Without `deterministic` they are drawn from the policy.
  virtual Tensor predict(const Tensor& obs, bool deterministic = true) = 0;
  /// Train for `total_timesteps` more environment steps (rounded up to whole rollouts). Throws
  /// Value if negative.
  void learn(int64_t total_timesteps, const ProgressFn& progress = {});
  /// Continue the learn() that `progress` stopped, here or in the process that saved this state, to
  /// its original end: the same bits as without the stop. `total_timesteps` changes its length,
  /// counted from its start. Does nothing at the end.
  void resume(const ProgressFn& progress = {}, std::optional<int64_t> total_timesteps = {});
  /// The nets' parameters; load_state_dict() throws like Module's.
  virtual StateDict state_dict() const = 0;
  virtual void load_state_dict(const StateDict& state) = 0;
  const Progress& progress() const { return progress_; }
  /// "DQN", "A2C" ...
  virtual const char* name() const = 0;

  /// Everything that the next step depends on: nets, optimizers, memory, environments, draws,
  /// counters. Between rollouts (in `progress` too) an agent that loads it continues with the same
  /// bits. Values; save() accepts them.
  StateDict training_state() const;
  /// Load the training_state() of an agent of the same kind, environment and sizes; options such as
  /// decay rates stay this agent's, the optimizers' numbers and the seed are the state's. Throws
  /// Value naming what is missing, unknown or of another shape or dtype, and then changes nothing.
  void load_training_state(const StateDict& state);

 protected:
  /// Train until progress().steps reaches end_ or `progress` returns false.
  virtual void run(const ProgressFn& progress) = 0;
  /// The parts of the state, for saving and loading.
  virtual void fields(detail::StateFields& f) = 0;
  /// Count the steps of one VectorStep.
  void count(const VectorStep& step);
  Progress progress_;
  int64_t begin_ = 0, end_ = 0;  ///< steps at the start and at the end of learn()

 private:
  void all_fields(detail::StateFields& f);
  void take_mean();
  std::deque<double> last_;  ///< returns of up to 100 episodes
};

struct Evaluation {
  double mean_reward = 0, std_reward = 0;
  std::vector<double> rewards;  ///< of each episode
};
/// The returns of `n_eval_episodes` whole episodes, each from its own start determined by `seed`.
TD_API Evaluation evaluate_policy(Agent& agent, std::string_view env, int64_t n_eval_episodes = 10,
                                  bool deterministic = true, uint64_t seed = 1000);

namespace detail {

enum class Activation : uint8_t { relu, tanh };
/// Linear layers of `sizes` with activations between them. With `gain` > 0 weights are orthogonal
/// (the last layer's with gain `last`) and biases 0, else as in nn::Linear.
TD_API nn::Sequential mlp(int64_t in, const std::vector<int64_t>& hidden, int64_t out,
                          Activation activation, double gain = 0, double last = 0);
/// target += tau (net - target), parameter by parameter.
TD_API void polyak_update(const nn::Module& net, const nn::Module& target, double tau);
/// f32 from host numbers.
TD_API Tensor floats(const std::vector<float>& v, Shape shape);
/// Adds everything in `from` to `to` under `prefix` + name, and back.
TD_API void add_state(StateDict& to, const std::string& prefix, const StateDict& from);
TD_API StateDict state_under(const StateDict& from, const std::string& prefix);

}  // namespace detail
}  // namespace tandem::rl
