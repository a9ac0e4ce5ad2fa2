// SPDX-License-Identifier: Apache-2.0
// What the tool does with runs and tables: eval, report, runs, predict and convert of a run's
// folder, resolved recipes, searches, and a look at data.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tandem/runs/resources.h"
#include "tests/cli/tool_helper.h"

namespace {

namespace fs = std::filesystem;

using tandem::cli_test::has;
using tandem::cli_test::Result;
using tandem::cli_test::text_of;
using tandem::cli_test::tool;

// A folder with two short runs, shared by the tests.
class Runs : public ::testing::Test {
 protected:
  static fs::path& folder() {
    static fs::path f;
    return f;
  }
  void SetUp() override {
    if (!std::getenv("TANDEM_TOOL")) GTEST_SKIP() << "TANDEM_TOOL is not set";
    if (!folder().empty()) return;
    char name[] = "/tmp/tandem-runs-XXXXXX";
    folder() = mkdtemp(name);
    for (const char* change : {"a optim.lr=3e-3", "b optim.lr=3e-4"}) {
      const Result r =
          tool("train recipes/digits-mlp.yaml --quiet trainer.epochs=4 data.val_part=0.1 --run " +
               (folder() / change).string());
      ASSERT_EQ(r.code, 0) << r.text;
    }
  }
  static void TearDownTestSuite() {
    if (!folder().empty()) fs::remove_all(folder());
  }
  static std::string run(const char* name) { return (folder() / name).string(); }
};

TEST_F(Runs, LeaveAllThatIsNeeded) {
  for (const char* file :
       {"recipe.yaml", "config.yaml", "env.json", "data.json", "metrics.jsonl", "parts.jsonl",
        "layers.jsonl", "evaluation.json", "report.html", "model.safetensors", "STATUS"})
    EXPECT_TRUE(fs::exists(folder() / "a" / file)) << file;
  const std::string config = text_of(folder() / "a/config.yaml");
  for (const char* part : {"lr: 3e-3", "betas:", "eps: 1e-08", "dropout: 0.2", "keep: 3",
                           "on_nonfinite: stop", "at_least: 0.96"})
    EXPECT_TRUE(has(config, part)) << part << " in\n" << config;
  const auto j = nlohmann::json::parse(text_of(folder() / "a/evaluation.json"));
  EXPECT_EQ(j["split"], "test");
  EXPECT_EQ(j["samples"], 360);
  EXPECT_EQ(j["worst"].size(), 16u);
  int64_t sum = 0, right = 0;
  for (size_t i = 0; i < 10; ++i)
    for (size_t k = 0; k < 10; ++k) {
      sum += j["confusion"][i][k].get<int64_t>();
      right += i == k ? j["confusion"][i][k].get<int64_t>() : 0;
    }
  EXPECT_EQ(sum, 360);
  EXPECT_NEAR(static_cast<double>(right) / 360, j["values"]["test/accuracy"].get<double>(), 1e-9);
}

TEST_F(Runs, AreListedAndCompared) {
  Result r = tool("runs list " + folder().string());
  EXPECT_EQ(r.code, 0);
  EXPECT_TRUE(has(r.text, "done") && has(r.text, "test/accuracy 0.")) << r.text;
  r = tool("runs list --json " + folder().string());
  EXPECT_EQ(nlohmann::json::parse(r.text).size(), 2u);
  const std::string html = run("ab.html");
  r = tool("runs compare " + run("a") + " " + run("b") + " --html " + html);
  EXPECT_EQ(r.code, 0);
  EXPECT_TRUE(has(r.text, "optim.lr") && has(r.text, "3e-4") && has(r.text, "  b b\n")) << r.text;
  EXPECT_FALSE(has(r.text, "optim.betas"));
  EXPECT_TRUE(has(text_of(html), "Settings that differ"));
  r = tool("runs compare " + run("a") + " --metric val/acuracy 2>&1");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.text, "did you mean 'val/accuracy'?")) << r.text;
  r = tool("runs compare " + run("none") + " 2>&1");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.text, "is not a run folder")) << r.text;
  EXPECT_EQ(tool("runs list /no/such/folder 2>/dev/null").code, 1);
}

TEST_F(Runs, AreEvaluatedAgain) {
  const auto before = nlohmann::json::parse(text_of(folder() / "b/evaluation.json"));
  Result r = tool("eval " + run("b") + " --json");
  ASSERT_EQ(r.code, 0) << r.text;
  const auto j = nlohmann::json::parse(r.text);
  EXPECT_EQ(j["test/loss"], before["values"]["test/loss"]);  // to the last bit
  r = tool("eval " + run("b") + " --split val --json");
  EXPECT_TRUE(nlohmann::json::parse(r.text).contains("val/accuracy")) << r.text;
  EXPECT_TRUE(has(text_of(folder() / "b/report.html"), "val/accuracy"));
  EXPECT_EQ(tool("eval " + run("b") + " >/dev/null").code, 0);
  r = tool("eval " + run("b") + " --split tset 2>&1");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.text, "There are train, val, test")) << r.text;
  fs::remove(folder() / "b/report.html");
  EXPECT_EQ(tool("report " + run("b") + " >/dev/null").code, 0);
  EXPECT_TRUE(fs::exists(folder() / "b/report.html"));
}

TEST_F(Runs, PredictAndConvert) {
  const std::string x = run("x.npy"), y = run("y.npz"), w = run("w.pth");
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1, 8, 8), }";
  header.resize(117, ' ');
  header += '\n';
  std::ofstream f(x, std::ios::binary);
  f << std::string("\x93NUMPY\x01\x00\x76\x00", 10) << header;
  const std::vector<float> half(3 * 64, 0.5F);
  f.write(reinterpret_cast<const char*>(half.data()),
          static_cast<std::streamsize>(half.size() * 4));
  f.close();
  Result r = tool("predict " + run("a") + " --input " + x + " --top 2 2>&1");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_EQ(std::count(r.text.begin(), r.text.end(), '\n'), 6) << r.text;
  EXPECT_EQ(tool("predict " + run("a") + " --input " + x + " --output " + y + " >/dev/null").code,
            0);
  EXPECT_TRUE(has(tool("inspect " + y).text, "[3,10]"));
  EXPECT_EQ(tool("convert " + run("a") + " " + w + " >/dev/null").code, 0);
  EXPECT_EQ(tool("verify " + run("a/model.safetensors") + " " + w + " >/dev/null").code, 0);
  EXPECT_EQ(tool("export " + run("a") + " " + w + " >/dev/null").code, 0);
  EXPECT_EQ(tool("verify " + run("a/model.safetensors") + " " + w + " >/dev/null").code, 0);
  const std::string onnx = run("a.onnx"), z = run("z.npz");
  r = tool("export " + run("a") + " " + onnx + " 2>&1");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_EQ(tool("predict " + onnx + " --input " + x + " --output " + z + " 2>&1").code, 0);
  r = tool("verify " + y + " " + z + " --rtol 1e-4 --atol 1e-5 2>&1");
  EXPECT_EQ(r.code, 0) << r.text;
  r = tool("export recipes " + onnx + " 2>&1");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.text, "'recipes' is not a run folder")) << r.text;
  // Without its last weights the best checkpoint's are used.
  fs::rename(folder() / "a/model.safetensors", folder() / "a/away");
  EXPECT_EQ(tool("convert " + run("a") + " " + w + " >/dev/null").code, 0);
  fs::rename(folder() / "a/away", folder() / "a/model.safetensors");
}

TEST_F(Runs, RecipesAreResolvedAndBegun) {
  Result r = tool("render-config recipes/digits-mlp.yaml optim.lr=1e-2");
  ASSERT_EQ(r.code, 0) << r.text;
  for (const char* part :
       {"lr: 1e-2", "weight_decay: 0", "fold: 0", "warmup_steps: 0", "label_smoothing"})
    EXPECT_TRUE(has(r.text, part)) << part << " in\n" << r.text;
  // The resolved recipe resolves to itself.
  const std::string file = run("resolved.yaml");
  EXPECT_EQ(tool("render-config recipes/digits-mlp.yaml --out " + file).code, 0);
  EXPECT_EQ(tool("render-config " + file).text, text_of(file));
  r = tool("render-config recipes/digits-mlp.yaml optim.rl=1e-2 2>&1");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.text, "did you mean 'lr'?")) << r.text;
  const std::string mine = run("mine.yaml");
  EXPECT_EQ(tool("init-config model.hidden=[32] --out " + mine + " >/dev/null").code, 0);
  r = tool("train " + mine + " trainer.epochs=1 --json --run " + run("mine"));
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_EQ(tool("init-config --out " + mine + " 2>/dev/null").code, 1);  // it is there
  r = tool("init-config --model mlpp 2>&1");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.text, "did you mean 'mlp'?")) << r.text;
  r = tool("init-config --data image_folder --model lenet data.root=/no/such/folder");
  EXPECT_EQ(r.code, 0);
  EXPECT_TRUE(has(r.text, "because the data is missing") && has(r.text, "image_folder")) << r.text;
}

TEST_F(Runs, ASearchAndItsJournal) {
  const std::string at = run("search");
  const std::string command =
      "tune recipes/tune-digits.yaml --json trainer.epochs=3 tune.startup=3 --run " + at;
  Result r = tool(command + " --trials 5");
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_EQ(nlohmann::json::parse(r.text)["trials"], 5);
  r = tool(command + " --trials 8");
  const auto more = nlohmann::json::parse(r.text);
  EXPECT_EQ(more["trials"], 8);
  EXPECT_GT(more["best"]["result"].get<double>(), 0.7);
  // Equals one that was never interrupted.
  const auto whole = nlohmann::json::parse(
      tool(
          "tune recipes/tune-digits.yaml --json trainer.epochs=3 tune.startup=3 --trials 8 --run " +
          at + "-whole")
          .text);
  EXPECT_EQ(more["best"], whole["best"]);
  EXPECT_EQ(text_of(at + "/journal.jsonl"), text_of(at + "-whole/journal.jsonl"));
  EXPECT_TRUE(has(text_of(at + "/report.html"), "\"kind\":\"parallel\""));
  // The table of a search holds trials of one kind.
  const std::pair<const char*, const char*> kOthers[] = {
      {"trainer.epochs=2", "trainer.epochs is 2, was 3"},
      {"'search.optim.lr=log 1..10'", "search.optim.lr is log 1..10, was "},
      {"tune.metric=val/loss", "tune.metric is val/loss, was "},
  };
  const std::string recipe = text_of(at + "/recipe.yaml");
  for (const auto& [change, want] : kOthers) {
    r = tool(command + " --trials 9 " + change + " 2>&1");
    EXPECT_EQ(r.code, 1) << change;
    EXPECT_TRUE(has(r.text, std::string("cannot be resumed with other settings: ") + want))
        << r.text;
    EXPECT_EQ(text_of(at + "/recipe.yaml"), recipe) << change;
  }
  EXPECT_EQ(tool(command + " --trials 8 tune.max_seconds=100 note=again").code, 0);
  const std::pair<const char*, const char*> kMistakes[] = {
      {"search.optim.lr=fast", "'fast' is not a range"},
      {"tune.smapler=tpe", "did you mean 'sampler'?"},
      {"tune.sampler=tpee", "expected tpe, random or grid"},
      {"tune.metric=val/acuracy", "was not measured"},
      {"trainer.epoch=1", "did you mean 'epochs'?"},
  };
  int k = 0;
  for (const auto& [change, want] : kMistakes) {
    r = tool("tune recipes/tune-digits.yaml --quiet " + std::string(change) + " --run " + at +
             "-x" + std::to_string(k++) + " --trials 1 2>&1");
    EXPECT_EQ(r.code, 1) << change;
    EXPECT_TRUE(has(r.text, want)) << want << " in " << r.text;
  }
  r = tool("tune recipes/digits-mlp.yaml 2>&1");
  EXPECT_TRUE(has(r.text, "has no `search:`")) << r.text;
}

// A trial has one number: in the lines of progress, the answer, the journal, the folders.
TEST_F(Runs, TrialsAreCountedFromOne) {
  const std::string at = run("numbers");
  const Result r = tool(
      "tune recipes/tune-digits.yaml trainer.epochs=1 tune.grace=0 tune.keep_runs=true "
      "--trials 3 --run " +
      at + " 2>&1");
  ASSERT_EQ(r.code, 0) << r.text;
  std::string best, line;
  std::istringstream lines(r.text), journal(text_of(at + "/journal.jsonl"));
  double top = -1;
  for (int k = 1; k <= 3; ++k) {
    std::getline(journal, line);
    const auto trial = nlohmann::json::parse(line);
    EXPECT_EQ(trial["number"], k);
    EXPECT_TRUE(fs::exists(at + "/trial-000" + std::to_string(k)));
    std::getline(lines, line);
    EXPECT_TRUE(line.starts_with("trial " + std::to_string(k) + "/3 ")) << line;
    const bool leads = trial["result"].get<double>() > top;
    top = std::max(top, trial["result"].get<double>());
    if (leads) best = std::to_string(k);
    EXPECT_TRUE(has(line, leads ? "(the best so far)" : "(best: trial " + best + ", ")) << line;
  }
  EXPECT_FALSE(fs::exists(at + "/trial-0000"));
  EXPECT_TRUE(has(r.text, "best: trial " + best + ", val/")) << r.text;
  // The command that is shown gives that result again.
  EXPECT_TRUE(has(r.text,
                  "tandem train recipes/tune-digits.yaml trainer.epochs=1 tune.grace=0 "
                  "tune.keep_runs=true "))
      << r.text;
  const size_t begin = r.text.find("train recipes/tune-digits.yaml");
  const Result again = tool(r.text.substr(begin, r.text.find('\n', begin) - begin) +
                            " --json --run " + at + "-again");
  ASSERT_EQ(again.code, 0) << again.text;
  const auto logs = nlohmann::json::parse(again.text);
  EXPECT_EQ(logs["val/accuracy"].get<double>(), top) << again.text;
  EXPECT_TRUE(has(text_of(at + "/report.html"), "(trial " + best + ")"));
}

// A run whose process is gone is not running, whoever has its number now.
TEST_F(Runs, TheDeadAreNotListedAsRunning) {
  const fs::path at = folder() / "states";
  const auto put = [&](const std::string& name, const std::string& host, int64_t pid,
                       const std::string& process) {
    fs::create_directories(at / name);
    std::ofstream(at / name / "metrics.jsonl") << "{\"step\":1,\"time\":1060,\"train/loss\":1}\n";
    std::ofstream(at / name / "parts.jsonl") << "{\"seconds\":30}\n";
    std::ofstream(at / name / "STATUS") << "running\n";
    nlohmann::json j{{"host", host}, {"pid", pid}, {"started", 1000}};
    if (!process.empty()) j["process"] = process;
    std::ofstream(at / name / "env.json") << j;
  };
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const auto own = nlohmann::json::parse(text_of(folder() / "a/env.json"));
  EXPECT_TRUE(has(own["process"].get<std::string>(), "/"));
  const pid_t dead = fork();
  if (dead == 0) _exit(0);
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(dead), &info, WEXITED | WNOWAIT);  // it stays as a zombie
  put("zombie", host, dead, "of then/1");
  put("reused", host, getpid(), "of then/1");
  put("gone", host, own["pid"].get<int64_t>(), own["process"].get<std::string>());
  put("alive", host, getpid(), tandem::runs::process_identity(getpid()));
  put("older", host, getpid(), "");
  put("elsewhere", "another-machine", 1, "of then/1");
  const Result r = tool("runs list --json " + at.string());
  ASSERT_EQ(r.code, 0) << r.text;
  for (const auto& j : nlohmann::json::parse(r.text)) {
    const std::string name = j["name"];
    EXPECT_EQ(j["status"],
              name == "zombie" || name == "reused" || name == "gone" ? "crashed" : "running")
        << name;
  }
  const std::string list = tool("runs list " + at.string()).text;
  EXPECT_TRUE(has(list, "running on another-machine"));
  EXPECT_TRUE(has(list, "  1:30  ")) << list;  // an earlier part's, and so far
  waitpid(dead, nullptr, 0);
}

TEST_F(Runs, TablesAreLookedAt) {
  const std::string a = run("a.csv"), b = run("b.csv"), s = run("schema.json");
  std::ofstream fa(a), fb(b);
  fa << "x,kind\n";
  fb << "x,kind\n";
  for (int i = 0; i < 200; ++i) {
    fa << i << "," << (i % 2 ? "red" : "blue") << "\n";
    fb << i + 150 << "," << (i % 2 ? "red" : "green") << "\n";
  }
  fa.close();
  fb.close();
  Result r = tool("data stats " + a + " --write-schema " + s);
  EXPECT_EQ(r.code, 0);
  EXPECT_TRUE(has(r.text, "200 rows, 2 columns") && has(r.text, "integer")) << r.text;
  EXPECT_EQ(tool("data validate " + a + " --schema " + s).code, 0);
  r = tool("data validate " + b + " --schema " + s);
  EXPECT_EQ(r.code, 3);
  EXPECT_TRUE(has(r.text, "349 is above 199") && has(r.text, "'green'")) << r.text;
  r = tool("data validate " + b + " --json --against " + a);
  EXPECT_EQ(r.code, 3);
  EXPECT_EQ(nlohmann::json::parse(r.text)["anomalies"].size(), 2u) << r.text;
  EXPECT_EQ(tool("data validate " + a + " --against " + a).code, 0);
  EXPECT_EQ(tool("data validate " + a + " 2>/dev/null").code, 1);
  EXPECT_EQ(tool("data stats /no/such.csv 2>/dev/null").code, 1);
  r = tool("data bench recipes/digits-mlp.yaml --seconds 0.3 --json");
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_GT(nlohmann::json::parse(r.text)["samples_per_second"].get<double>(), 100);
}

}  // namespace
