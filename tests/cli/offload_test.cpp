// SPDX-License-Identifier: Apache-2.0
// Recipes on devices that share out state (trainer.strategy) or keep the optimizer's on the host
// (trainer.offload): the figures of those that do neither, on one rank and on several.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/tool_helper.h"

namespace {

namespace fs = std::filesystem;
using namespace tandem::cli_test;

class OnDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("TANDEM_TOOL")) GTEST_SKIP() << "TANDEM_TOOL is not set";
    char name[] = "/tmp/tandem-offload-XXXXXX";
    folder_ = mkdtemp(name);
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }
  nlohmann::json train(int ranks, const std::string& more) {
    text_ = shell("cd " + folder_.string() + " && " + std::getenv("TANDEM_TOOL") + " launch -n " +
                  std::to_string(ranks) + " --no-prefix train " +
                  fs::absolute("recipes/digits-mlp.yaml").string() +
                  " --json trainer.report=false model.dropout=0 sched.type=constant "
                  "data.val_part=0.2 trainer.device=fake " +
                  more + " 2>&1")
                .text;
    const size_t at = text_.find('{');
    return nlohmann::json::parse(at == text_.npos ? "{}" : text_.substr(at), nullptr, false);
  }
  fs::path folder_;
  std::string text_;
};

TEST_F(OnDevices, RecipesShareOutAndOffload) {
  const std::string epoch = "trainer.epochs=1 trainer.limit_train_batches=6 --run ";
  for (const int ranks : {1, 2}) {
    const std::string of = std::to_string(ranks);
    const nlohmann::json want = train(ranks, epoch + "plain" + of);
    EXPECT_GT(want.value("train/loss", -1.0), 0.0) << text_;
    for (const std::string how :
         {"trainer.offload=optimizer", "trainer.strategy=zero2", "trainer.strategy=fsdp",
          "trainer.strategy=fsdp trainer.offload=optimizer trainer.report=true"}) {
      const nlohmann::json got =
          train(ranks, epoch + "run" + of + std::to_string(how.size()) + " " + how);
      for (const char* name : {"train/loss", "val/loss", "test/accuracy", "steps"})
        EXPECT_NEAR(got.value(name, -1.0), want.value(name, -2.0), 1e-4)
            << name << " " << how << text_;
      EXPECT_EQ(has(text_, "steps run op by op"), has(how, "offload")) << text_;
    }
  }
}

}  // namespace
