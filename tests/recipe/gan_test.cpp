// SPDX-License-Identifier: Apache-2.0
// A recipe whose model has several optimizers: its losses and samples are logged, it resumes
// exactly, and optim: and sched: are for all of them or for each.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/base/files/folder.h"
#include "tandem/io/image.h"
#include "tandem/recipe/generate.h"
#include "tandem/recipe/recipe.h"
#include "tandem/recipe/train.h"
#include "tandem/runs/run_record.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"
#include "tests/support/states.h"
#include "tests/train/digits.h"

namespace tandem::recipe {
namespace {

constexpr const char* kGan =
    "recipe: gan\nseed: 1\ndata: {type: digits, batch: 64, val_part: 0.1, drop_last: true}\n"
    "model: {type: dcgan, latent: 8, width: 8}\n"
    "optim:\n  discriminator: {type: adam, lr: 1e-3, betas: [0.5, 0.999]}\n"
    "  generator: {type: adamw, lr: 2e-3, betas: [0.5, 0.999], every: 2}\n"
    "sched: {type: cosine}\ntrainer: {epochs: 3, metrics: [], samples: 4, save_every: 3}\n";

Recipe gan(const TempFolder& f, const std::vector<std::string>& changes = {}) {
  write_file(f / "gan.yaml", kGan);
  return Recipe::load(f / "gan.yaml", changes);
}

TEST(Gan, LogsItsLossesAndSamplesAndResumesExactly) {
  TempFolder f;
  const Registry all = Registry::standard();
  const RecipeRun whole = run_recipe(gan(f), all, f / "whole", false);
  for (const char* name : {"train/discriminator_loss", "train/generator_loss", "train/real",
                           "train/fake", "val/generator_loss", "lr/generator"})
    EXPECT_TRUE(std::isfinite(train::find_log(whole.fit.logs, name))) << name;
  EXPECT_GT(train::find_log(whole.test, "test/discriminator_loss"), 0);
  EXPECT_TRUE(has(read_file(f / "whole/metrics.jsonl"), "train/step_generator_loss"));
  for (int epoch = 1; epoch <= 3; ++epoch) {
    const std::string file = f / fmt::format("whole/samples/epoch-{:04}.png", epoch);
    EXPECT_EQ(io::read_image(file).shape(), Shape(3, 2 + 2 * 10, 2 + 2 * 10)) << file;
  }
  EXPECT_NE(read_file(f / "whole/samples/epoch-0001.png"),
            read_file(f / "whole/samples/epoch-0003.png"));
  const std::string config = read_file(f / "whole/config.yaml");
  EXPECT_TRUE(has(config, "every: 2")) << config;
  for (const int64_t stop : {4, 23}) {
    const std::string folder = f / fmt::format("r{}", stop);
    RecipeRun part =
        run_recipe(gan(f), all, folder, false, {std::make_shared<train::StopAt>(stop)});
    EXPECT_TRUE(part.fit.interrupted);
    part = run_recipe(gan(f), all, folder, false);
    EXPECT_EQ(part.fit.logs, whole.fit.logs);
    expect_same(load(folder + "/model.safetensors"), load(f / "whole/model.safetensors"));
  }
  const RecipeSamples drawn = generate(f / "whole", {.n = 5, .seed = 3});
  EXPECT_EQ(drawn.values.shape(), Shape(5, 1, 8, 8));
  EXPECT_TRUE((drawn.values >= 0.0).all().item<bool>());
  EXPECT_TRUE(equal(drawn.values, generate(f / "whole", {.n = 5, .seed = 3}).values));
}

// As they are in a run that had the new rate from its first step; the other optimizer's stay.
TEST(Gan, ARateOfOneOptimizerChangesOnResume) {
  TempFolder f;
  const Registry all = Registry::standard();
  const auto rates = [&](const char* run, const char* of) {
    const runs::RunRecord r = runs::read_run(f / run);
    const runs::Series* s = r.find(std::string("lr/") + of);
    return s ? s->y : std::vector<double>();
  };
  for (const char* sched : {"sched={type: constant}", "sched={type: cosine, steps: 70}"}) {
    const std::vector<std::string> old = {"trainer.epochs=1", "trainer.log_every=1", sched},
                                   now = {"trainer.epochs=2", "trainer.log_every=1", sched,
                                          "optim.generator.lr=4e-3"};
    run_recipe(gan(f, old), all, f / "parts", false);
    const size_t first = rates("parts", "generator").size();
    run_recipe(gan(f, now), all, f / "parts", false);
    run_recipe(gan(f, now), all, f / "whole", false);
    const std::vector<double> parts = rates("parts", "generator"),
                              whole = rates("whole", "generator");
    ASSERT_EQ(parts.size(), whole.size());
    ASSERT_LT(first, whole.size());
    for (size_t i = 0; i < whole.size(); ++i)
      EXPECT_NEAR(parts[i], i < first ? whole[i] / 2 : whole[i], 1e-12) << sched << " " << i;
    EXPECT_EQ(rates("parts", "discriminator"), rates("whole", "discriminator"));
    EXPECT_TRUE(has(read_file(f / "parts/settings.jsonl"), "optim.generator.lr"));
    for (const char* run : {"parts", "whole"}) remove_folder(f / run);
  }
}

TEST(Gan, PartsForAllOptimizersOrForEach) {
  TempFolder f;
  const std::vector<std::string> small = {"trainer.epochs=1", "trainer.limit_train_batches=2"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> changes = small;
    changes.insert(changes.end(), more.begin(), more.end());
    return gan(f, changes);
  };
  const std::vector<std::string> fine[] = {
      {"optim={type: adam, lr: 1e-3}"},
      {"sched={generator: {type: linear}, discriminator: {type: cosine, warmup_steps: 1}}"},
      {"sched={generator: {type: linear}}"},
      {"sched={type: plateau, monitor: train/generator_loss, patience: 0}"},
      {"trainer.monitor=val/generator_loss"},
  };
  for (const auto& changes : fine) {
    const RecipeRun run = run_recipe(with(changes), Registry::standard(), "", false);
    EXPECT_EQ(run.fit.steps, 2) << changes[0];
  }
  const std::pair<const char*, const char*> wrong[] = {
      {"optim={generatr: {type: adam}, discriminator: {type: adam}}",
       "optim.generatr: there is no such key, did you mean 'generator'?"},
      {"optim={generator: {type: adam}}", "optim.discriminator.type: is missing"},
      {"optim.generator.every=0", "optim.generator.every: expected 1 or more, got 0"},
      {"sched={generator: {type: plateau}}", "plateau looks at the whole run"},
      {"trainer.monitor=val/generator_los", "did you mean 'val/generator_loss'?"},
      {"loss={type: mse}", "this model has a loss of its own"},
      {"data.size=7", "data.size: there is no such key"},
  };
  for (const auto& [change, text] : wrong) {
    const std::string got = thrown(
        [&, change = change] { run_recipe(with({change}), Registry::standard(), "", false); });
    EXPECT_TRUE(has(got, text)) << change << ": " << got;
  }
  const std::string got = thrown([&] {
    run_recipe(with({"model={type: mlp}", "loss={type: cross_entropy}", "optim={type: adam}"}),
               Registry::standard(), "", false);
  });
  EXPECT_TRUE(has(got, "trainer.samples: this model generates no images")) << got;
}

}  // namespace
}  // namespace tandem::recipe
