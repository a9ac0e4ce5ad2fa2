// SPDX-License-Identifier: Apache-2.0
#include "tandem/rl/dqn.h"

#include "tandem/compile/compile.h"
#include "tandem/graph/rng.h"
#include "tandem/ops/ops.h"
#include "tandem/rl/state_fields_internal.h"

namespace tandem::rl {
namespace {

int64_t choices_of(const VectorEnv& env) {
  const Space space = env.action_space();
  TD_CHECK(space.discrete(), Value,
           "DQN expects an environment with choices; {} takes numbers\nUse SAC or PPO.",
           env.name());
  return space.n;
}

}  // namespace

QNet::QNet(int64_t dims, int64_t choices, const std::vector<int64_t>& hidden, bool dueling)
    : net_(detail::mlp(dims, hidden, choices, detail::Activation::relu)) {
  if (dueling) value_.emplace(detail::mlp(dims, hidden, 1, detail::Activation::relu));
  TD_REGISTER(net_, value_);
}

Tensor QNet::forward(Tensor obs) {
  Tensor q = net_(obs);
  if (value_) q = (*value_)(obs) + q - q.mean({1}, true);
  return q;
}

namespace {
QNet make_net(const VectorEnv& env, const DQNOptions& o) {
  GeneratorGuard generator({o.seed, 0});
  return QNet(env.observation_space().dims(), choices_of(env), o.net_arch, o.dueling);
}
}  // namespace

DQN::DQN(std::string_view env, DQNOptions options)
    : options_(std::move(options)),
      env_(env, 1, options_.seed),
      random_(options_.seed, 1),
      net_(make_net(env_, options_)),
      target_(nn::clone(net_)),
      optimizer_(net_.parameters(), {.lr = options_.learning_rate}) {
  const Space obs = env_.observation_space(), act = env_.action_space();
  if (options_.prioritized) {
    auto p = std::make_unique<PrioritizedReplayBuffer>(options_.buffer_size, obs, act);
    prioritized_ = p.get();
    buffer_ = std::move(p);
  } else {
    buffer_ = std::make_unique<ReplayBuffer>(options_.buffer_size, obs, act);
  }
  auto body = [this](const Tensor& obs, const Tensor& actions, const Tensor& rewards,
                     const Tensor& next_obs, const Tensor& dones, const Tensor& weights) {
    return update({obs, actions, rewards, next_obs, dones, weights, {}});
  };
  if (options_.compile)
    step_ = tandem::compile(body, {.name = "DQN"});
  else
    step_ = body;
}

Tensor DQN::predict(const Tensor& obs, bool deterministic) {
  NoGradGuard no_grad;
  const Tensor best = net_(obs).argmax(1);
  if (deterministic) return best;
  std::vector<int64_t> actions = best.to_vector<int64_t>();
  for (int64_t& a : actions)
    if (random_.next_uniform() < options_.exploration_final_eps)
      a = static_cast<int64_t>(random_.next_below(static_cast<uint64_t>(env_.action_space().n)));
  return tensor(actions);
}

double DQN::epsilon() const {
  const double part = static_cast<double>(progress_.steps) /
                      (options_.exploration_fraction * static_cast<double>(end_));
  return options_.exploration_initial_eps +
         std::min(part, 1.0) * (options_.exploration_final_eps - options_.exploration_initial_eps);
}

// One gradient step on the error of Bellman's equation; returns the errors [n].
Tensor DQN::update(const Transitions& b) {
  Tensor goal;
  {
    NoGradGuard no_grad;
    const Tensor next = target_(b.next_obs);
    const Tensor value = options_.double_q
                             ? gather(next, 1, net_(b.next_obs).argmax(1, true)).squeeze(1)
                             : next.amax({1});
    goal = b.rewards + (1 - b.dones) * options_.gamma * value;
  }
  optimizer_.zero_grad();
  const Tensor q = gather(net_(b.obs), 1, b.actions.unsqueeze(1)).squeeze(1);
  const Tensor loss = (smooth_l1_loss(q, goal, {.reduction = Reduction::none}) * b.weights).mean();
  loss.backward();
  optim::clip_grad_norm_(net_.parameters(), options_.max_grad_norm);
  optimizer_.step();
  return (q - goal).detach();
}

void DQN::train() {
  for (int64_t i = 0; i < options_.gradient_steps; ++i) {
    const Transitions b = buffer_->sample(options_.batch_size, random_);
    const Tensor errors = step_(b.obs, b.actions, b.rewards, b.next_obs, b.dones, b.weights);
    if (prioritized_) prioritized_->update_priorities(b.indices, errors.to_vector<float>());
    if (i + 1 == options_.gradient_steps) progress_.loss = errors.abs().mean().item<float>();
  }
}

void DQN::run(const ProgressFn& progress) {
  if (!obs_.defined()) obs_ = env_.reset();
  while (progress_.steps < end_) {
    if (options_.linear_schedule)
      optimizer_.set_lr(options_.learning_rate * static_cast<double>(end_ - progress_.steps) /
                        static_cast<double>(end_ - begin_));
    for (int64_t i = 0; i < options_.train_freq && progress_.steps < end_; ++i) {
      const bool explore =
          progress_.steps < options_.learning_starts || random_.next_uniform() < epsilon();
      const auto choices = static_cast<uint64_t>(env_.action_space().n);
      const Tensor action =
          explore ? tensor({static_cast<int64_t>(random_.next_below(choices))}) : predict(obs_);
      const VectorStep step = env_.step(action);
      buffer_->add(obs_, action, step);
      obs_ = step.obs;
      count(step);
      if (++since_target_ >= options_.target_update_interval) {
        detail::polyak_update(net_, target_, options_.tau);
        since_target_ = 0;
      }
    }
    if (progress_.steps > options_.learning_starts) train();
    if (progress && !progress(progress_)) return;
  }
}

void DQN::fields(detail::StateFields& f) {
  f.part("env", env_);
  f.draws("random", random_);
  f.dict("net", net_);
  f.dict("target", target_);
  f.dict("optimizer", optimizer_);
  f.part("buffer", *buffer_);
  f.observations("obs", obs_, 1, env_.observation_space().dims());
  f.number("since_target", since_target_);
}

void DQN::load_state_dict(const StateDict& state) {
  net_.load_state_dict(state);
  target_.load_state_dict(state);
}

}  // namespace tandem::rl
