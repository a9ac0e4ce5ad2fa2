// SPDX-License-Identifier: Apache-2.0
// Replay memory: ReplayBuffer (uniform draws) and PrioritizedReplayBuffer (draws by priority from a
// sum tree). Storage is allocated once; adding overwrites the oldest.
#pragma once

#include <vector>

#include "tandem/base/philox.h"
#include "tandem/rl/env.h"

namespace tandem::rl {

/// A batch of n transitions.
struct Transitions {
  Tensor obs;      ///< f32 [n, dims]
  Tensor actions;  ///< i64 [n] for discrete actions, else f32 [n, dims]
  Tensor rewards;  ///< f32 [n]
  Tensor next_obs;
  Tensor dones;    ///< f32 [n]: 1 where the episode terminated (not where it was truncated)
  Tensor weights;  ///< f32 [n]: importance of each; 1 for uniform draws
  std::vector<int64_t> indices;
};

class TD_API ReplayBuffer {
 public:
  /// Throws Value unless capacity is at least 1; Memory when it cannot be allocated.
  ReplayBuffer(int64_t capacity, const Space& observation, const Space& action);
  virtual ~ReplayBuffer() = default;
  int64_t size() const { return size_; }
  int64_t capacity() const { return capacity_; }
  /// Add the n transitions of a step of n environments.
  void add(const Tensor& obs, const Tensor& actions, const VectorStep& step);
  /// `n` transitions drawn from `random`, with replacement. Throws Value when it is empty.
  virtual Transitions sample(int64_t n, PhiloxStream& random) const;
  /// Its part of a training state: the transitions it holds.
  virtual void fields(detail::StateFields& f) { transitions(f); }

 protected:
  virtual void added(int64_t /*index*/) {}
  Transitions gather(std::vector<int64_t> indices) const;
  /// The fields of all buffers; returns the number of transitions on the loading side, else here.
  int64_t transitions(detail::StateFields& f);

 private:
  int64_t capacity_, size_ = 0, next_ = 0;
  size_t obs_dims_, action_dims_;
  int64_t choices_;  ///< 0: continuous actions
  std::vector<float> obs_, next_obs_, actions_, rewards_, dones_;
};

struct PrioritizedOptions {
  double alpha = 0.6;  ///< 0: uniform
  double beta = 0.4;   ///< strength of the importance correction
  double eps = 1e-6;   ///< added to |error|, so that everything can be drawn
};

/// Schaul et al., "Prioritized experience replay": transition i is drawn with probability
/// p_i^alpha / sum; weights are (N p)^-beta over their largest. New ones get the highest priority.
class TD_API PrioritizedReplayBuffer : public ReplayBuffer {
 public:
  PrioritizedReplayBuffer(int64_t capacity, const Space& observation, const Space& action,
                          PrioritizedOptions options = {});
  Transitions sample(int64_t n, PhiloxStream& random) const override;
  /// Set the priorities |error| + eps of drawn transitions. Throws Index, Value for a NaN.
  void update_priorities(const std::vector<int64_t>& indices, const std::vector<float>& errors);
  void set_beta(double beta) { options_.beta = beta; }
  /// Probability that one draw gives transition i.
  double probability(int64_t i) const;
  void fields(detail::StateFields& f) override;

 private:
  void added(int64_t index) override { set(index, highest_); }
  void set(int64_t index, double priority);
  PrioritizedOptions options_;
  size_t leaves_ = 1;
  std::vector<double> sums_;  ///< node k has children 2k and 2k+1; leaves from leaves_ on
  double highest_ = 1;
};

}  // namespace tandem::rl
