// SPDX-License-Identifier: Apache-2.0
// `trainer.parallel` of recipes: a net whose layers are spread over ranks has the figures of one
// rank, resumes on any number of them, and what cannot be spread is refused with what to do and
// leaves no folder.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/tool_helper.h"

namespace {

namespace fs = std::filesystem;
using namespace tandem::cli_test;

class ParallelRun : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("TANDEM_TOOL")) GTEST_SKIP() << "TANDEM_TOOL is not set";
    char name[] = "/tmp/tandem-parallel-XXXXXX";
    folder_ = mkdtemp(name);
    recipe_ = fs::absolute("recipes/shakespeare-cpu.yaml").string();
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }
  // Twenty steps of a small GPT, and what they leave.
  Result train(int ranks, const std::string& more, const std::string& recipe = "") const {
    return shell("cd " + folder_.string() + " && TANDEM_DIST_DEADLINE=5 " +
                 std::getenv("TANDEM_TOOL") + " launch -n " + std::to_string(ranks) +
                 " --no-prefix train " + (recipe.empty() ? recipe_ + small() : recipe) + " " +
                 more + " 2>&1");
  }
  static std::string small() {
    return " data.block=16 data.steps_per_epoch=10 trainer.epochs=2 model.width=32 model.layers=2 "
           "'sched={type: constant}' trainer.limit_val_batches=2 trainer.report=false --json";
  }
  static nlohmann::json figures(const Result& r) {
    const size_t at = r.text.find('{');
    EXPECT_EQ(tandem::count(r.text, "\"folder\""), 1u) << r.text;
    return nlohmann::json::parse(at == r.text.npos ? "{}" : r.text.substr(at), nullptr, false);
  }
  static void expect_same(const nlohmann::json& a, const nlohmann::json& b) {
    for (const char* name : {"train/loss", "val/loss", "test/loss", "train/accuracy", "steps"}) {
      EXPECT_NEAR(a.value(name, -1.0), b.value(name, -2.0), 1e-5) << name << a << b;
    }
  }
  fs::path folder_;
  std::string recipe_;
};

TEST_F(ParallelRun, HasTheFiguresOfOneRank) {
  const std::string more = "trainer.metrics=[accuracy] ";
  const nlohmann::json one = figures(train(1, more));
  expect_same(figures(train(2, more + "trainer.parallel.tp=2 trainer.accumulate=1")), one);
  expect_same(figures(train(2, more + "trainer.parallel=pp=2")), one);
  expect_same(figures(train(4, more + "trainer.parallel=tp=2,pp=2")), one);
  expect_same(figures(train(4, more + "'trainer.parallel={tp: 2, dp: 2}' trainer.compile=false")),
              one);
}

TEST_F(ParallelRun, ResumesOnOtherNumbersOfRanks) {
  const std::string more = "trainer.metrics=[accuracy] --run ";
  const nlohmann::json one = figures(train(1, more + "one"));
  const std::string run = more + "run ";
  figures(train(4, run + "trainer.parallel=tp=2,pp=2 trainer.max_steps=4"));
  figures(train(1, run + "trainer.max_steps=8"));
  figures(train(2, run + "trainer.parallel=tp=2 trainer.max_steps=12"));
  figures(train(2, run + "trainer.strategy=fsdp trainer.max_steps=16"));
  expect_same(figures(train(2, run + "trainer.parallel=pp=2")), one);
}

TEST_F(ParallelRun, SaysWhatItCannotSpread) {
  const std::string digits = fs::absolute("recipes/digits-mlp.yaml").string();
  const auto refused = [&](int ranks, const std::string& more, const std::string& recipe,
                           const std::string& text) {
    const Result r = train(ranks, more, recipe);
    EXPECT_NE(r.code, 0) << r.text;
    EXPECT_TRUE(tandem::has(r.text, text)) << r.text;
    EXPECT_FALSE(tandem::has(r.text, "there is no report")) << r.text;
    EXPECT_TRUE(!fs::exists(folder_ / "runs") || fs::is_empty(folder_ / "runs")) << text;
  };
  refused(2, "trainer.parallel=tp=2", digits, "no plan is known that spreads the layers of a MLP");
  refused(1, "trainer.parallel=tp=2", "", "Start it with tandem launch -n 2");
  refused(2, "trainer.parallel=tp=2,dp=2", "", "Start it with tandem launch -n 4");
  refused(2, "trainer.parallel=tp=2 trainer.strategy=fsdp", "",
          "goes with data parallel copies alone");
  refused(2, "trainer.parallel=tp=2 trainer.average.type=ema", "", "Set average.type = none");
  refused(1, "trainer.parallel=tp", "", "'tp' is not a size such as tp=2");
  refused(1, "trainer.parallel=zero=2", "", "trainer.parallel.zero");
}

}  // namespace
