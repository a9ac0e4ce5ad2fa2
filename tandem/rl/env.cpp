// SPDX-License-Identifier: Apache-2.0
#include "tandem/rl/env.h"

#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/hash/hash.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"
#include "tandem/rl/state_fields_internal.h"

namespace tandem::rl {
namespace {

PhiloxStream stream(uint64_t seed, uint64_t env, uint64_t episode) {
  return PhiloxStream(hash_combine(hash_combine(seed, env), episode));
}

// Actions as floats, `per` of them for each of n environments. Throws Shape or Value.
std::vector<float> checked_actions(const Tensor& actions, int64_t n, const Space& space,
                                   const char* name) {
  TD_CHECK(actions.defined() && actions.numel() == n * space.dims(), Shape,
           "{}: {} action(s) of {} number(s) are expected, got {}", name, n, space.dims(),
           actions.defined() ? actions.shape().to_string() : "an undefined tensor");
  std::vector<float> out = actions.to_vector<float>();
  for (const float a : out)
    if (space.discrete())
      TD_CHECK(a >= 0 && a < static_cast<float>(space.n) && a == std::floor(a), Value,
               "{}: an action is one of 0 .. {}, got {}", name, space.n - 1, a);
    else
      TD_CHECK(std::isfinite(a), Value, "{}: an action is {}", name, a);
  return out;
}

Tensor bools(const std::vector<uint8_t>& v) { return tensor(v, Shape(v.size())).to(DType::b8); }

}  // namespace

Env::Env(std::unique_ptr<Task> task) : task_(std::move(task)) {}

Tensor Env::observe() const {
  std::vector<float> obs(static_cast<size_t>(task_->observation_space().dims()));
  task_->observe(obs.data());
  return tensor(obs);
}

Tensor Env::reset(ResetOptions options) {
  if (options.seed) {
    seed_ = *options.seed;
    episode_ = 0;
  }
  PhiloxStream random = stream(seed_, 0, episode_++);
  task_->reset(random);
  steps_ = 0;
  running_ = true;
  return observe();
}

Step Env::step(const Tensor& action) {
  return advance(checked_actions(action, 1, action_space(), name()).data());
}

Step Env::step_numbers(float choice) {
  const Space space = action_space();
  TD_CHECK(space.discrete() && choice >= 0 && choice < static_cast<float>(space.n), Value,
           "{}: an action is {}, got {}", name(),
           space.discrete() ? fmt::format("one of 0 .. {}", space.n - 1) : "a tensor", choice);
  return advance(&choice);
}

Step Env::advance(const float* action) {
  TD_CHECK(running_, Value,
           "{}: there is no episode to step in\nCall reset() first and after an end.", name());
  Step out;
  out.reward = task_->step(action, out.terminated);
  out.truncated = ++steps_ >= task_->max_episode_steps();
  out.obs = observe();
  running_ = !out.terminated && !out.truncated;
  return out;
}

VectorEnv::VectorEnv(std::string_view name, int64_t n, uint64_t seed) : seed_(seed) {
  TD_CHECK(n >= 1 && n <= 1 << 20, Value, "VectorEnv: 1 to 2^20 environments, got {}", n);
  for (int64_t i = 0; i < n; ++i) tasks_.push_back(make_task(name));
  episodes_.resize(tasks_.size());
  running_.resize(tasks_.size());
}

void VectorEnv::begin(size_t i) {
  PhiloxStream random = stream(seed_, i, episodes_[i]++);
  tasks_[i]->reset(random);
  running_[i] = Episode();
}

Tensor VectorEnv::reset(ResetOptions options) {
  if (options.seed) {
    seed_ = *options.seed;
    episodes_.assign(episodes_.size(), 0);
  }
  const int64_t dims = observation_space().dims();
  std::vector<float> obs(tasks_.size() * static_cast<size_t>(dims));
  for (size_t i = 0; i < tasks_.size(); ++i) {
    begin(i);
    tasks_[i]->observe(obs.data() + i * static_cast<size_t>(dims));
  }
  started_ = true;
  return tensor(obs, Shape(size(), dims));
}

VectorStep VectorEnv::step(const Tensor& actions) {
  TD_CHECK(started_, Value, "{}: call reset() before step()", name());
  const Space space = action_space();
  const std::vector<float> act = checked_actions(actions, size(), space, name());
  const auto per = static_cast<size_t>(space.dims());
  const auto dims = static_cast<size_t>(observation_space().dims());
  const size_t n = tasks_.size();
  std::vector<float> obs(n * dims), final_obs(n * dims), rewards(n);
  std::vector<uint8_t> terminated(n), truncated(n);
  std::vector<Episode> ended(n);
  parallel_for(0, size(), 512, [&](int64_t b, int64_t e) {
    for (auto i = static_cast<size_t>(b); i < static_cast<size_t>(e); ++i) {
      bool over = false;
      const double reward = tasks_[i]->step(act.data() + i * per, over);
      running_[i].reward += reward;
      rewards[i] = static_cast<float>(reward);
      terminated[i] = over;
      truncated[i] = ++running_[i].length >= tasks_[i]->max_episode_steps();
      tasks_[i]->observe(final_obs.data() + i * dims);
      if (terminated[i] || truncated[i]) {
        ended[i] = running_[i];
        begin(i);
      }
      tasks_[i]->observe(obs.data() + i * dims);
    }
  });
  VectorStep out;
  for (const Episode& e : ended)
    if (e.length > 0) out.episodes.push_back(e);
  const Shape shape(n, dims);
  out.obs = tensor(obs, shape);
  out.final_obs = tensor(final_obs, shape);
  out.rewards = tensor(rewards);
  out.terminated = bools(terminated);
  out.truncated = bools(truncated);
  return out;
}

void VectorEnv::fields(detail::StateFields& f) {
  f.same("name", name());
  f.number("seed", seed_);
  f.flag("started", started_);
  std::vector<int64_t> episodes(episodes_.begin(), episodes_.end()), lengths;
  std::vector<double> rewards, tasks;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    rewards.push_back(running_[i].reward);
    lengths.push_back(running_[i].length);
    const std::vector<double> state = tasks_[i]->state();
    tasks.insert(tasks.end(), state.begin(), state.end());
  }
  const auto counted = [](int64_t v) { return v >= 0; };
  // Large values would make the tasks' loops over angles take very long.
  const auto sane = [](double v) { return std::abs(v) <= 1e6; };
  f.numbers<int64_t>("episodes", episodes, {size()}, counted, [this](const auto& v) {
    for (size_t i = 0; i < v.size(); ++i) episodes_[i] = static_cast<uint64_t>(v[i]);
  });
  f.numbers<double>(
      "rewards", rewards, {size()}, [](double) { return true; },
      [this](const auto& v) {
        for (size_t i = 0; i < v.size(); ++i) running_[i].reward = v[i];
      });
  f.numbers<int64_t>("lengths", lengths, {size()}, counted, [this](const auto& v) {
    for (size_t i = 0; i < v.size(); ++i) running_[i].length = v[i];
  });
  const auto per = static_cast<int64_t>(tasks.size()) / size();
  f.numbers<double>("tasks", tasks, {size(), per}, sane, [this, per](const auto& v) {
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const auto at = v.begin() + static_cast<int64_t>(i) * per;
      tasks_[i]->set_state({at, at + per});
    }
  });
}

}  // namespace tandem::rl
