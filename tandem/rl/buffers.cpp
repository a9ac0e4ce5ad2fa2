// SPDX-License-Identifier: Apache-2.0
#include "tandem/rl/buffers.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/ops/view/create.h"
#include "tandem/rl/state_fields_internal.h"

namespace tandem::rl {
namespace {

std::vector<float> rows(const std::vector<float>& from, size_t dims,
                        const std::vector<int64_t>& indices) {
  std::vector<float> out(indices.size() * dims);
  for (size_t i = 0; i < indices.size(); ++i)
    std::copy_n(from.data() + static_cast<size_t>(indices[i]) * dims, dims, out.data() + i * dims);
  return out;
}

}  // namespace

ReplayBuffer::ReplayBuffer(int64_t capacity, const Space& observation, const Space& action)
    : capacity_(capacity),
      obs_dims_(static_cast<size_t>(observation.dims())),
      action_dims_(static_cast<size_t>(action.dims())),
      choices_(action.n) {
  TD_CHECK(capacity >= 1 && capacity <= int64_t{1} << 31, Value,
           "ReplayBuffer: the capacity is 1 to 2^31, got {}", capacity);
  const auto n = static_cast<size_t>(capacity);
  obs_.resize(n * obs_dims_);
  next_obs_.resize(n * obs_dims_);
  actions_.resize(n * action_dims_);
  rewards_.resize(n);
  dones_.resize(n);
}

void ReplayBuffer::add(const Tensor& obs, const Tensor& actions, const VectorStep& step) {
  const int64_t n = step.rewards.numel();
  TD_CHECK(obs.numel() == n * static_cast<int64_t>(obs_dims_) &&
               actions.numel() == n * static_cast<int64_t>(action_dims_),
           Shape, "ReplayBuffer: {} steps come with obs {} and actions {}", n,
           obs.shape().to_string(), actions.shape().to_string());
  const auto from = obs.to_vector<float>(), act = actions.to_vector<float>();
  const auto to = step.final_obs.to_vector<float>(), reward = step.rewards.to_vector<float>();
  const auto over = step.terminated.to_vector<float>();
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    const auto at = static_cast<size_t>(next_);
    std::copy_n(from.data() + i * obs_dims_, obs_dims_, obs_.data() + at * obs_dims_);
    std::copy_n(to.data() + i * obs_dims_, obs_dims_, next_obs_.data() + at * obs_dims_);
    std::copy_n(act.data() + i * action_dims_, action_dims_, actions_.data() + at * action_dims_);
    rewards_[at] = reward[i];
    dones_[at] = over[i];
    size_ = std::max(size_, next_ + 1);
    added(next_);
    next_ = (next_ + 1) % capacity_;
  }
}

Transitions ReplayBuffer::gather(std::vector<int64_t> indices) const {
  const size_t n = indices.size();
  Transitions out;
  out.obs = tensor(rows(obs_, obs_dims_, indices), Shape(n, obs_dims_));
  out.next_obs = tensor(rows(next_obs_, obs_dims_, indices), Shape(n, obs_dims_));
  const std::vector<float> actions = rows(actions_, action_dims_, indices);
  out.actions = choices_ > 0 ? tensor(std::vector<int64_t>(actions.begin(), actions.end()))
                             : tensor(actions, Shape(n, action_dims_));
  out.rewards = tensor(rows(rewards_, 1, indices));
  out.dones = tensor(rows(dones_, 1, indices));
  out.weights = tensor(std::vector<float>(n, 1.0F));
  out.indices = std::move(indices);
  return out;
}

Transitions ReplayBuffer::sample(int64_t n, PhiloxStream& random) const {
  TD_CHECK(size_ > 0 && n > 0, Value, "ReplayBuffer: {} of {} transitions cannot be drawn", n,
           size_);
  std::vector<int64_t> indices(static_cast<size_t>(n));
  for (int64_t& i : indices)
    i = static_cast<int64_t>(random.next_below(static_cast<uint64_t>(size_)));
  return gather(std::move(indices));
}

int64_t ReplayBuffer::transitions(detail::StateFields& f) {
  f.same("capacity", capacity_);
  const int64_t size = f.count("size", size_, 0, capacity_);
  const int64_t next = f.count("next", next_, 0, capacity_ - 1);
  f.require(size == capacity_ || next == size, "next", static_cast<double>(next));
  const auto obs = static_cast<int64_t>(obs_dims_), action = static_cast<int64_t>(action_dims_);
  f.rows("obs", obs_, size, obs);
  f.rows("next_obs", next_obs_, size, obs);
  f.rows("actions", actions_, size, action, choices_);
  f.rows("rewards", rewards_, size, 1);
  f.rows("dones", dones_, size, 1);
  f.then([this, size, next] {
    size_ = size;
    next_ = next;
  });
  return size;
}

PrioritizedReplayBuffer::PrioritizedReplayBuffer(int64_t capacity, const Space& observation,
                                                 const Space& action, PrioritizedOptions options)
    : ReplayBuffer(capacity, observation, action), options_(options) {
  while (leaves_ < static_cast<size_t>(capacity)) leaves_ *= 2;
  sums_.resize(2 * leaves_);
}

void PrioritizedReplayBuffer::set(int64_t index, double priority) {
  size_t k = leaves_ + static_cast<size_t>(index);
  sums_[k] = std::pow(priority, options_.alpha);
  for (k /= 2; k > 0; k /= 2) sums_[k] = sums_[2 * k] + sums_[2 * k + 1];
}

void PrioritizedReplayBuffer::fields(detail::StateFields& f) {
  const int64_t n = transitions(f);
  const auto leaf = sums_.begin() + static_cast<int64_t>(leaves_);
  // The stored priorities; each inner node is the sum of its two children.
  std::vector<double> powers(leaf, leaf + size());
  f.numbers<double>(
      "powers", powers, {n}, [](double v) { return v >= 0 && v < 1e200; },
      [this](const auto& v) {
        std::fill(sums_.begin(), sums_.end(), 0.0);
        std::copy(v.begin(), v.end(), sums_.begin() + static_cast<int64_t>(leaves_));
        for (size_t k = leaves_ - 1; k > 0; --k) sums_[k] = sums_[2 * k] + sums_[2 * k + 1];
      });
  f.number("highest", highest_);
  f.number("beta", options_.beta);
}

double PrioritizedReplayBuffer::probability(int64_t i) const {
  TD_CHECK(i >= 0 && i < size(), Index, "transition {} of {}", i, size());
  return sums_[leaves_ + static_cast<size_t>(i)] / sums_[1];
}

Transitions PrioritizedReplayBuffer::sample(int64_t n, PhiloxStream& random) const {
  TD_CHECK(size() > 0 && n > 0, Value, "ReplayBuffer: {} of {} transitions cannot be drawn", n,
           size());
  std::vector<int64_t> indices;
  std::vector<float> weights;
  double largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    // One draw from each of n equal parts of the sum.
    double at = (static_cast<double>(i) + uniform_f64(random.next_block().word64(0))) /
                static_cast<double>(n) * sums_[1];
    size_t k = 1;
    while (k < leaves_) {
      k *= 2;
      if (at >= sums_[k] && sums_[k + 1] > 0) at -= sums_[k++];
    }
    indices.push_back(std::min(static_cast<int64_t>(k - leaves_), size() - 1));
    const double p = probability(indices.back()) * static_cast<double>(size());
    weights.push_back(static_cast<float>(std::pow(p, -options_.beta)));
    largest = std::max(largest, static_cast<double>(weights.back()));
  }
  for (float& w : weights) w = static_cast<float>(w / largest);
  Transitions out = gather(std::move(indices));
  out.weights = tensor(weights);
  return out;
}

void PrioritizedReplayBuffer::update_priorities(const std::vector<int64_t>& indices,
                                                const std::vector<float>& errors) {
  TD_CHECK(indices.size() == errors.size(), Shape, "{} priorities for {} transitions",
           errors.size(), indices.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    TD_CHECK(indices[i] >= 0 && indices[i] < size(), Index, "transition {} of {}", indices[i],
             size());
    TD_CHECK(std::isfinite(errors[i]), Value, "the error of transition {} is {}", indices[i],
             errors[i]);
    const double priority = std::abs(static_cast<double>(errors[i])) + options_.eps;
    highest_ = std::max(highest_, priority);
    set(indices[i], priority);
  }
}

}  // namespace tandem::rl
