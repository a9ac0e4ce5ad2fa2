// SPDX-License-Identifier: Apache-2.0
#include "tandem/rl/agent.h"

#include <cmath>

#include "tandem/nn/activation.h"
#include "tandem/nn/init.h"
#include "tandem/nn/linear.h"
#include "tandem/ops/ops.h"
#include "tandem/rl/state_fields_internal.h"

namespace tandem::rl {

void Agent::count(const VectorStep& step) {
  progress_.steps += step.rewards.numel();
  for (const Episode& e : step.episodes) {
    ++progress_.episodes;
    last_.push_back(e.reward);
    if (last_.size() > 100) last_.pop_front();
  }
  take_mean();
}

void Agent::take_mean() {
  double sum = 0;
  for (const double r : last_) sum += r;
  progress_.mean_reward = last_.empty() ? 0 : sum / static_cast<double>(last_.size());
}

void Agent::learn(int64_t total_timesteps, const ProgressFn& progress) {
  TD_CHECK(total_timesteps >= 0, Value, "learn: 0 or more steps, got {}", total_timesteps);
  begin_ = progress_.steps;
  end_ = begin_ + total_timesteps;
  run(progress);
}

void Agent::resume(const ProgressFn& progress, std::optional<int64_t> total_timesteps) {
  if (total_timesteps) {
    TD_CHECK(*total_timesteps >= 0, Value, "resume: 0 or more steps, got {}", *total_timesteps);
    end_ = begin_ + *total_timesteps;
  }
  if (progress_.steps < end_) run(progress);
}

void Agent::all_fields(detail::StateFields& f) {
  f.same("agent", name());
  f.number("progress.steps", progress_.steps);
  f.number("progress.episodes", progress_.episodes);
  f.number("progress.loss", progress_.loss);
  const std::vector<double> returns(last_.begin(), last_.end());
  f.numbers<double>(
      "progress.returns", returns, {-1}, [](double) { return true; },
      [this](const auto& v) {
        last_.assign(v.size() > 100 ? v.end() - 100 : v.begin(), v.end());
        take_mean();
      });
  f.number("learn.begin", begin_);
  f.number("learn.end", end_);
  fields(f);
}

StateDict Agent::training_state() const {
  detail::StateFields f;
  const_cast<Agent*>(this)->all_fields(f);  // saving changes nothing
  return f.given();
}

void Agent::load_training_state(const StateDict& state) {
  detail::StateFields f(state);
  all_fields(f);
  f.take();
}

Evaluation evaluate_policy(Agent& agent, std::string_view env, int64_t n_eval_episodes,
                           bool deterministic, uint64_t seed) {
  TD_CHECK(n_eval_episodes >= 1, Value, "evaluate_policy: at least 1 episode, got {}",
           n_eval_episodes);
  // Runs all episodes in parallel; only the first of each environment counts, so that short
  // episodes are not overrepresented.
  VectorEnv envs(env, n_eval_episodes, seed);
  const auto n = static_cast<size_t>(n_eval_episodes);
  Evaluation out;
  out.rewards.resize(n);
  std::vector<char> over(n, 0);
  size_t left = n;
  Tensor obs = envs.reset();
  while (left > 0) {
    const VectorStep step = envs.step(agent.predict(obs, deterministic));
    const auto reward = step.rewards.to_vector<float>();
    const auto a = step.terminated.to_vector<float>(), b = step.truncated.to_vector<float>();
    for (size_t i = 0; i < n; ++i) {
      if (over[i]) continue;
      out.rewards[i] += static_cast<double>(reward[i]);
      if (a[i] + b[i] > 0) {
        over[i] = 1;
        --left;
      }
    }
    obs = step.obs;
  }
  for (const double r : out.rewards) out.mean_reward += r / static_cast<double>(n);
  for (const double r : out.rewards)
    out.std_reward += (r - out.mean_reward) * (r - out.mean_reward) / static_cast<double>(n);
  out.std_reward = std::sqrt(out.std_reward);
  return out;
}

namespace detail {

nn::Sequential mlp(int64_t in, const std::vector<int64_t>& hidden, int64_t out,
                   Activation activation, double gain, double last) {
  nn::Sequential net;
  std::vector<int64_t> sizes = hidden;
  sizes.push_back(out);
  for (size_t i = 0; i < sizes.size(); ++i) {
    nn::Linear layer(in, sizes[i]);
    if (gain > 0) {
      const double g = i + 1 == sizes.size() ? last : gain;
      layer.weight.assign_(nn::init::orthogonal({sizes[i], in}, g));
      layer.bias.assign_(zeros({sizes[i]}));
    }
    net.append(layer);
    if (i + 1 < sizes.size()) {
      if (activation == Activation::relu)
        net.append(nn::ReLU());
      else
        net.append(nn::Tanh());
    }
    in = sizes[i];
  }
  return net;
}

void polyak_update(const nn::Module& net, const nn::Module& target, double tau) {
  NoGradGuard no_grad;
  const std::vector<Param> from = net.parameters();
  std::vector<Param> to = target.parameters();
  for (size_t i = 0; i < to.size(); ++i) {
    if (tau == 1)
      to[i].assign_(from[i].value());
    else
      to[i].assign_(to[i].value() * (1 - tau) + from[i].value() * tau);
  }
}

Tensor floats(const std::vector<float>& v, Shape shape) { return tensor(v, std::move(shape)); }

void add_state(StateDict& to, const std::string& prefix, const StateDict& from) {
  for (const auto& [name, value] : from) to[prefix + name] = value;
}

StateDict state_under(const StateDict& from, const std::string& prefix) {
  StateDict out;
  for (const auto& [name, value] : from)
    if (name.starts_with(prefix)) out[name.substr(prefix.size())] = value;
  return out;
}

}  // namespace detail
}  // namespace tandem::rl
