// SPDX-License-Identifier: Apache-2.0
// `tandem launch`: recipes on several ranks meet their metric, write once, and resume on another
// number of ranks; a rank that dies ends the run.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "tests/cli/tool_helper.h"

namespace {

namespace fs = std::filesystem;
using namespace tandem::cli_test;

class Distributed : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("TANDEM_TOOL")) GTEST_SKIP() << "TANDEM_TOOL is not set";
    char name[] = "/tmp/tandem-distributed-XXXXXX";
    folder_ = mkdtemp(name);
    recipe_ = fs::absolute("recipes/digits-mlp.yaml").string();
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }
  Result train(int ranks, const std::string& more) const {
    return shell("cd " + folder_.string() + " && TANDEM_DIST_DEADLINE=5 " +
                 std::getenv("TANDEM_TOOL") + " launch -n " + std::to_string(ranks) +
                 " --no-prefix train " + recipe_ + " trainer.report=false " + more + " 2>&1");
  }
  // The one line of JSON that rank 0 prints.
  static nlohmann::json figures(const Result& r) {
    const size_t at = r.text.find('{');
    EXPECT_EQ(tandem::count(r.text, "\"folder\""), 1u) << r.text;
    return nlohmann::json::parse(at == r.text.npos ? "{}" : r.text.substr(at), nullptr, false);
  }
  fs::path folder_;
  std::string recipe_;
};

TEST_F(Distributed, ARecipeMeetsItsMetric) {
  const Result r = train(2, "--json trainer.report=true");
  ASSERT_EQ(r.code, 0) << r.text;
  const nlohmann::json j = figures(r);
  EXPECT_GE(j.value("test/accuracy", 0.0), 0.96) << r.text;
  EXPECT_EQ(j.value("steps", 0), 690);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "runs"), fs::directory_iterator()), 1);
  // What the ranks said to each other stands in the report, and its shares of the time in the log.
  const fs::path run = fs::directory_iterator(folder_ / "runs")->path();
  const std::string page = text_of(run / "report.html");
  EXPECT_TRUE(has(page, "Communication of rank 0")) << page.size();
  EXPECT_TRUE(has(page, "bucket 0")) << page.size();
  EXPECT_TRUE(has(page, "Ranks that came after rank 0")) << page.size();
  EXPECT_TRUE(has(text_of(run / "metrics.jsonl"), "system/communication_exposed"));
}

// The recipe itself asks for ranks.
TEST_F(Distributed, DevicesOfARecipeAreItsRanks) {
  const auto one = [&](const std::string& more) {
    return shell("cd " + folder_.string() + " && " + std::getenv("TANDEM_TOOL") + " train " +
                 recipe_ + " trainer.report=false --json " + more + " 2>&1");
  };
  const Result r = one("trainer.devices=2 trainer.strategy=zero1");
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_GE(figures(r).value("test/accuracy", 0.0), 0.96) << r.text;
  const fs::path run = fs::directory_iterator(folder_ / "runs")->path();
  EXPECT_TRUE(has(text_of(run / "metrics.jsonl"), "system/communication_exposed"));
  // A launcher's number counts.
  const Result launched = train(3, "--json trainer.devices=2 trainer.epochs=1");
  ASSERT_EQ(launched.code, 0) << launched.text;
  EXPECT_EQ(one("trainer.devices=-1 trainer.epochs=1").code, 0);  // the CPU is one
  for (const auto& [more, text] : {std::pair{"trainer.devices=0", "devices: expects at least 1"},
                                   {"trainer.devices=-2", "devices"},
                                   {"trainer.devices=2 trainer.strategy=none", "strategy none"}}) {
    const Result refused = one(more);
    EXPECT_EQ(refused.code, 1) << refused.text;
    EXPECT_TRUE(has(refused.text, text)) << refused.text;
  }
}

// Losses and metrics of an epoch are those of all ranks: near one rank's, whose dropout draws
// others.
TEST_F(Distributed, FiguresAreThoseOfAllRanks) {
  const std::string more = "--json trainer.epochs=2 model.dropout=0 data.val_part=0.2 --run ";
  for (const char* compile : {"true", "false"}) {
    const std::string how = std::string(" trainer.compile=") + compile;
    const nlohmann::json one = figures(train(1, more + "one-" + compile + how)),
                         two = figures(train(2, more + "two-" + compile + how)),
                         three = figures(train(3, more + "three-" + compile + how));
    for (const char* name : {"train/loss", "train/accuracy", "val/loss", "val/accuracy", "steps"}) {
      EXPECT_NEAR(two.value(name, -1.0), one.value(name, -2.0), 1e-5) << name << two << one;
      EXPECT_NEAR(three.value(name, -1.0), one.value(name, -2.0), 1e-5) << name << three << one;
    }
  }
}

TEST_F(Distributed, RunsResumeOnOtherNumbersOfRanks) {
  const std::string more = "--json model.dropout=0 sched.type=constant --run ";
  const nlohmann::json whole = figures(train(1, more + "whole trainer.epochs=3"));
  figures(train(2, more + "run trainer.epochs=1"));
  const nlohmann::json on = figures(train(3, more + "run trainer.epochs=2"));
  EXPECT_EQ(on.value("epochs", 0), 2);
  const nlohmann::json end = figures(train(1, more + "run trainer.epochs=3"));
  EXPECT_EQ(end.value("steps", 0), whole.value("steps", -1));
  EXPECT_NEAR(end.value("train/loss", -1.0), whole.value("train/loss", -2.0), 1e-5);
}

// Ranks that shard state give the figures of those that do not; a run may change its strategy
// and its number of ranks where it resumes.
TEST_F(Distributed, StrategiesShareOutState) {
  const std::string more =
      "--json trainer.epochs=2 model.dropout=0 sched.type=constant data.val_part=0.2 "
      "trainer.clip_norm=1 --run ";
  const nlohmann::json whole = figures(train(2, more + "ddp"));
  for (const std::string strategy : {"zero1", "zero2", "fsdp"}) {
    const std::string run =
        more + strategy + " trainer.report=true trainer.strategy=";  // reads weights
    figures(train(2, run + strategy + " trainer.max_steps=30"));
    const nlohmann::json parts = figures(train(2, run + strategy));
    for (const char* name : {"train/loss", "val/loss", "test/accuracy", "steps"}) {
      EXPECT_NEAR(parts.value(name, -1.0), whole.value(name, -2.0), 1e-5) << strategy << parts;
    }
  }
  const std::string run = more + "mixed trainer.strategy=";
  figures(train(3, run + "fsdp trainer.max_steps=10"));
  figures(train(1, run + "ddp trainer.max_steps=20"));
  const nlohmann::json mixed = figures(train(2, run + "zero2"));
  EXPECT_NEAR(mixed.value("train/loss", -1.0), whole.value("train/loss", -2.0), 1e-4) << mixed;
}

// Ranks that gather parameters for each pass validate in step, those without a batch of their own
// too.
TEST_F(Distributed, RanksWithoutABatchValidateWithTheOthers) {
  const std::string more =
      "--json trainer.epochs=1 trainer.max_steps=9 model.dropout=0 data.val_part=0.2 "
      "trainer.strategy=";
  for (const std::string batches : {"1", "4"}) {
    const auto of = [&](const std::string& strategy) {
      return figures(train(3, more + strategy + " trainer.limit_val_batches=" + batches +
                                  " --run " + strategy + batches));
    };
    const nlohmann::json ddp = of("ddp"), fsdp = of("fsdp");
    EXPECT_NEAR(fsdp.value("val/loss", -1.0), ddp.value("val/loss", -2.0), 1e-5) << fsdp << ddp;
    EXPECT_EQ(fsdp.value("val/accuracy", -1.0), ddp.value("val/accuracy", -2.0)) << fsdp << ddp;
  }
}

// Parameter servers: one worker gives the figures of one process to the bit, also where the run is
// resumed and with gradients of several batches; more workers give those of ddp.
TEST_F(Distributed, AParameterServerTrains) {
  const std::string
      more =
          "--json trainer.epochs=2 sched.type=constant data.val_part=0.2 trainer.clip_norm=1 "
          "trainer.accumulate=2 --run ",
      ps = " trainer.strategy=ps ";
  const nlohmann::json one = figures(train(1, more + "one"));
  const Result part = train(2, more + "ps trainer.max_steps=11" + ps);
  EXPECT_EQ(figures(part).value("steps", 0), 11) << part.text;
  const nlohmann::json resumed = figures(train(2, more + "ps" + ps + "trainer.ps_staleness=3"));
  for (const char* name : {"train/loss", "train/accuracy", "val/loss", "test/accuracy", "steps"}) {
    EXPECT_EQ(resumed.value(name, -1.0), one.value(name, -2.0)) << name << resumed << one;
  }
  // Checkpoints are those of one process: the run resumes with any number of servers, or none.
  const std::string more_servers = more + "servers ";
  figures(train(3, more_servers + "trainer.max_steps=5 trainer.ps_servers=2" + ps));
  figures(train(1, more_servers + "trainer.max_steps=9"));
  figures(train(4, more_servers + "trainer.max_steps=13 trainer.ps_servers=3" + ps));
  const Result end = train(3, more_servers + "trainer.ps_servers=2 trainer.ps_staleness=2" + ps);
  const nlohmann::json served = figures(end);
  for (const char* name : {"train/loss", "train/accuracy", "val/loss", "test/accuracy", "steps"}) {
    EXPECT_EQ(served.value(name, -1.0), one.value(name, -2.0)) << name << end.text << one;
  }
  const std::string plain = "--json trainer.epochs=2 model.dropout=0 data.val_part=0.2 --run ";
  const nlohmann::json alone = figures(train(1, plain + "alone")),
                       three = figures(train(3, plain + "three" + ps)),
                       four = figures(train(4, plain + "four trainer.ps_servers=2" + ps));
  for (const char* name : {"train/loss", "train/accuracy", "val/loss", "val/accuracy", "steps"}) {
    EXPECT_NEAR(three.value(name, -1.0), alone.value(name, -2.0), 1e-5) << name << three << alone;
    EXPECT_EQ(four.value(name, -1.0), three.value(name, -2.0)) << name << three << four;
  }
  for (const auto& [ranks, wrong, text] :
       {std::tuple{2, "", "2 parameter servers and a worker are 3 ranks, and there are 2"},
        {3, " trainer.average.type=ema",
         "an average of weights of which 2 servers have a share"}}) {
    const Result refused = train(ranks, "trainer.ps_servers=2" + ps + wrong);
    EXPECT_NE(refused.code, 0);
    EXPECT_TRUE(has(refused.text, text)) << refused.text;
  }
}

TEST_F(Distributed, StaleGradientsMeetTheMetric) {
  for (const int servers : {1, 2}) {
    const Result r = train(servers + 3,
                           "--json trainer.strategy=ps trainer.ps_staleness=4 "
                           "trainer.ps_servers=" +
                               std::to_string(servers));
    ASSERT_EQ(r.code, 0) << r.text;
    const nlohmann::json j = figures(r);
    EXPECT_GE(j.value("test/accuracy", 0.0), 0.96) << r.text;
    EXPECT_EQ(j.value("steps", 0), 690);
  }
}

// The job continues with a rank fewer: without a worker, or without one that was a server.
TEST_F(Distributed, AWorkerOrAServerIsLost) {
  struct Lost {
    int ranks, servers, culprit;
  };
  const std::string tool_path = std::getenv("TANDEM_TOOL");
  for (const auto& [ranks, servers, culprit] : {Lost{3, 1, 2}, {4, 2, 1}}) {
    const std::string folder = fmt::format("lost-{}", ranks),
                      run = fmt::format(
                          " train {} trainer.report=false --json trainer.strategy=ps "
                          "trainer.ps_staleness=2 trainer.ps_servers={} trainer.save_every=20 "
                          "--run {}",
                          recipe_, servers, folder);
    std::ofstream(folder_ / "rank.sh")
        << fmt::format("if [ $RANK = {} ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then\n  {}{} &\n",
                       culprit, tool_path, run) +
               "  while ! ls " + folder +
               "/checkpoints/*/state.json >/dev/null 2>&1; do sleep 0.02; "
               "done\n  kill -9 $!; wait $!; exit 137\nfi\nexec " +
               tool_path + run + "\n";
    const Result r =
        shell(fmt::format("cd {} && TANDEM_DIST_DEADLINE=5 {} launch -n {} --no-prefix "
                          "--max-restarts 1 --min-ranks {} sh rank.sh 2>&1",
                          folder_.string(), tool_path, ranks, ranks - 1));
    ASSERT_EQ(r.code, 0) << r.text;
    EXPECT_TRUE(has(r.text, fmt::format("rank {} (host ", culprit))) << r.text;
    EXPECT_TRUE(has(r.text, fmt::format("start 2 of 2 with {} ranks", ranks - 1))) << r.text;
    const nlohmann::json j = figures(r);
    EXPECT_GE(j.value("test/accuracy", 0.0), 0.96) << r.text;
    EXPECT_EQ(j.value("steps", 0), 690);
  }
}

// A loss that is not finite is explained by the ranks together: none waits for another, and the
// replay has the parameters.
TEST_F(Distributed, ShardedRunsExplainNonFiniteLosses) {
  const Result r = train(2, "--run nan trainer.strategy=fsdp optim.lr=1e30 trainer.report=false");
  EXPECT_NE(r.code, 0);
  EXPECT_TRUE(has(r.text, "The weights are those before this step")) << r.text;
  EXPECT_FALSE(has(r.text, "DataParallel is gone")) << r.text;
}

// A signal to the launcher ends the job, though a rank has failed before it.
TEST_F(Distributed, SignalsEndRestarts) {
  const std::string tool_path = std::getenv("TANDEM_TOOL");
  const Result r = shell(tool_path +
                         " launch -n 2 --max-restarts 2 --grace 1 sh -c '[ $RANK = 1 ] || exit 3; "
                         "sleep 9' 2>&1 & p=$!; sleep 1; kill -TERM $p; wait $p");
  EXPECT_EQ(r.code, 3) << r.text;
  EXPECT_FALSE(has(r.text, "start 2")) << r.text;
}

// A job that is restarted finds the run that it began, done or not, and no other one.
TEST_F(Distributed, RestartsFindTheirOwnRun) {
  const std::string tool_path = std::getenv("TANDEM_TOOL"), cd = "cd " + folder_.string() + " && ",
                    run = tool_path + " train " + recipe_ +
                          " trainer.report=false --json trainer.max_steps=2 ";
  ASSERT_EQ(shell(cd + run + "2>&1").code, 0);
  std::filesystem::path other;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "runs"))
    other = entry.path();
  std::ofstream(other / "STATUS") << "failed\n";
  std::ofstream(folder_ / "rank.sh") << run + "\n[ $TORCHELASTIC_RESTART_COUNT = 1 ]\n";
  const Result r = shell(cd + tool_path + " launch -n 1 --max-restarts 1 sh rank.sh 2>&1");
  EXPECT_EQ(r.code, 0) << r.text;
  int runs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "runs")) {
    ++runs;
    const size_t parts = entry.path() == other ? 1 : 2;
    EXPECT_EQ(tandem::count(text_of(entry.path() / "parts.jsonl"), "\"steps\""), parts);
  }
  EXPECT_EQ(runs, 2) << r.text;
}

// A rank is killed in the middle: the job starts again, and the run ends as one without that.
TEST_F(Distributed, StartsAgainAfterAKill) {
  const std::string run =
      " train " + recipe_ +
      " trainer.report=false --json trainer.epochs=8 trainer.save_every=20 --run ";
  const std::string tool_path = std::getenv("TANDEM_TOOL"),
                    start = "cd " + folder_.string() + " && TANDEM_DIST_DEADLINE=5 " + tool_path +
                            " launch -n 2 --no-prefix ";
  const nlohmann::json whole = figures(shell(start + run.substr(1) + "whole 2>&1"));
  // Rank 1 of the first start dies when there is a checkpoint.
  std::ofstream(folder_ / "rank.sh")
      << "if [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then\n  " + tool_path + run +
             "killed &\n  while ! ls killed/checkpoints/*/state.json >/dev/null 2>&1; do "
             "sleep 0.02; done\n  kill -9 $!; wait $!; exit 137\nfi\nexec " +
             tool_path + run + "killed\n";
  const Result again = shell(start + "--max-restarts 1 sh rank.sh 2>&1");
  ASSERT_EQ(again.code, 0) << again.text;
  EXPECT_TRUE(has(again.text, "start 2 of 2 with 2 ranks")) << again.text;
  // Two processes wrote the run, and none all of it.
  const std::string parts = text_of(folder_ / "killed" / "parts.jsonl");
  EXPECT_EQ(tandem::count(parts, "\"steps\""), 2u) << parts;
  EXPECT_FALSE(has(parts, "\"steps\":" + std::to_string(whole.value("steps", 0)))) << parts;
  const nlohmann::json j = figures(again);
  for (const char* name : {"train/loss", "test/accuracy", "steps"}) {
    EXPECT_EQ(j.value(name, -1.0), whole.value(name, -2.0)) << name << again.text;
  }
  // Without the rank that failed; not again where none is left to start with.
  const Result fewer = shell(tool_path +
                             " launch -n 3 --max-restarts 5 --min-ranks 2 --grace 1 sh -c "
                             "'[ $WORLD_SIZE = 2 ] || exit 3' 2>&1");
  EXPECT_EQ(fewer.code, 0) << fewer.text;
  const Result none = shell(tool_path + " launch -n 1 --max-restarts 2 sh -c 'exit 4' 2>&1");
  EXPECT_EQ(none.code, 4);
  EXPECT_TRUE(has(none.text, "start 3 of 3")) << none.text;
  EXPECT_FALSE(has(none.text, "start 4")) << none.text;
  const Result usage = shell(tool_path + " launch -n 1 --max-restarts 2 sh -c 'exit 2' 2>&1");
  EXPECT_FALSE(has(usage.text, "start 2")) << usage.text;
}

TEST_F(Distributed, WhatCannotBeSaysSo) {
  const std::string tool_path = std::getenv("TANDEM_TOOL");
  EXPECT_EQ(shell(tool_path + " launch -n 2 2>&1").code, 2);
  EXPECT_EQ(shell(tool_path + " launch true 2>&1").code, 2);
  const Result none = shell(tool_path + " launch -n 2 no-such-program 2>&1");
  EXPECT_EQ(none.code, 1);
  EXPECT_TRUE(has(none.text, "'no-such-program' cannot be started")) << none.text;
  const Result failed =
      shell(tool_path + " launch -n 3 --grace 1 sh -c '[ $RANK = 1 ] && exit 4; sleep 60' 2>&1");
  EXPECT_EQ(failed.code, 4);
  EXPECT_TRUE(has(failed.text, "tandem launch: rank 1 (process ")) << failed.text;
}

}  // namespace
