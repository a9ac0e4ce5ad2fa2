// SPDX-License-Identifier: Apache-2.0
#include "tandem/rl/on_policy.h"

#include <cmath>
#include <numbers>

#include "tandem/compile/compile.h"
#include "tandem/graph/rng.h"
#include "tandem/nn/init.h"
#include "tandem/ops/ops.h"
#include "tandem/rl/gaussian_internal.h"
#include "tandem/rl/state_fields_internal.h"

namespace tandem::rl {
namespace {

ActorCritic make_net(const VectorEnv& env, const std::vector<int64_t>& hidden, uint64_t seed) {
  GeneratorGuard generator({seed, 0});
  return ActorCritic(env.observation_space(), env.action_space(), hidden);
}

Tensor normalized(const Tensor& a) { return (a - a.mean()) / (a.std() + 1e-8); }

}  // namespace

ActorCritic::ActorCritic(const Space& observation, const Space& action,
                         const std::vector<int64_t>& hidden)
    : discrete_(action.discrete()),
      pi_(detail::mlp(observation.dims(), hidden, discrete_ ? action.n : action.dims(),
                      detail::Activation::tanh, std::numbers::sqrt2, 0.01)),
      vf_(detail::mlp(observation.dims(), hidden, 1, detail::Activation::tanh, std::numbers::sqrt2,
                      1.0)),
      log_std_(zeros({discrete_ ? 0 : action.dims()})) {
  TD_REGISTER(pi_, vf_, log_std_);
}

Tensor ActorCritic::log_prob(const Tensor& out, const Tensor& actions) const {
  if (discrete_) return gather(log_softmax(out, 1), 1, actions.unsqueeze(1)).squeeze(1);
  const Tensor z = (actions - out) * (-log_std_.value()).exp();
  return gaussian_log_density(z, log_std_.value()).sum({1});
}

Tensor ActorCritic::entropy(const Tensor& out) const {
  if (discrete_) {
    const Tensor l = log_softmax(out, 1);
    return -(l.exp() * l).sum({1});
  }
  return (log_std_.value() + (0.5 + kHalfLogTwoPi)).sum() + zeros({out.shape(0)});
}

OnPolicyAgent::OnPolicyAgent(std::string_view env, Collect collect)
    : collect_(std::move(collect)),
      env_(env, collect_.n_envs, collect_.seed),
      random_(collect_.seed, 1),
      net_(make_net(env_, collect_.net_arch, collect_.seed)) {
  TD_CHECK(collect_.n_steps >= 1, Value, "n_steps is at least 1, got {}", collect_.n_steps);
}

// Draw an action for each row of `out`; its log probability is appended.
Tensor OnPolicyAgent::act(const Tensor& out, std::vector<float>* log_probs) {
  const int64_t n = out.size(0), k = out.size(1);
  if (env_.action_space().discrete()) {
    const Tensor log_p = log_softmax(out, 1);
    const std::vector<float> l = log_p.to_vector<float>();
    std::vector<int64_t> actions(static_cast<size_t>(n));
    for (size_t i = 0; i < actions.size(); ++i) {
      const float* row = l.data() + i * static_cast<size_t>(k);
      double left = random_.next_uniform();
      int64_t a = 0;
      while (a + 1 < k && (left -= std::exp(static_cast<double>(row[a]))) >= 0) ++a;
      actions[i] = a;
      if (log_probs) log_probs->push_back(row[a]);
    }
    return tensor(actions);
  }
  std::vector<float> noise(static_cast<size_t>(n * k));
  for (float& v : noise) v = random_.next_normal();
  const Tensor actions = out + detail::floats(noise, {n, k}) * net_.log_std().value().exp();
  if (log_probs)
    for (const float l : net_.log_prob(out, actions).to_vector<float>()) log_probs->push_back(l);
  return actions;
}

Tensor OnPolicyAgent::predict(const Tensor& obs, bool deterministic) {
  NoGradGuard no_grad;
  const Tensor out = net_(obs);
  if (!deterministic) return act(out, nullptr);
  return env_.action_space().discrete() ? out.argmax(1) : out;
}

Rollout OnPolicyAgent::collect() {
  NoGradGuard no_grad;
  const auto n = static_cast<size_t>(collect_.n_envs),
             steps = static_cast<size_t>(collect_.n_steps);
  std::vector<Tensor> obs, actions;
  std::vector<float> log_probs, rewards(n * steps), values(n * (steps + 1)), ends(n * steps);
  for (size_t t = 0; t < steps; ++t) {
    const Tensor value = net_.value(obs_);
    const std::vector<float> v = value.to_vector<float>();
    std::copy(v.begin(), v.end(), values.begin() + static_cast<int64_t>(t * n));
    obs.push_back(obs_);
    actions.push_back(act(net_(obs_), &log_probs));
    const VectorStep step = env_.step(actions.back());
    count(step);
    const auto reward = step.rewards.to_vector<float>();
    const auto over = step.terminated.to_vector<float>(), late = step.truncated.to_vector<float>();
    std::vector<float> after;  // values of the states after truncated episodes
    for (size_t i = 0; i < n; ++i) {
      rewards[t * n + i] = reward[i];
      ends[t * n + i] = over[i] + late[i] > 0 ? 1.0F : 0.0F;
      if (late[i] > 0 && over[i] == 0) {
        if (after.empty()) after = net_.value(step.final_obs).to_vector<float>();
        rewards[t * n + i] += static_cast<float>(collect_.gamma) * after[i];
      }
    }
    obs_ = step.obs;
  }
  const std::vector<float> last = net_.value(obs_).to_vector<float>();
  std::copy(last.begin(), last.end(), values.begin() + static_cast<int64_t>(steps * n));

  std::vector<float> advantages(n * steps), returns(n * steps);
  for (size_t i = 0; i < n; ++i) {
    double sum = 0;
    for (size_t t = steps; t-- > 0;) {
      const size_t at = t * n + i;
      const double goes_on = 1.0 - static_cast<double>(ends[at]);
      const double error = static_cast<double>(rewards[at]) +
                           collect_.gamma * static_cast<double>(values[at + n]) * goes_on -
                           static_cast<double>(values[at]);
      sum = error + collect_.gamma * collect_.gae_lambda * goes_on * sum;
      advantages[at] = static_cast<float>(sum);
      returns[at] = static_cast<float>(sum + static_cast<double>(values[at]));
    }
  }
  return {cat(obs, 0), cat(actions, 0), tensor(log_probs), tensor(advantages), tensor(returns)};
}

void OnPolicyAgent::run(const ProgressFn& progress) {
  if (!obs_.defined()) obs_ = env_.reset();
  while (progress_.steps < end_) {
    const double left =
        1 - static_cast<double>(progress_.steps - begin_) / static_cast<double>(end_ - begin_);
    if (collect_.linear_schedule) optimizer().set_lr(collect_.learning_rate * left);
    const Rollout r = collect();
    update(r, collect_.linear_schedule ? left : 1.0);
    if (progress && !progress(progress_)) return;
  }
}

void OnPolicyAgent::fields(detail::StateFields& f) {
  f.part("env", env_);
  f.draws("random", random_);
  f.dict("net", net_);
  f.dict("optimizer", optimizer());
  f.observations("obs", obs_, env_.size(), env_.observation_space().dims());
}

A2C::A2C(std::string_view env, A2COptions o)
    : OnPolicyAgent(env, {o.learning_rate, o.gamma, o.gae_lambda, o.n_envs, o.n_steps,
                          o.linear_schedule, o.net_arch, o.seed}),
      options_(std::move(o)),
      optimizer_(net_.parameters(),
                 {.lr = options_.learning_rate, .alpha = 0.99, .eps = options_.rms_prop_eps}) {
  auto body = [this](const Tensor& obs, const Tensor& actions, const Tensor& advantages,
                     const Tensor& returns) {
    optimizer_.zero_grad();
    const Tensor out = net_(obs);
    const Tensor a = options_.normalize_advantage ? normalized(advantages) : advantages;
    const Tensor loss = -(a * net_.log_prob(out, actions)).mean() -
                        options_.ent_coef * net_.entropy(out).mean() +
                        options_.vf_coef * mse_loss(net_.value(obs), returns);
    loss.backward();
    optim::clip_grad_norm_(net_.parameters(), options_.max_grad_norm);
    optimizer_.step();
    return loss.detach();
  };
  if (options_.compile)
    step_ = tandem::compile(body, {.name = "A2C"});
  else
    step_ = body;
}

void A2C::update(const Rollout& r, double) {
  progress_.loss = step_(r.obs, r.actions, r.advantages, r.returns).item<float>();
}

PPO::PPO(std::string_view env, PPOOptions o)
    : OnPolicyAgent(env, {o.learning_rate, o.gamma, o.gae_lambda, o.n_envs, o.n_steps,
                          o.linear_schedule, o.net_arch, o.seed}),
      options_(std::move(o)),
      optimizer_(net_.parameters(), {.lr = options_.learning_rate, .eps = 1e-5}) {
  TD_CHECK(options_.batch_size > 1 && options_.n_envs * options_.n_steps % options_.batch_size == 0,
           Value, "PPO: batch_size {} does not divide n_envs * n_steps = {}", options_.batch_size,
           options_.n_envs * options_.n_steps);
  auto body = [this](const Tensor& obs, const Tensor& actions, const Tensor& old_log_probs,
                     const Tensor& advantages, const Tensor& returns, const Tensor& clip) {
    optimizer_.zero_grad();
    const Tensor out = net_(obs);
    const Tensor a = options_.normalize_advantage ? normalized(advantages) : advantages;
    const Tensor change = net_.log_prob(out, actions) - old_log_probs;
    const Tensor ratio = change.exp();
    const Tensor gain = minimum(a * ratio, a * minimum(maximum(ratio, 1 - clip), 1 + clip));
    const Tensor loss = -gain.mean() - options_.ent_coef * net_.entropy(out).mean() +
                        options_.vf_coef * mse_loss(net_.value(obs), returns);
    loss.backward();
    optim::clip_grad_norm_(net_.parameters(), options_.max_grad_norm);
    optimizer_.step();
    // Schulman's estimate of the divergence from the policy that acted.
    return stack({loss, (ratio - 1 - change).mean()}, 0).detach();
  };
  if (options_.compile)
    step_ = tandem::compile(body, {.name = "PPO"});
  else
    step_ = body;
}

void PPO::update(const Rollout& r, double left) {
  const int64_t n = r.obs.size(0);
  const Tensor clip = tensor(options_.clip_range * left, DType::f32);
  for (int64_t epoch = 0; epoch < options_.n_epochs; ++epoch) {
    std::vector<int64_t> order(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) order[static_cast<size_t>(i)] = i;
    for (int64_t i = n - 1; i > 0; --i)
      std::swap(order[static_cast<size_t>(i)],
                order[random_.next_below(static_cast<uint64_t>(i) + 1)]);
    const Tensor all = tensor(order);
    for (int64_t at = 0; at < n; at += options_.batch_size) {
      const Tensor rows = all.narrow(0, at, options_.batch_size);
      const auto pick = [&](const Tensor& t) { return index_select(t, 0, rows); };
      const std::vector<float> out = step_(pick(r.obs), pick(r.actions), pick(r.log_probs),
                                           pick(r.advantages), pick(r.returns), clip)
                                         .to_vector<float>();
      progress_.loss = static_cast<double>(out[0]);
      if (options_.target_kl && static_cast<double>(out[1]) > 1.5 * *options_.target_kl) return;
    }
  }
}

}  // namespace tandem::rl
