// SPDX-License-Identifier: Apache-2.0
// Agents that recipes may name under `agent:`: dqn, a2c, ppo, sac, with their options. The figure
// is the mean return of whole episodes that the trained policy has not seen. With `eval_every` the
// policy is tried on other episodes during the run and the best one is kept (Stable-Baselines3's
// EvalCallback).
#include "cli/agent_run_internal.h"
#include "cli/recipe_internal.h"
#include "tandem/rl/rl.h"

namespace tandem::cli {
namespace {

using train::Options;

std::vector<int64_t> sizes(Options& o, const std::vector<int64_t>& otherwise) {
  std::vector<int64_t> out;
  for (double v : o.numbers("net_arch", std::vector<double>(otherwise.begin(), otherwise.end())))
    out.push_back(static_cast<int64_t>(v));
  return out;
}

std::unique_ptr<rl::Agent> dqn(Options& o, const std::string& env, uint64_t seed) {
  rl::DQNOptions d;
  d.learning_rate = o.number("learning_rate", d.learning_rate);
  d.buffer_size = o.whole("buffer_size", d.buffer_size);
  d.learning_starts = o.whole("learning_starts", d.learning_starts);
  d.batch_size = o.whole("batch_size", d.batch_size);
  d.gamma = o.number("gamma", d.gamma);
  d.tau = o.number("tau", d.tau);
  d.train_freq = o.whole("train_freq", d.train_freq);
  d.gradient_steps = o.whole("gradient_steps", d.gradient_steps);
  d.target_update_interval = o.whole("target_update_interval", d.target_update_interval);
  d.exploration_fraction = o.number("exploration_fraction", d.exploration_fraction);
  d.exploration_initial_eps = o.number("exploration_initial_eps", d.exploration_initial_eps);
  d.exploration_final_eps = o.number("exploration_final_eps", d.exploration_final_eps);
  d.max_grad_norm = o.number("max_grad_norm", d.max_grad_norm);
  d.double_q = o.flag("double_q", d.double_q);
  d.dueling = o.flag("dueling", d.dueling);
  d.prioritized = o.flag("prioritized", d.prioritized);
  d.linear_schedule = o.flag("linear_schedule", d.linear_schedule);
  d.net_arch = sizes(o, d.net_arch);
  d.compile = o.flag("compile", d.compile);
  d.seed = seed;
  o.finish();
  return std::make_unique<rl::DQN>(env, d);
}

std::unique_ptr<rl::Agent> a2c(Options& o, const std::string& env, uint64_t seed) {
  rl::A2COptions a;
  a.learning_rate = o.number("learning_rate", a.learning_rate);
  a.n_envs = o.whole("n_envs", a.n_envs);
  a.n_steps = o.whole("n_steps", a.n_steps);
  a.gamma = o.number("gamma", a.gamma);
  a.gae_lambda = o.number("gae_lambda", a.gae_lambda);
  a.ent_coef = o.number("ent_coef", a.ent_coef);
  a.vf_coef = o.number("vf_coef", a.vf_coef);
  a.max_grad_norm = o.number("max_grad_norm", a.max_grad_norm);
  a.rms_prop_eps = o.number("rms_prop_eps", a.rms_prop_eps);
  a.normalize_advantage = o.flag("normalize_advantage", a.normalize_advantage);
  a.linear_schedule = o.flag("linear_schedule", a.linear_schedule);
  a.net_arch = sizes(o, a.net_arch);
  a.compile = o.flag("compile", a.compile);
  a.seed = seed;
  o.finish();
  return std::make_unique<rl::A2C>(env, a);
}

std::unique_ptr<rl::Agent> ppo(Options& o, const std::string& env, uint64_t seed) {
  rl::PPOOptions p;
  p.learning_rate = o.number("learning_rate", p.learning_rate);
  p.n_envs = o.whole("n_envs", p.n_envs);
  p.n_steps = o.whole("n_steps", p.n_steps);
  p.batch_size = o.whole("batch_size", p.batch_size);
  p.n_epochs = o.whole("n_epochs", p.n_epochs);
  p.gamma = o.number("gamma", p.gamma);
  p.gae_lambda = o.number("gae_lambda", p.gae_lambda);
  p.clip_range = o.number("clip_range", p.clip_range);
  p.ent_coef = o.number("ent_coef", p.ent_coef);
  p.vf_coef = o.number("vf_coef", p.vf_coef);
  p.max_grad_norm = o.number("max_grad_norm", p.max_grad_norm);
  p.normalize_advantage = o.flag("normalize_advantage", p.normalize_advantage);
  p.linear_schedule = o.flag("linear_schedule", p.linear_schedule);
  if (const double kl = o.number("target_kl", 0.0); kl > 0) p.target_kl = kl;
  p.net_arch = sizes(o, p.net_arch);
  p.compile = o.flag("compile", p.compile);
  p.seed = seed;
  o.finish();
  return std::make_unique<rl::PPO>(env, p);
}

std::unique_ptr<rl::Agent> sac(Options& o, const std::string& env, uint64_t seed) {
  rl::SACOptions s;
  s.learning_rate = o.number("learning_rate", s.learning_rate);
  s.buffer_size = o.whole("buffer_size", s.buffer_size);
  s.learning_starts = o.whole("learning_starts", s.learning_starts);
  s.batch_size = o.whole("batch_size", s.batch_size);
  s.tau = o.number("tau", s.tau);
  s.gamma = o.number("gamma", s.gamma);
  s.train_freq = o.whole("train_freq", s.train_freq);
  s.gradient_steps = o.whole("gradient_steps", s.gradient_steps);
  s.net_arch = sizes(o, s.net_arch);
  s.compile = o.flag("compile", s.compile);
  s.seed = seed;
  o.finish();
  return std::make_unique<rl::SAC>(env, s);
}

using Make = std::unique_ptr<rl::Agent> (*)(Options&, const std::string& env, uint64_t seed);

}  // namespace

void add_agent_components(train::Registry& r) {
  const std::pair<const char*, Make> kAgents[] = {
      {"dqn", dqn}, {"a2c", a2c}, {"ppo", ppo}, {"sac", sac}};
  for (const auto& entry : kAgents)
    r.agent[entry.first] = [make = entry.second](Options& o, const train::RecipeContext& c) {
      const AgentRunOptions options = agent_run_options(o);
      const std::unique_ptr<rl::Agent> agent = make(o, options.env, c.seed);
      return run_agent(*agent, options, c);
    };
}

}  // namespace tandem::cli
