// SPDX-License-Identifier: Apache-2.0
// Agent runs through the tool: what they leave behind, and that a run which was stopped or killed
// resumes with the bits of an undisturbed one.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/tool_helper.h"

namespace {

namespace fs = std::filesystem;
using namespace tandem::cli_test;
using nlohmann::json;

struct Row {
  const char *name, *agent;
};
constexpr Row kRows[] = {
    {"ppo",
     "{type: ppo, env: CartPole-v1, steps: 12000, n_envs: 4, n_steps: 32, batch_size: 64, "
     "n_epochs: 2, linear_schedule: true, net_arch: [16], eval_every: 3000, eval_tries: 5, "
     "eval_episodes: 5, save_every: 1000}"},
    {"dqn",
     "{type: dqn, env: CartPole-v1, steps: 8000, buffer_size: 3000, learning_starts: 100, "
     "prioritized: true, exploration_fraction: 0.5, net_arch: [16], eval_every: 2000, eval_tries: "
     "5, eval_episodes: 5, save_every: 700, keep: 2}"},
};

class Agents : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("TANDEM_TOOL")) GTEST_SKIP() << "TANDEM_TOOL is not set";
    char name[] = "/tmp/tandem-agents-XXXXXX";
    folder_ = mkdtemp(name);
    for (const Row& row : kRows)
      std::ofstream(recipe(row)) << "recipe: " << row.name << "\nseed: 1\nagent: " << row.agent;
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }
  std::string recipe(const Row& row) const { return folder_ / (std::string(row.name) + ".yaml"); }
  std::string at(const std::string& name) const { return folder_ / name; }
  std::string line(const Row& row, const std::string& run, const std::string& more = "") const {
    return "train " + recipe(row) + " --quiet --run " + run + " " + more;
  }
  // Start it and send `signal` as soon as `when` holds (or it has ended); its exit code comes
  // last. It stands still while the shell looks, so that it cannot end in between on a busy
  // machine.
  Result stopped(const Row& row, const std::string& run, const char* signal,
                 const std::string& when, const std::string& more = "") const {
    return shell(
        std::string(std::getenv("TANDEM_TOOL")) + " " + line(row, run, more) +
        " 2>&1 & pid=$!; until kill -STOP $pid 2>/dev/null; " + when +
        " || ! kill -0 $pid 2>/dev/null; do kill -CONT $pid 2>/dev/null; sleep 0.01; done; "
        "kill -" +
        signal + " $pid; kill -CONT $pid 2>/dev/null; wait $pid; echo code $?");
  }
  // Whether there is a checkpoint of at least `steps` steps.
  static std::string checkpoint(const std::string& run, int64_t steps) {
    return "[ -n \"$(ls " + run +
           "/checkpoints 2>/dev/null | awk -F- '!/tmp/ && $2 + 0 >= " + std::to_string(steps) +
           "')\" ]";
  }
  // metrics.jsonl without times.
  static std::string metrics(const std::string& run) {
    std::string out, text;
    for (std::ifstream in(run + "/metrics.jsonl"); std::getline(in, text);) {
      json j = json::parse(text);
      j.erase("time");
      out += j.dump() + "\n";
    }
    return out;
  }
  static void expect_same_run(const std::string& got, const std::string& want) {
    EXPECT_EQ(text_of(got + "/STATUS"), "done\n");
    EXPECT_EQ(text_of(got + "/model.safetensors"), text_of(want + "/model.safetensors"));
    EXPECT_EQ(metrics(got), metrics(want));
  }
  fs::path folder_;
};

TEST_F(Agents, LeaveAReport) {
  const Row& row = kRows[1];
  const std::string run = at("run");
  const Result first = tool(line(row, run) + " 2>&1");
  ASSERT_EQ(first.code, 0) << first.text;
  for (const char* file : {"parts.jsonl", "report.html", "metrics.jsonl", "model.safetensors"})
    EXPECT_TRUE(fs::exists(run + "/" + file)) << file;
  const json part = json::parse(text_of(run + "/parts.jsonl"));
  EXPECT_EQ(part["steps"], 8000);
  EXPECT_GT(part["seconds"], 0);
  EXPECT_TRUE(has(text_of(run + "/report.html"), "\"return\"")) << "its chart";
  EXPECT_EQ(std::distance(fs::directory_iterator(run + "/checkpoints"), {}), 3) << "2 and latest";
  // A finished run is only evaluated again.
  const std::string before = metrics(run), model = text_of(run + "/model.safetensors");
  const Result second = tool(line(row, run) + " 2>&1");
  ASSERT_EQ(second.code, 0) << second.text;
  EXPECT_EQ(metrics(run), before);
  EXPECT_EQ(text_of(run + "/model.safetensors"), model);
  // Another agent, or another environment.
  const Result other = tool("train " + recipe(kRows[0]) + " --quiet --run " + run + " 2>&1");
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(has(other.text, "cannot be resumed with other settings: agent.type is ppo, was dqn"))
      << other.text;
  EXPECT_EQ(text_of(run + "/STATUS"), "done\n");
  EXPECT_TRUE(has(tool(line(row, at("b"), "agent.keep=0") + " 2>&1").text, "expected 1 or more"));
}

TEST_F(Agents, KilledAtAnyMoment) {
  for (const Row& row : kRows) {
    const std::string whole = at(std::string(row.name) + "-whole"), run = at(row.name);
    ASSERT_EQ(tool(line(row, whole) + " >/dev/null 2>&1").code, 0);
    // Before the first save, between saves, and, if caught in time, during one.
    const std::string kMoments[] = {
        "[ -f " + run + "/STATUS ]", checkpoint(run, 1000),
        "ls " + run + "/checkpoints/step-00003*.tmp-* >/dev/null 2>&1 || " + checkpoint(run, 3900),
        checkpoint(run, 5000)};
    int killed = 0;
    for (const std::string& when : kMoments)
      killed += has(stopped(row, run, "9", when).text, "code 137");
    EXPECT_GE(killed, 2) << row.name;
    // The newest one is damaged: the previous one is used.
    std::string path = text_of(run + "/checkpoints/latest");
    path = run + "/checkpoints/" + path.substr(0, path.find('\n'));
    fs::resize_file(path + "/optimizer.safetensors", 1000);
    const Result last = tool(line(row, run) + " 2>&1");
    ASSERT_EQ(last.code, 0) << last.text;
    EXPECT_TRUE(has(last.text, "skipped the checkpoint '" + path)) << last.text;
    expect_same_run(run, whole);
  }
}

TEST_F(Agents, StopsSaveAndResume) {
  const Row& row = kRows[0];
  const std::string whole = at("whole"), run = at("run");
  ASSERT_EQ(tool(line(row, whole) + " >/dev/null 2>&1").code, 0);
  const struct {
    const char *signal, *status, *more;
  } kStops[] = {{"TERM", "interrupted", ""},
                {"INT", "interrupted", ""},
                {"USR1", "preempted", "agent.preempt_signal=USR1"}};
  for (const auto& stop : kStops) {
    // While it runs, not just where the previous stop left it.
    const Result r = stopped(
        row, run, stop.signal,
        "{ grep -q running " + run + "/STATUS 2>/dev/null && " + checkpoint(run, 1000) + "; }",
        stop.more);
    EXPECT_TRUE(has(r.text, "code 130")) << r.text;
    EXPECT_TRUE(
        has(r.text, "saved; `tandem train " + recipe(row) + " --resume " + run + "` resumes it"))
        << r.text;
    EXPECT_EQ(text_of(run + "/STATUS"), std::string(stop.status) + "\n");
  }
  const Result last = tool("train " + recipe(row) + " --quiet --resume " + run + " 2>&1");
  ASSERT_EQ(last.code, 0) << last.text;
  expect_same_run(run, whole);
}

}  // namespace
