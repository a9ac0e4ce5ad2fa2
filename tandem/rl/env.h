// SPDX-License-Identifier: Apache-2.0
// Environments with Gymnasium's interface: reset() returns an observation, step() the tuple (obs,
// reward, terminated, truncated, info). The classic control tasks are native; their dynamics,
// rewards and limits are Gymnasium's. Everything after a seed is a function of it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/base/philox.h"
#include "tandem/tensor/tensor.h"

namespace tandem::rl {

namespace detail {
class StateFields;
}

/// The type of actions or observations: `n` choices, or numbers between low and high.
struct Space {
  int64_t n = 0;                 ///< choices 0 .. n-1; 0 for a box
  std::vector<float> low, high;  ///< of a box [dims]
  bool discrete() const { return n > 0; }
  /// Numbers in one value: 1 for choices.
  int64_t dims() const { return discrete() ? 1 : static_cast<int64_t>(low.size()); }
};

/// Additional values of a step by name.
using Info = std::vector<std::pair<std::string, double>>;

struct Step {
  Tensor obs;  ///< f32 [dims]
  double reward = 0;
  bool terminated = false;  ///< the task is over: what follows has value 0
  bool truncated = false;   ///< the time limit was reached: what follows still has value
  Info info;
};

/// The dynamics of one environment; Env and VectorEnv drive them. State and rewards are double, as
/// in Gymnasium.
class TD_API Task {
 public:
  virtual ~Task() = default;
  virtual const char* name() const = 0;
  virtual Space observation_space() const = 0;
  virtual Space action_space() const = 0;
  /// Steps after which an episode is truncated.
  virtual int64_t max_episode_steps() const = 0;
  /// The mean return at which Gymnasium considers the task solved; none for Pendulum.
  virtual std::optional<double> reward_threshold() const { return {}; }
  virtual void reset(PhiloxStream& random) = 0;
  /// One step with `action` (an index for choices, else dims numbers); returns the reward.
  virtual double step(const float* action, bool& terminated) = 0;
  virtual void observe(float* obs) const = 0;
  /// The state itself, for tests and to start from a given state.
  virtual std::vector<double> state() const = 0;
  virtual void set_state(const std::vector<double>& state) = 0;
};

/// "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1" or "Acrobot-v1".
/// Throws Value for any other name, listing these.
TD_API std::unique_ptr<Task> make_task(std::string_view name);

struct ResetOptions {
  std::optional<uint64_t> seed = {};  ///< otherwise the episodes continue with their stream
};

/// One environment. After an end, step() throws Value until reset().
class TD_API Env {
 public:
  explicit Env(std::string_view name) : Env(make_task(name)) {}
  explicit Env(std::unique_ptr<Task> task);

  const char* name() const { return task_->name(); }
  Space observation_space() const { return task_->observation_space(); }
  Space action_space() const { return task_->action_space(); }
  /// Start an episode: its first observation, f32 [dims].
  Tensor reset(ResetOptions options = {});
  /// Throws Value without an episode or for an action outside the choices, Shape when the action
  /// has the wrong number of elements.
  Step step(const Tensor& action);
  Step step(int64_t action) { return step_numbers(static_cast<float>(action)); }
  Task& task() { return *task_; }

 private:
  Step step_numbers(float choice);
  Step advance(const float* action);
  Tensor observe() const;
  std::unique_ptr<Task> task_;
  uint64_t seed_ = 0;
  uint64_t episode_ = 0;
  int64_t steps_ = 0;
  bool running_ = false;
};

/// A finished episode.
struct Episode {
  double reward = 0;  ///< undiscounted sum
  int64_t length = 0;
};

struct VectorStep {
  Tensor obs;                     ///< f32 [n, dims]; of a new episode where one has ended
  Tensor rewards;                 ///< f32 [n]
  Tensor terminated, truncated;   ///< bool [n]
  Tensor final_obs;               ///< f32 [n, dims]: before any reset
  std::vector<Episode> episodes;  ///< those that ended in this step
};

/// n parallel environments, each with its own random stream; when an environment's episode ends,
/// the next one starts in the same step.
class TD_API VectorEnv {
 public:
  VectorEnv(std::string_view name, int64_t n, uint64_t seed = 0);
  int64_t size() const { return static_cast<int64_t>(tasks_.size()); }
  const char* name() const { return tasks_[0]->name(); }
  Space observation_space() const { return tasks_[0]->observation_space(); }
  Space action_space() const { return tasks_[0]->action_space(); }
  /// Start new episodes everywhere: f32 [n, dims].
  Tensor reset(ResetOptions options = {});
  /// `actions`: any integers [n] for choices, else floating [n, dims].
  VectorStep step(const Tensor& actions);
  /// Its part of a training state: tasks, running episodes, counters.
  void fields(detail::StateFields& f);

 private:
  void begin(size_t i);
  std::vector<std::unique_ptr<Task>> tasks_;
  std::vector<uint64_t> episodes_;
  std::vector<Episode> running_;
  uint64_t seed_;
  bool started_ = false;
};

}  // namespace tandem::rl
