// SPDX-License-Identifier: Apache-2.0
// A run that is resumed with other settings: what may change is applied from there on and recorded,
// what may not is refused by name before anything is written; one process writes at a time.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>

#include "tandem/base/files/folder.h"
#include "tandem/recipe/train.h"
#include "tandem/runs/append_file.h"
#include "tandem/runs/run_folder.h"
#include "tandem/runs/run_record.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"

namespace tandem::recipe {
namespace {

using Changes = std::vector<std::string>;

class Resuming : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(
        f / "r.yaml",
        "recipe: small\nseed: 1\ndata: {type: digits, batch: 256, val_part: 0}\n"
        "model: {type: mlp, hidden: [16]}\nloss: {type: cross_entropy}\n"
        "optim: {type: adam, lr: 3e-3}\n"
        "trainer: {epochs: 2, metrics: [accuracy], log_every: 1, report: false, compile: false}\n");
  }
  RecipeRun train(const std::string& run, const Changes& changes) const {
    return run_recipe(Recipe::load(f / "r.yaml", changes), Registry::standard(), f / run, false);
  }
  // The rates of steps, as logged.
  std::map<int64_t, double> rates(const std::string& run) const {
    std::map<int64_t, double> out;
    const runs::RunRecord r = runs::read_run(f / run);
    if (const runs::Series* s = r.find("lr"))
      for (size_t i = 0; i < s->x.size(); ++i) out[static_cast<int64_t>(s->x[i])] = s->y[i];
    return out;
  }
  std::string setting(const std::string& run, const std::string& key) const {
    const runs::RunRecord r = runs::read_run(f / run);
    const auto it = r.settings.find(key);
    return it == r.settings.end() ? "none" : it->second;
  }
  TempFolder f;
};

TEST_F(Resuming, WhatMayChangeIsAppliedAndRecorded) {
  const RecipeRun first = train("run", {"sched.type=constant"});
  const int64_t steps = first.fit.steps;
  const RecipeRun second =
      train("run", {"sched.type=constant", "trainer.epochs=3", "optim.lr=0.5"});
  EXPECT_EQ(second.fit.epochs, 3);
  for (const auto& [step, lr] : rates("run")) EXPECT_EQ(lr, step <= steps ? 3e-3 : 0.5) << step;
  EXPECT_EQ(setting("run", "optim.lr"), "0.5");
  const runs::RunRecord r = runs::read_run(f / "run");
  ASSERT_EQ(r.parts.size(), 2U);
  EXPECT_EQ(r.parts[1].step, steps);
  EXPECT_EQ(r.parts[1].epoch, 2);
  const std::string head = fmt::format(
      "# Trained in 2 parts:\n"
      "#   steps 0 to {0} (epochs 0 to 2): trainer.epochs 2, optim.lr 3e-3\n"
      "#   from step {0} on (from epoch 2 on): trainer.epochs 3, optim.lr 0.5\n",
      steps);
  for (const char* file : {"run/recipe.yaml", "run/config.yaml"})
    EXPECT_TRUE(read_file(f / file).starts_with(head)) << read_file(f / file);
  // A third part keeps the record of both, and the checkpoints have it too.
  train("run", {"sched.type=constant", "trainer.epochs=4", "optim.lr=1e-3"});
  EXPECT_EQ(runs::read_run(f / "run").parts.size(), 3U);
  const auto s = train::Checkpoints(f / "run/checkpoints").load_latest();
  const auto record = std::find_if(s->files.begin(), s->files.end(),
                                   [](const auto& file) { return file.first == "settings.jsonl"; });
  ASSERT_NE(record, s->files.end());
  EXPECT_EQ(runs::parse_settings(record->second).size(), 3U);
}

TEST_F(Resuming, EveryKeyThatMayChange) {
  const std::pair<const char*, const char*> cases[] = {
      {"optim.weight_decay", "0.1"},   {"optim.betas", "[0.8, 0.9]"},
      {"optim.eps", "1e-6"},           {"trainer.clip_norm", "0.5"},
      {"trainer.log_every", "2"},      {"trainer.compile", "true"},
      {"trainer.save_every", "1"},     {"trainer.keep", "1"},
      {"trainer.keep_best", "2"},      {"trainer.accumulate", "2"},
      {"trainer.max_steps", "20"},     {"trainer.val_every", "2"},
      {"trainer.on_nonfinite", "off"}, {"note", "later"},
      {"recipe", "renamed"},
  };
  for (const auto& [key, value] : cases) {
    const std::string run = std::string("run-") + key, change = fmt::format("{}={}", key, value);
    train(run, {"trainer.epochs=1"});
    ASSERT_EQ(error_of([&] { train(run, {"trainer.epochs=2", change}); }), "no error") << key;
    EXPECT_EQ(setting(run, key), value) << key;
    const runs::RunRecord r = runs::read_run(f / run);
    ASSERT_EQ(r.parts.size(), 2U) << key;
    EXPECT_TRUE(std::any_of(r.parts[1].changed.begin(), r.parts[1].changed.end(),
                            [&, k = key](const auto& c) { return c.key == k; }))
        << key;
  }
  // The optimizer has them.
  const auto s = train::Checkpoints(f / "run-optim.betas/checkpoints").load_latest();
  const auto number = [&](const char* name) {
    return s->optimizer.at(std::string("optimizer.param_groups.0.") + name).to_vector<double>()[0];
  };
  EXPECT_EQ(number("beta1"), 0.8);
  EXPECT_EQ(number("beta2"), 0.9);
}

TEST_F(Resuming, WhatMustStayIsRefusedByName) {
  train("run", {});
  struct Case {
    Changes changes;
    const char* want;
  };
  const Case cases[] = {
      {{"model.hidden=[32]"}, "model.hidden is [32], was [16]"},
      {{"data.batch=32"}, "data.batch is 32, was 256"},
      {{"data.type=mnist", "data.root=x"}, ""},  // fails before: there is no such folder
      {{"seed=2"}, "seed is 2, was 1"},
      {{"optim.type=sgd", "optim.lr=0.1"}, "optim.type is sgd, was adam"},
      {{"optim.amsgrad=true"}, "optim.amsgrad is true, was false"},
      {{"sched.type=cosine"}, "sched is {"},
      {{"loss.label_smoothing=0.1"}, "loss.label_smoothing is 0.1, was 0"},
      {{"trainer.metrics=[accuracy, top5_accuracy]"},
       "trainer.metrics is [accuracy, top5_accuracy], was [accuracy]"},
      {{"trainer.precision=bf16"}, "trainer.precision is bf16, was fp32"},
      {{"trainer.average={type: ema}"}, "trainer.average.type is ema, was none"},
      {{"trainer.early_stop={monitor: train/loss}"}, "trainer.early_stop"},
      {{"trainer.epochs=9", "model.hidden=[8]", "data.batch=8"},
       "data.batch is 8, was 256; model.hidden is [8], was [16]"},
  };
  const std::string config = read_file(f / "run/config.yaml"),
                    recipe = read_file(f / "run/recipe.yaml"),
                    metrics = read_file(f / "run/metrics.jsonl"),
                    env = read_file(f / "run/env.json");
  for (const Case& k : cases) {
    const std::string what = error_of([&] { train("run", k.changes); });
    EXPECT_NE(what.find(k.want), std::string::npos) << what;
    if (*k.want) {
      EXPECT_TRUE(
          what.starts_with(fmt::format("Value: {}: the run in '{}' cannot be resumed with other "
                                       "settings: ",
                                       f / "r.yaml", f / "run")))
          << what;
      EXPECT_TRUE(what.ends_with("or start another run in a new folder (--run).")) << what;
    }
    EXPECT_EQ(read_file(f / "run/config.yaml"), config) << k.want;
    EXPECT_EQ(read_file(f / "run/recipe.yaml"), recipe) << k.want;
    EXPECT_EQ(read_file(f / "run/metrics.jsonl"), metrics) << k.want;
    EXPECT_EQ(read_file(f / "run/env.json"), env) << k.want;
    EXPECT_EQ(read_file(f / "run/STATUS"), "done\n") << k.want;
  }
}

// A record that says "1 epoch" of two trained ones would be wrong.
TEST_F(Resuming, FewerThanAreTrainedAreRefused) {
  train("run", {"trainer.epochs=2"});
  const auto steps = runs::read_run(f / "run").parts.size();
  const std::string config = read_file(f / "run/config.yaml");
  for (const auto& [change, want] :
       {std::pair{"trainer.epochs=1", "trainer.epochs is 1, but the run in"},
        {"trainer.max_steps=1", "trainer.max_steps is 1, but the run in"}}) {
    const std::string what = error_of([&, c = change] { train("run", {"trainer.epochs=2", c}); });
    EXPECT_NE(what.find(want), std::string::npos) << what;
    EXPECT_NE(what.find("already. Ask for more"), std::string::npos) << what;
    EXPECT_EQ(runs::read_run(f / "run").parts.size(), steps);
    EXPECT_EQ(read_file(f / "run/config.yaml"), config);
  }
  EXPECT_EQ(error_of([&] { train("run", {"trainer.epochs=2"}); }), "no error");
}

TEST_F(Resuming, AnotherWritingIsNoChange) {
  train("run", {});
  const std::string config = read_file(f / "run/config.yaml");
  for (const Changes& same :
       {Changes{"optim.lr=0.003"}, Changes{"model.hidden=[ 16 ]"}, Changes{"trainer.clip_norm=0"},
        Changes{"optim.betas=[0.9, 0.9990]"}}) {
    ASSERT_EQ(error_of([&] { train("run", same); }), "no error") << same[0];
    EXPECT_EQ(runs::read_run(f / "run").parts.size(), 1U) << same[0];
  }
}

// The rates of a run that is made longer are those of one that was so long from its first step.
TEST_F(Resuming, SchedulesAreLaidOutAnew) {
  for (const char* sched : {"{type: cosine}", "{type: linear, warmup_steps: 3}", "{type: onecycle}",
                            "{type: polynomial, power: 2}", "{type: step, step_size: 2}",
                            "{type: noam}", "{type: cosine_restarts, t_0: 3, warmup_steps: 2}"}) {
    SCOPED_TRACE(sched);
    const std::string s = fmt::format("sched={}", sched), name(sched);
    train(name + "a", {s, "trainer.epochs=2"});
    train(name + "a", {s, "trainer.epochs=4", "optim.lr=0.01"});
    train(name + "b", {s, "trainer.epochs=4", "optim.lr=0.01"});
    const auto a = rates(name + "a"), b = rates(name + "b");
    ASSERT_EQ(a.size(), b.size());
    const auto half = static_cast<int64_t>(a.rbegin()->first / 2);
    for (const auto& [step, lr] : a) {
      EXPECT_TRUE(step <= half || std::abs(lr - b.at(step)) < 1e-12) << step;
    }
  }
}

TEST_F(Resuming, WhatAPlateauDidCountsForTheNewRate) {
  const std::string s =
      "sched={type: plateau, monitor: train/loss, patience: 1, factor: 0.5, min_delta: 100}";
  train("run", {s, "trainer.epochs=4"});
  const auto lr = [&] {
    return train::Checkpoints(f / "run/checkpoints")
        .load_latest()
        ->optimizer.at("optimizer.param_groups.0.lr")
        .to_vector<double>()[0];
  };
  const double before = lr();
  EXPECT_LT(before, 3e-3);
  train("run", {s, "trainer.epochs=5", "optim.lr=6e-3"});
  const runs::RunRecord r = runs::read_run(f / "run");
  EXPECT_NEAR(rates("run").at(r.parts.at(1).step + 1), 2 * before, 1e-12);
}

TEST_F(Resuming, LogsHaveNoStepTwice) {
  train("run", {"trainer.report=true"});
  const auto count = [&](const char* file, int64_t step) {
    const std::string text = read_file(f / file);
    size_t n = 0;
    const std::string line = fmt::format("{{\"step\":{},", step);
    for (size_t at = 0; (at = text.find(line, at)) != text.npos; ++at) ++n;
    return n;
  };
  const int64_t last = runs::read_run(f / "run").steps;
  // As a process leaves them that was killed before it saved: lines of steps that are repeated, and
  // a line without its end.
  for (const char* file : {"run/layers.jsonl", "run/metrics.jsonl"}) {
    runs::AppendFile log(f / file);
    for (int64_t step = last + 1; step < last + 9; ++step)
      log.append(fmt::format("{{\"step\":{},\"epoch\":2}}\n", step));
    log.append("{\"step\":");
  }
  runs::AppendFile(f / "run/parts.jsonl").append("{\"steps\":");
  train("run", {"trainer.report=true", "trainer.epochs=4"});
  for (int64_t step = 1; step <= 2 * last; ++step) {
    EXPECT_LE(count("run/layers.jsonl", step), 1U) << step;
    EXPECT_LE(count("run/metrics.jsonl", step), 2U) << step;  // a step's, and the epoch's end
  }
  EXPECT_EQ(count("run/layers.jsonl", 2 * last), 1U);
  EXPECT_EQ(count("run/layers.jsonl", last + 3), 0U);
  for (const std::string& line : {read_file(f / "run/parts.jsonl")})
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 2);
}

TEST_F(Resuming, TheSecondWriterIsRefusedByName) {
  train("run", {});
  const std::string metrics = read_file(f / "run/metrics.jsonl");
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const runs::RunLock lock(f / "run");
    if (::write(ends[1], "x", 1) == 1)
      for (;;) ::pause();
    ::_exit(1);
  }
  char byte;
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  const std::string what = error_of([&] { train("run", {"trainer.epochs=3"}); });
  EXPECT_TRUE(
      what.starts_with(fmt::format("Io: the run folder '{}' is in use by process {} on "
                                   "host '",
                                   f / "run", child)))
      << what;
  EXPECT_EQ(read_file(f / "run/metrics.jsonl"), metrics);
  ASSERT_TRUE(runs::run_writer(f / "run"));
  EXPECT_EQ(runs::run_writer(f / "run")->pid, child);
  ::unlink((f / "run/evaluation.json").c_str());
  EXPECT_EQ(evaluate(f / "run").empty(), false);  // reading needs no lock, and leaves nothing
  EXPECT_FALSE(file_exists(f / "run/evaluation.json"));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(runs::run_writer(f / "run"));
  EXPECT_EQ(train("run", {"trainer.epochs=3"}).fit.epochs, 3);
  EXPECT_FALSE(file_exists(f / "run/LOCK"));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(Resuming, AMistakeLeavesNoFolder) {
  for (const char* wrong : {"optim.lr=inf", "seed=-5"})
    EXPECT_NE(error_of([&] { train("run", {wrong}); }), "no error") << wrong;
  EXPECT_NE(error_of([&] { train("run", {"model.hiden=[3]"}); }), "no error");
  EXPECT_FALSE(file_exists(f / "run"));
}

// A part that failed leaves its batch and its text to be looked at; one that does not, none.
TEST_F(Resuming, WhatAFailedPartLeftGoes) {
  const Changes diverges{"optim.type=sgd", "optim.lr=1e38", "sched.type=constant"};
  EXPECT_NE(error_of([&] { train("run", diverges); }), "no error");
  EXPECT_TRUE(file_exists(f / "run/nonfinite.txt"));
  EXPECT_FALSE(holds_checkpoint(f / "run"));
  EXPECT_TRUE(holds_run(f / "run"));
  train("run", {});
  EXPECT_FALSE(file_exists(f / "run/nonfinite.txt"));
  EXPECT_FALSE(file_exists(f / "run/nonfinite_batch.safetensors"));
  EXPECT_TRUE(holds_checkpoint(f / "run"));
}

TEST_F(Resuming, AnAgentsRun) {
  write_file(f / "agent.yaml",
             "recipe: cart\nseed: 0\nagent: {type: a2c, env: CartPole-v1, steps: 200, "
             "eval_episodes: 2}\n");
  const auto run = [&](const Changes& changes) {
    run_recipe(Recipe::load(f / "agent.yaml", changes), Registry::standard(), f / "agent", false);
  };
  run({});
  EXPECT_NE(error_of([&] {
              run({"agent.steps=400", "agent.learning_rate=0.5"});
            }).find("agent.learning_rate is 0.5, was "),
            std::string::npos);
  ASSERT_EQ(error_of([&] { run({"agent.steps=400"}); }), "no error");
  const runs::RunRecord r = runs::read_run(f / "agent");
  ASSERT_EQ(r.parts.size(), 2U);
  EXPECT_EQ(r.parts[1].changed.at(0).key, "agent.steps");
  EXPECT_EQ(setting("agent", "agent.steps"), "400");
}

}  // namespace
}  // namespace tandem::recipe
