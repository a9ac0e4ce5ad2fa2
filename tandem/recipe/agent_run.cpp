// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/agent_run_internal.h"

#include <cmath>

#include "tandem/base/clock.h"
#include "tandem/base/failures.h"
#include "tandem/base/files/folder.h"
#include "tandem/io/safetensors.h"
#include "tandem/runs/progress.h"
#include "tandem/runs/resources.h"
#include "tandem/runs/run_folder.h"
#include "tandem/runs/run_record.h"

namespace tandem::recipe {
namespace {

/// Seed of the episodes that choose a policy; the final evaluation uses evaluate_policy's own.
constexpr uint64_t kTrySeed = 77'000;
constexpr int64_t kLogEvery = 1000;

class AgentRun {
 public:
  AgentRun(rl::Agent& agent, const AgentRunOptions& o, const RecipeContext& c)
      : agent_(agent), o_(o), c_(c), show_(!c.progress) {
    if (o.preempt.signal != 0 || !o.preempt.url.empty()) notice_.emplace(o.preempt);
  }

  RecipeRun go() {
    try {
      try {
        open();
        train();
        evaluate();
      } catch (...) {
        rethrow_as_error("training the agent");
      }
    } catch (const std::exception& e) {
      if (folder_) {
        close("failed");
        write_file(c_.folder + "/error.txt", std::string(e.what()) + "\n");
      }
      throw;
    }
    return std::move(run_);
  }

 private:
  // ---- state

  train::RunParts parts() {
    return {
        .extra = {{"agent", [this] { return agent_.training_state(); },
                   [this](const StateDict& s) { agent_.load_training_state(s); }},
                  {"best", [this] { return best_; }, [this](const StateDict& s) { best_ = s; }}}};
  }

  void open() {
    if (c_.folder.empty()) return;
    lock_.emplace(c_.folder);
    checkpoints_ = std::make_unique<train::Checkpoints>(
        c_.folder + "/checkpoints", train::CheckpointOptions{.keep_last = o_.keep, .keep_best = 0});
    checkpoints_->claim();
    resume();  // before anything is written into the folder: it may be another run's
    folder_ = std::make_unique<runs::RunFolder>(c_.folder, files());
    // Drop what an interrupted run logged after its checkpoint, and its last line.
    folder_->truncate(std::min(first_, o_.steps - 1));
  }

  void resume() {
    const std::optional<train::Snapshot> s = checkpoints_->load_latest();
    if (!s) return;
    if (c_.resume.before) c_.resume.before(*s);
    io::Json more;
    try {
      more = train::restore(parts(), *s);
    } catch (const Error& e) {
      throw Error(
          e.kind(),
          fmt::format("'{}' holds a run of another agent: {}", checkpoints_->folder(), e.message()),
          "Resume it with the recipe in the folder, or use another folder.", e.op(), e.loc(),
          e.layer());
    }
    resumed_ = true;
    first_ = saved_ = s->step;
    logged_ = io::whole_of(more.find("logged"));
    tried_ = io::whole_of(more.find("tried"));
    best_return_ = io::number_of(more.find("best"));
    if (const io::Json* logs = more.find("logs"); logs && logs->as_object())
      for (const auto& [name, value] : *logs->as_object())
        run_.fit.logs.emplace_back(name, io::number_of(&value));
    const std::string changed = c_.resume.after ? c_.resume.after() : "";
    show_.keep(fmt::format("resumed at step {} of '{}'{}", s->step, checkpoints_->folder(),
                           changed.empty() ? "" : ", from here on with " + changed));
  }

  std::vector<std::pair<std::string, std::string>> files() const {
    return c_.files ? c_.files() : std::vector<std::pair<std::string, std::string>>();
  }

  void save() {
    io::Json::Object logs;
    for (const auto& [name, value] : run_.fit.logs) logs.emplace_back(name, value);
    saved_ = agent_.progress().steps;
    train::Snapshot s = train::snapshot(parts(), saved_,
                                        io::Json::Object{{"logged", logged_},
                                                         {"tried", tried_},
                                                         {"best", best_return_},
                                                         {"logs", std::move(logs)}});
    s.model = agent_.state_dict();
    s.files = files();
    checkpoints_->save(std::move(s));
  }

  // ---- the run

  void train() {
    const auto after = [this](const rl::Progress& p) { return after_rollout(p); };
    if (resumed_)
      agent_.resume(after, o_.steps);
    else
      agent_.learn(o_.steps, after);
    if (checkpoints_) checkpoints_->wait();
    train::say_if_late();
    if (!best_.empty()) agent_.load_state_dict(best_);
    run_.fit.steps = agent_.progress().steps;
    run_.fit.preempted = run_.fit.interrupted && train::preempted();
    run_.fit.reason = run_.fit.interrupted ? train::stop_reason() : "done";
    run_.fit.seconds = seconds();
  }

  bool after_rollout(const rl::Progress& p) {
    const bool end = p.steps >= o_.steps;
    show_.show(fmt::format("step {}/{}  {} episodes  return {:.1f}  loss {:.4f}", p.steps, o_.steps,
                           p.episodes, p.mean_reward, p.loss));
    run_.fit.logs = {{"train/return", p.mean_reward}, {"train/loss", p.loss}};
    if (folder_ && !end && p.steps - logged_ >= kLogEvery) {
      folder_->log(p.steps, 0, run_.fit.logs);
      logged_ = p.steps;
    }
    if (o_.eval_every > 0 && (p.steps - tried_ >= o_.eval_every || end)) try_policy(p.steps);
    run_.fit.interrupted = train::stop_requested();
    if (checkpoints_ &&
        (end || run_.fit.interrupted || (o_.save_every > 0 && p.steps - saved_ >= o_.save_every)))
      save();
    return !run_.fit.interrupted;
  }

  void try_policy(int64_t step) {
    tried_ = step;
    const double got =
        rl::evaluate_policy(agent_, o_.env, o_.eval_tries, true, kTrySeed).mean_reward;
    run_.fit.logs.emplace_back("val/return", got);
    if (!best_.empty() && got < best_return_) return;
    best_return_ = got;
    best_ = agent_.state_dict();
  }

  void evaluate() {
    if (!run_.fit.interrupted) {
      const rl::Evaluation e = rl::evaluate_policy(agent_, o_.env, o_.eval_episodes);
      run_.test = {{"test/return", e.mean_reward}, {"test/return_std", e.std_reward}};
    }
    if (!folder_) return;
    if (!run_.fit.interrupted) {
      train::Logs last = run_.fit.logs;
      last.insert(last.end(), run_.test.begin(), run_.test.end());
      folder_->log(run_.fit.steps, 0, last);
    }
    tandem::save(agent_.state_dict(), c_.folder + "/model.safetensors");
    close(run_.fit.preempted ? "preempted" : run_.fit.interrupted ? "interrupted" : "done");
    if (!run_.fit.preempted)
      write_file(c_.folder + "/report.html", runs::run_report(runs::read_run(c_.folder)));
  }

  // What this process did of the run.
  void close(const std::string& status) {
    const runs::Energy e = energy_.read();
    const int64_t steps = agent_.progress().steps - first_;
    folder_->part({{"steps", steps},
                   {"seconds", seconds()},
                   {"samples", steps},
                   {"cpu_seconds", runs::process_seconds() - cpu_start_},
                   {"peak_memory_mb", static_cast<double>(runs::peak_resident_bytes()) / 1e6},
                   {"joules", e.joules},
                   {"energy", e.source}});
    folder_->finish(status);
  }

  double seconds() const { return seconds_since(start_); }

  rl::Agent& agent_;
  const AgentRunOptions& o_;
  const RecipeContext& c_;
  RecipeRun run_;
  train::StopGuard signals_;
  std::optional<train::PreemptGuard> notice_;
  runs::Progress show_;
  std::optional<runs::RunLock> lock_;
  std::unique_ptr<train::Checkpoints> checkpoints_;
  std::unique_ptr<runs::RunFolder> folder_;
  StateDict best_;  ///< the best policy tried, with its return
  double best_return_ = 0;
  int64_t first_ = 0;  ///< steps where this process began
  int64_t saved_ = 0, logged_ = 0, tried_ = 0;
  bool resumed_ = false;
  runs::EnergyMeter energy_;
  double cpu_start_ = runs::process_seconds();
  Clock::time_point start_ = Clock::now();
};

}  // namespace

RecipeRun run_agent(rl::Agent& agent, const AgentRunOptions& options,
                    const RecipeContext& context) {
  return AgentRun(agent, options, context).go();
}

}  // namespace tandem::recipe
