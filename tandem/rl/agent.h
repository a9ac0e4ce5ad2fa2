// SPDX-License-Identifier: Apache-2.0
// Agent: what DQN, A2C, PPO and SAC have in common (learn, predict, state in and out), and
// evaluate_policy. A run is a function of its options and seed; it needs no default generator.
#pragma once

#include <deque>
#include <functional>
#include <optional>

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
  /// Throws Value for less than 0.
  void learn(int64_t total_timesteps, const ProgressFn& progress = {});
  /// Go on with the learn() that `progress` stopped, here or in the process that saved this state,
  /// to the end that it was given: the same bits as without the stop. `total_timesteps` gives it
  /// another length, from where it began. Does nothing at the end.
  void resume(const ProgressFn& progress = {}, std::optional<int64_t> total_timesteps = {});
  /// The nets' parameters; load_state_dict() throws as Module's.
  virtual StateDict state_dict() const = 0;
  virtual void load_state_dict(const StateDict& state) = 0;
  const Progress& progress() const { return progress_; }
  /// "DQN", "A2C" ...
  virtual const char* name() const = 0;

  /// Everything that the next step depends on: nets, optimizers, memory, environments, draws,
  /// counters. Between rollouts (in `progress` too) an agent that takes it in goes on with the same
  /// bits. Values; save() takes them.
  StateDict training_state() const;
  /// Take in a training_state() of an agent of this kind, environment and sizes; options such as
  /// rates of decay stay this one's, the optimizers' numbers and the seed are the state's. Throws
  /// Value naming what is missing, unknown or of another shape or dtype; changes nothing then.
  void load_training_state(const StateDict& state);

 protected:
  /// Steps until progress().steps is the end_ or `progress` says so.
  virtual void run(const ProgressFn& progress) = 0;
  /// The parts of the state, in both directions.
  virtual void fields(detail::StateFields& f) = 0;
  /// Count the steps of one VectorStep.
  void count(const VectorStep& step);
  Progress progress_;
  int64_t begin_ = 0, end_ = 0;  ///< steps at the begin and at the end of learn()

 private:
  void all_fields(detail::StateFields& f);
  void take_mean();
  std::deque<double> last_;  ///< returns of up to 100 episodes
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
