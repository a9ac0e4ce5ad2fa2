// SPDX-License-Identifier: Apache-2.0
#include "tandem/rl/sac.h"

#include <cmath>

#include "tandem/compile/compile.h"
#include "tandem/graph/rng.h"
#include "tandem/ops/ops.h"
#include "tandem/rl/gaussian_internal.h"
#include "tandem/rl/state_fields_internal.h"

namespace tandem::rl {
namespace {

Tensor range_of(const Space& space, float sign) {
  std::vector<float> out;
  for (size_t i = 0; i < space.low.size(); ++i)
    out.push_back((space.high[i] + sign * space.low[i]) / 2);
  return tensor(out);
}

int64_t numbers_of(const VectorEnv& env) {
  TD_CHECK(!env.action_space().discrete(), Value,
           "SAC expects an environment that takes numbers; {} has choices\nUse DQN or PPO.",
           env.name());
  return env.action_space().dims();
}

// Each net starts from its own draws.
nn::Sequential net(uint64_t seed, uint64_t which, int64_t in, const std::vector<int64_t>& hidden,
                   int64_t out) {
  GeneratorGuard generator({seed, which << 16});
  return detail::mlp(in, hidden, out, detail::Activation::relu);
}

std::vector<Param> concatenated(std::vector<Param> a, const std::vector<Param>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

SAC::SAC(std::string_view env, SACOptions options)
    : options_(std::move(options)),
      env_(env, 1, options_.seed),
      dims_(numbers_of(env_)),
      middle_(range_of(env_.action_space(), 1)),
      half_(range_of(env_.action_space(), -1)),
      random_(options_.seed, 1),
      actor_(net(options_.seed, 0, env_.observation_space().dims(), options_.net_arch, 2 * dims_)),
      q1_(net(options_.seed, 1, env_.observation_space().dims() + dims_, options_.net_arch, 1)),
      q2_(net(options_.seed, 2, env_.observation_space().dims() + dims_, options_.net_arch, 1)),
      target1_(nn::clone(q1_)),
      target2_(nn::clone(q2_)),
      log_alpha_(tensor(std::log(options_.ent_coef.value_or(1.0)), DType::f32)),
      actor_optimizer_(actor_.parameters(), {.lr = options_.learning_rate}),
      critic_optimizer_(concatenated(q1_.parameters(), q2_.parameters()),
                        {.lr = options_.learning_rate}),
      alpha_optimizer_({log_alpha_}, {.lr = options_.learning_rate}),
      buffer_(options_.buffer_size, env_.observation_space(), env_.action_space()) {
  auto body = [this](const Tensor& obs, const Tensor& actions, const Tensor& rewards,
                     const Tensor& next_obs, const Tensor& dones, const Tensor& noise,
                     const Tensor& next_noise) {
    return update({obs, actions, rewards, next_obs, dones, {}, {}}, noise, next_noise);
  };
  if (options_.compile)
    step_ = tandem::compile(body, {.name = "SAC"});
  else
    step_ = body;
}

double SAC::ent_coef() const { return std::exp(log_alpha_.value().item<float>()); }

Tensor SAC::scaled(const Tensor& actions) const { return actions * half_ + middle_; }

Tensor SAC::noise(int64_t n) {
  std::vector<float> v(static_cast<size_t>(n * dims_));
  for (float& x : v) x = random_.next_normal();
  return detail::floats(v, {n, dims_});
}

SAC::Drawn SAC::draw(const Tensor& obs, const Tensor& noise) {
  const Tensor out = actor_(obs);
  const Tensor mean = out.narrow(1, 0, dims_);
  const Tensor log_std = out.narrow(1, dims_, dims_).clamp(-20.0, 2.0);
  const Tensor u = mean + noise * log_std.exp();
  // log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), which stays accurate near 0.
  const Tensor squash = 2 * (0.69314718055994530942 - u - softplus(-2 * u));
  const Tensor log_prob = (gaussian_log_density(noise, log_std) - squash).sum({1});
  return {u.tanh(), log_prob};
}

Tensor SAC::predict(const Tensor& obs, bool deterministic) {
  NoGradGuard no_grad;
  if (deterministic) return scaled(actor_(obs).narrow(1, 0, dims_).tanh());
  return scaled(draw(obs, noise(obs.size(0))).actions);
}

// One step of critics, policy and entropy weight; actions of `b` are in -1 .. 1.
Tensor SAC::update(const Transitions& b, const Tensor& noise, const Tensor& next_noise) {
  const Tensor alpha = log_alpha_.value().detach().exp();
  Tensor goal;
  {
    NoGradGuard no_grad;
    const Drawn next = draw(b.next_obs, next_noise);
    const Tensor in = cat({b.next_obs, next.actions}, 1);
    const Tensor value = minimum(target1_(in), target2_(in)).squeeze(1) - alpha * next.log_probs;
    goal = b.rewards + (1 - b.dones) * options_.gamma * value;
  }
  critic_optimizer_.zero_grad();
  const Tensor in = cat({b.obs, b.actions}, 1);
  const Tensor critic_loss =
      0.5 * (mse_loss(q1_(in).squeeze(1), goal) + mse_loss(q2_(in).squeeze(1), goal));
  critic_loss.backward();
  critic_optimizer_.step();

  actor_optimizer_.zero_grad();
  const Drawn now = draw(b.obs, noise);
  const Tensor with = cat({b.obs, now.actions}, 1);
  const Tensor value = minimum(q1_(with), q2_(with)).squeeze(1);
  const Tensor actor_loss = (alpha * now.log_probs - value).mean();
  actor_loss.backward();
  actor_optimizer_.step();

  if (!options_.ent_coef) {
    alpha_optimizer_.zero_grad();
    const double goal_entropy = options_.target_entropy.value_or(-static_cast<double>(dims_));
    const Tensor loss = -(log_alpha_.value() * (now.log_probs.detach() + goal_entropy)).mean();
    loss.backward();
    alpha_optimizer_.step();
  }
  detail::polyak_update(q1_, target1_, options_.tau);
  detail::polyak_update(q2_, target2_, options_.tau);
  return critic_loss.detach();
}

void SAC::run(const ProgressFn& progress) {
  if (!obs_.defined()) obs_ = env_.reset();
  while (progress_.steps < end_) {
    for (int64_t i = 0; i < options_.train_freq && progress_.steps < end_; ++i) {
      NoGradGuard no_grad;
      Tensor action;  // in -1 .. 1, the critics' input
      if (progress_.steps < options_.learning_starts) {
        std::vector<float> v(static_cast<size_t>(dims_));
        for (float& x : v) x = 2 * random_.next_uniform() - 1;
        action = detail::floats(v, {1, dims_});
      } else {
        action = draw(obs_, noise(1)).actions;
      }
      const VectorStep step = env_.step(scaled(action));
      buffer_.add(obs_, action, step);
      obs_ = step.obs;
      count(step);
    }
    if (progress_.steps > options_.learning_starts)
      for (int64_t i = 0; i < options_.gradient_steps; ++i) {
        const Transitions b = buffer_.sample(options_.batch_size, random_);
        const Tensor a = noise(options_.batch_size), c = noise(options_.batch_size);
        const Tensor loss = step_(b.obs, b.actions, b.rewards, b.next_obs, b.dones, a, c);
        if (i + 1 == options_.gradient_steps) progress_.loss = loss.item<float>();
      }
    if (progress && !progress(progress_)) return;
  }
}

void SAC::fields(detail::StateFields& f) {
  f.part("env", env_);
  f.draws("random", random_);
  f.dict("actor", actor_);
  f.dict("q1", q1_);
  f.dict("q2", q2_);
  f.dict("target1", target1_);
  f.dict("target2", target2_);
  f.param("log_alpha", log_alpha_);
  f.dict("actor_optimizer", actor_optimizer_);
  f.dict("critic_optimizer", critic_optimizer_);
  f.dict("alpha_optimizer", alpha_optimizer_);
  f.part("buffer", buffer_);
  f.observations("obs", obs_, 1, env_.observation_space().dims());
}

StateDict SAC::state_dict() const {
  StateDict out;
  detail::add_state(out, "actor.", actor_.state_dict());
  detail::add_state(out, "q1.", q1_.state_dict());
  detail::add_state(out, "q2.", q2_.state_dict());
  detail::add_state(out, "target1.", target1_.state_dict());
  detail::add_state(out, "target2.", target2_.state_dict());
  out["log_alpha"] = log_alpha_.value();
  return out;
}

void SAC::load_state_dict(const StateDict& state) {
  const Tensor& alpha = state.at("log_alpha");
  actor_.load_state_dict(detail::state_under(state, "actor."));
  q1_.load_state_dict(detail::state_under(state, "q1."));
  q2_.load_state_dict(detail::state_under(state, "q2."));
  target1_.load_state_dict(detail::state_under(state, "target1."));
  target2_.load_state_dict(detail::state_under(state, "target2."));
  log_alpha_.assign_(alpha);
}

}  // namespace tandem::rl
