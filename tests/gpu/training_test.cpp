// SPDX-License-Identifier: Apache-2.0
// Recipes with trainer.device: losses follow the CPU's, every row runs on the device, and a run
// that is resumed there ends with the bits of one that was not interrupted.
#include "tandem/base/files/folder.h"
#include "tandem/graph/backend.h"
#include "tandem/recipe/train.h"
#include "tandem/tandem.h"
#include "tests/gpu/tensors_helper.h"
#include "tests/io/io_helper.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"

namespace tandem::gpu {
namespace {

class DeviceRecipes : public OverDevices {
 protected:
  void SetUp() override {
    OverDevices::SetUp();
    if (IsSkipped()) return;
    write_file(f_ / "r.yaml",
               "recipe: small\nseed: 1\ndata: {type: digits, batch: 64, val_part: 0}\n"
               "model: {type: mlp, hidden: [16], dropout: 0.1}\n"
               "loss: {type: cross_entropy, class_weights: balanced}\n"
               "optim: {type: adam, lr: 3e-3}\n"
               "trainer: {epochs: 1, limit_train_batches: 10, metrics: [accuracy], clip_norm: 1,\n"
               "          report: false}\n");
  }
  recipe::RecipeRun train(const std::string& run, std::vector<std::string> changes) const {
    return recipe::run_recipe(recipe::Recipe::load(f_ / "r.yaml", changes),
                              recipe::Registry::standard(), run.empty() ? "" : f_ / run, false);
  }
  std::string here() const { return "trainer.device=" + to_string(device_); }

  TempFolder f_;
};
TD_OVER_DEVICES(DeviceRecipes);

TEST_P(DeviceRecipes, FollowTheCpu) {
  for (const char* compiled : {"trainer.compile=true", "trainer.compile=false"}) {
    const recipe::RecipeRun want = train("", {compiled});
    reset_host_runs();
    const recipe::RecipeRun got = train("", {compiled, here()});
    const HostRuns runs = host_runs();
    EXPECT_EQ(runs.calls, 0) << (runs.calls ? runs.by_op[0].first : "") << " ran on the host";
    for (const char* log : {"test/loss", "test/accuracy"}) {
      const double cpu_value = train::find_log(want.test, log);
      EXPECT_NEAR(train::find_log(got.test, log), cpu_value, 2e-3 * cpu_value)
          << log << " " << compiled;
    }
  }
}

TEST_P(DeviceRecipes, ResumeWithEqualBits) {
  train("straight", {here(), "trainer.epochs=2"});
  train("parts", {here()});
  train("parts", {here(), "trainer.epochs=2"});
  const StateDict want = load(f_ / "straight/model.safetensors"),
                  got = load(f_ / "parts/model.safetensors");
  ASSERT_FALSE(want.empty());
  for (const auto& [name, value] : want) EXPECT_TRUE(same_bits(got.at(name), value)) << name;
}

TEST_P(DeviceRecipes, DataIsMadeOnTheHost) {
  data::AnyPipeline batches = data::pipeline(data::Digits()).batch(4).prefetch({.workers = 0});
  const DeviceGuard there(device_);
  EXPECT_EQ(batches.fields(0)[0].device(), tandem::cpu);
  batches.begin_pass();
  train::Batch fields;
  ASSERT_TRUE(batches.next(fields));
  EXPECT_EQ(fields[0].device(), tandem::cpu);
}

TEST(RecipeDevices, OneThatIsNotThereIsAnErrorOfTheRecipe) {
  init();
  TempFolder f;
  write_file(f / "r.yaml",
             "recipe: small\ndata: {type: digits}\nmodel: {type: mlp}\n"
             "loss: {type: cross_entropy}\noptim: {type: adam}\n"
             "trainer: {device: fake:7}\n");
  const std::string text = thrown([&] {
    recipe::run_recipe(recipe::Recipe::load(f / "r.yaml"), recipe::Registry::standard(), "", false);
  });
  EXPECT_TRUE(has(text, "r.yaml line 6: trainer: there is no device 'fake:7'")) << text;
}

}  // namespace
}  // namespace tandem::gpu
