// SPDX-License-Identifier: Apache-2.0
// The tool's training verbs: which run is resumed, preemption notices, searches of rate and batch
// size, exports at the end of a run, best and last weights.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/tool_helper.h"

namespace {

namespace fs = std::filesystem;
using namespace tandem::cli_test;

class Training : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("TANDEM_TOOL")) GTEST_SKIP() << "TANDEM_TOOL is not set";
    char name[] = "/tmp/tandem-training-XXXXXX";
    folder_ = mkdtemp(name);
    recipe_ = fs::absolute("recipes/digits-mlp.yaml").string();
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }
  // In its own folder, as --resume auto looks in runs/.
  Result train(const std::string& more) const {
    return shell("cd " + folder_.string() + " && " + std::getenv("TANDEM_TOOL") + " train " +
                 recipe_ + " trainer.epochs=2 trainer.report=false --json " + more + " 2>&1");
  }
  std::string run_of(const Result& r) const {
    const auto j = nlohmann::json::parse(r.text, nullptr, false);
    return j.is_discarded() ? "no JSON: " + r.text : j["folder"].get<std::string>();
  }
  fs::path folder_;
  std::string recipe_;
};

TEST_F(Training, WhichRunIsResumed) {
  const Result first = train("--resume auto");  // there is none: a new one
  ASSERT_EQ(first.code, 0) << first.text;
  const std::string run = run_of(first);
  EXPECT_TRUE(run.starts_with("runs/digits-mlp-")) << run;
  auto status = [&](const std::string& text) {
    std::ofstream(folder_ / run / "STATUS") << text << "\n";
  };
  for (const char* s : {"interrupted", "preempted", "failed", "running"}) {
    status(s);
    EXPECT_EQ(run_of(train("--resume auto")), run) << s;
  }
  const std::string second = run_of(train("--resume auto"));  // that one is done
  EXPECT_NE(second, run);
  status("interrupted");  // the older one, but the only one that is not done
  EXPECT_EQ(run_of(train("--resume auto")), run);
  EXPECT_EQ(run_of(train("--resume " + run)), run);
  EXPECT_EQ(run_of(train("--run " + run)), run);
  EXPECT_EQ(run_of(train("--resume none --run runs/new")), "runs/new");
  const std::pair<std::string, std::string> kWrong[] = {
      {"--resume none --run " + run, "holds a run already, and --resume none does not resume"},
      {"--resume nowhere", "there is no run in 'nowhere' to resume"},
      {"--resume " + run + " --run runs/b", "name two folders"},
      {"export=[onx]", "there is no export 'onx'. There are npz, onnx, pth, safetensors"},
  };
  for (const auto& [more, want] : kWrong) {
    const Result r = train(more);
    EXPECT_EQ(r.code, 1) << more;
    EXPECT_TRUE(has(r.text, want)) << more << ": " << r.text;
  }
}

TEST_F(Training, ANoticeSavesAndStops) {
  const std::string run = (folder_ / "run").string(), tool_path = std::getenv("TANDEM_TOOL");
  const Result r = shell(
      tool_path + " train " + recipe_ +
      " trainer.epochs=100000 trainer.preempt_signal=USR1 trainer.report=false --quiet --run " +
      run + " & pid=$!; until [ -f " + run +
      "/metrics.jsonl ]; do :; done; kill -USR1 $pid; wait $pid; "
      "echo code $?");
  EXPECT_TRUE(has(r.text, "preempted") && has(r.text, "code 130")) << r.text;
  EXPECT_TRUE(has(r.text, "--resume " + run + "` resumes it")) << r.text;
  EXPECT_EQ(text_of(run + "/STATUS"), "preempted\n");
}

TEST_F(Training, SearchesOfRateAndBatch) {
  Result r = tool("lr-find " + recipe_ + " --steps 60 --json");
  ASSERT_EQ(r.code, 0) << r.text;
  auto j = nlohmann::json::parse(r.text);
  EXPECT_GT(j["suggestion"].get<double>(), 1e-5);
  EXPECT_LT(j["suggestion"].get<double>(), 1.0);
  EXPECT_EQ(j["rates"].size(), j["losses"].size());
  r = tool("lr-find " + recipe_ + " --steps 60");
  EXPECT_TRUE(has(r.text, "steepest fall at") && has(r.text, "optim.lr=")) << r.text;
  EXPECT_TRUE(
      has(tool("lr-find " + recipe_ + " --start 1 --end 0.1 2>&1").text, "0 < start < end"));
  r = tool("find-batch " + recipe_ + " --smallest 16 --largest 64 --json");
  ASSERT_EQ(r.code, 0) << r.text;
  j = nlohmann::json::parse(r.text);
  EXPECT_EQ(j["tried"].size(), 3u);
  EXPECT_EQ(j["largest"], 64);
  r = tool("find-batch " + recipe_ + " --smallest 16 --largest 32");
  EXPECT_TRUE(has(r.text, "samples/s") && has(r.text, "data.batch=")) << r.text;
}

TEST_F(Training, ExportsAndWeights) {
  const Result made = train("'export=[onnx, npz, safetensors]' data.val_part=0.1 --run run");
  ASSERT_EQ(made.code, 0) << made.text;
  EXPECT_EQ(run_of(made), "run");  // stdout is one line of JSON
  const std::string run = (folder_ / "run").string();
  for (const char* file : {"model.onnx", "model.npz", "model.safetensors", "metrics.csv"})
    EXPECT_TRUE(fs::exists(run + "/" + file)) << file;
  EXPECT_EQ(tool("verify " + run + "/model.safetensors " + run + "/model.npz >/dev/null").code, 0);
  // The best checkpoint's weights: by val/accuracy, of one of the two epochs.
  const std::string best = (folder_ / "best.safetensors").string();
  EXPECT_EQ(tool("export " + run + " " + best + " --weights best >/dev/null").code, 0);
  const auto last = nlohmann::json::parse(tool("eval " + run + " --split val --json").text);
  const auto top =
      nlohmann::json::parse(tool("eval " + run + " --split val --weights best --json").text);
  EXPECT_GE(top["val/accuracy"].get<double>(), last["val/accuracy"].get<double>());
  for (const char* verb : {"eval ", "export "}) {
    const Result r =
        tool(verb + run + (verb[1] == 'x' ? " " + best : std::string()) + " --weights bets 2>&1");
    EXPECT_EQ(r.code, 1);
    EXPECT_TRUE(has(r.text, "are 'last' or 'best', got 'bets'")) << r.text;
  }
}

}  // namespace
