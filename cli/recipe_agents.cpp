// SPDX-License-Identifier: Apache-2.0
// Agents that recipes may name under `agent:`: dqn, a2c, ppo, sac. The figure is the mean return
// of whole episodes that the trained policy has not seen. With `eval_every` the policy is tried on
// other episodes during the run and the best one is kept (Stable-Baselines3's EvalCallback).
#include <chrono>
#include <cmath>

#include "cli/recipe_internal.h"
#include "tandem/io/safetensors.h"
#include "tandem/rl/rl.h"
#include "tandem/train/progress.h"
#include "tandem/train/resources.h"
#include "tandem/train/run_folder.h"
#include "tandem/train/run_record.h"
#include "tandem/train/run_state.h"

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

/// Of the episodes that choose a policy; those that judge it have evaluate_policy's own.
constexpr uint64_t kTrySeed = 77'000;

using Make = std::unique_ptr<rl::Agent> (*)(Options&, const std::string& env, uint64_t seed);

/// A run's folder with what this process did of it.
struct AgentFolder {
  train::RunFolder files;
  std::string path;
  train::EnergyMeter energy;
  double cpu_start = train::process_seconds();

  explicit AgentFolder(const train::RecipeContext& c)
      : files((say_anew(c.folder), c.folder), c.files), path(c.folder) {
    files.truncate(-1);
  }
  // Memory of past steps, environments and draws are not saved: there is nothing to go on from.
  static void say_anew(const std::string& folder) {
    if (file_exists(folder + "/metrics.jsonl"))
      fmt::print(stderr,
                 "'{}' holds a run: runs of agents do not go on, this one begins anew in its "
                 "place\n",
                 folder);
  }
  void end(int64_t steps, double seconds, const std::string& status) {
    const train::Energy e = energy.read();
    files.part({{"steps", steps},
                {"seconds", seconds},
                {"samples", steps},
                {"cpu_seconds", train::process_seconds() - cpu_start},
                {"peak_memory_mb", static_cast<double>(train::peak_resident_bytes()) / 1e6},
                {"joules", e.joules},
                {"energy", e.source}});
    files.finish(status);
    write_file(path + "/report.html", train::run_report(train::read_run(path)));
  }
};

/// Train, judge, leave the folder's files. A run of an agent begins anew each time.
train::RecipeRun run_agent(Make make, Options& o, const train::RecipeContext& c) {
  using Clock = std::chrono::steady_clock;
  const std::string env = o.text("env");
  const int64_t steps = o.whole("steps"), episodes = o.whole("eval_episodes", 100);
  const int64_t every = o.whole("eval_every", 0), tries = o.whole("eval_tries", 20);
  if (steps < 1) o.fail("steps", "wants 1 or more");
  if (every < 0 || tries < 1) o.fail("eval_every", "wants 0 or more, and eval_tries 1 or more");
  const std::unique_ptr<rl::Agent> agent = make(o, env, c.seed);
  std::unique_ptr<AgentFolder> folder;
  if (!c.folder.empty()) folder = std::make_unique<AgentFolder>(c);
  train::RecipeRun run;
  train::StopGuard signals;
  train::Progress show(!c.progress);
  const auto begin = Clock::now();
  int64_t logged = 0, tried = 0;
  double best = 0;
  StateDict kept;
  agent->learn(steps, [&](const rl::Progress& p) {
    show.show(fmt::format("step {}/{}  {} episodes  return {:.1f}  loss {:.4f}", p.steps, steps,
                          p.episodes, p.mean_reward, p.loss));
    run.fit.logs = {{"train/return", p.mean_reward}, {"train/loss", p.loss}};
    if (folder && p.steps - logged >= 1000) {
      folder->files.log(p.steps, 0, run.fit.logs);
      logged = p.steps;
    }
    if (every > 0 && (p.steps - tried >= every || p.steps >= steps)) {
      tried = p.steps;
      const double got = rl::evaluate_policy(*agent, env, tries, true, kTrySeed).mean_reward;
      run.fit.logs.emplace_back("val/return", got);
      if (kept.empty() || got >= best) {
        best = got;
        kept = agent->state_dict();
      }
    }
    return !train::stop_requested();
  });
  if (!kept.empty()) agent->load_state_dict(kept);
  run.fit.steps = agent->progress().steps;
  run.fit.interrupted = train::stop_requested();
  run.fit.reason = run.fit.interrupted ? "asked to stop" : "done";
  run.fit.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (!run.fit.interrupted) {
    const rl::Evaluation e = rl::evaluate_policy(*agent, env, episodes);
    run.test = {{"test/return", e.mean_reward}, {"test/return_std", e.std_reward}};
  }
  if (folder) {
    train::Logs last = run.fit.logs;
    last.insert(last.end(), run.test.begin(), run.test.end());
    folder->files.log(run.fit.steps, 0, last);
    save(agent->state_dict(), c.folder + "/model.safetensors");
    folder->end(run.fit.steps, run.fit.seconds, run.fit.interrupted ? "interrupted" : "done");
  }
  return run;
}

}  // namespace

void add_agent_components(train::Registry& r) {
  const std::pair<const char*, Make> kAgents[] = {
      {"dqn", dqn}, {"a2c", a2c}, {"ppo", ppo}, {"sac", sac}};
  for (const auto& entry : kAgents)
    r.agent[entry.first] = [make = entry.second](Options& o, const train::RecipeContext& c) {
      return run_agent(make, o, c);
    };
}

}  // namespace tandem::cli
