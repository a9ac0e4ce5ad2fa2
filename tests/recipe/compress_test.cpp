// SPDX-License-Identifier: Apache-2.0
// `quant:` of recipes: trained, resumed, evaluated, opened and quantised by their run.
#include <gtest/gtest.h>

#include "tandem/base/files/folder.h"
#include "tandem/onnx/onnx.h"
#include "tandem/recipe/open_run.h"
#include "tandem/recipe/quantize.h"
#include "tandem/recipe/train.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::recipe {
namespace {

class Compressing : public ::testing::Test {
 protected:
  // Seven updates an epoch.
  void SetUp() override {
    write_file(f / "r.yaml",
               "recipe: small\nseed: 1\ndata: {type: digits, batch: 192, val_part: 0}\n"
               "model: {type: digits_cnn, width: 4}\nloss: {type: cross_entropy}\n"
               "optim: {type: adam, lr: 3e-3}\n"
               "trainer: {epochs: 2, metrics: [accuracy], report: false}\n");
  }
  RecipeRun train(const std::string& run, const std::vector<std::string>& changes) const {
    return run_recipe(Recipe::load(f / "r.yaml", changes), Registry::standard(), f / run, false);
  }
  StateDict weights(const std::string& run) const { return run_weights(f / run); }
  static void expect_same(const StateDict& a, const StateDict& b) {
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, t] : a)
      EXPECT_EQ(t.to_vector<double>(), b.find(name)->to_vector<double>()) << name;
  }
  TempFolder f;
};

TEST_F(Compressing, QuantIsLearnedAndTakenOver) {
  const std::vector<std::string> quant{"quant.start=3", "quant.freeze_observers=10"};
  const RecipeRun run = train("run", quant);
  const double accuracy = train::find_log(run.test, "test/accuracy");
  EXPECT_GT(accuracy, 0.3);
  const StateDict saved = weights("run");
  ASSERT_NE(saved.find("conv2.input_fake_quant.max_val"), nullptr);
  EXPECT_GT(saved.find("conv2.input_fake_quant.max_val")->item<float>(), 0);
  EXPECT_EQ(train::find_log(evaluate(f / "run"), "test/accuracy"), accuracy);
  const QuantizeReport q = quantize_file({.model = f / "run"}, f / "q.onnx");
  ASSERT_TRUE(q.score.before.has_value());
  EXPECT_EQ(*q.score.before, accuracy);
  EXPECT_NEAR(*q.score.after, accuracy, 0.003);
  EXPECT_GT(q.score.sqnr, 40);
  for (const quant::LayerFigures& l : q.layers) EXPECT_GT(l.weight_sqnr, 100) << l.name;
  // The step of a layer is that of its range in the run.
  const float range = saved.find("conv2.input_fake_quant.max_val")->item<float>() -
                      saved.find("conv2.input_fake_quant.min_val")->item<float>();
  EXPECT_FLOAT_EQ(q.layers[1].step.scale, range / 255);
  const OpenedRun opened = open_run(f / "run");
  const Tensor x = rand({3, 1, 8, 8}), want = opened.model.predict({x});
  const Tensor got = onnx::OnnxModel::load(f / "q.onnx")({x})[0];
  EXPECT_GT(quant::sqnr({&want, 1}, {&got, 1}), 30);
}

TEST_F(Compressing, QuantResumesWithTheSameBits) {
  const std::vector<std::string> quant{"quant.start=3", "quant.freeze_observers=9",
                                       "sched.type=constant"};
  auto longer = quant, shorter = quant;
  shorter.emplace_back("trainer.epochs=1");
  train("whole", longer);
  train("parts", shorter);
  train("parts", longer);
  expect_same(weights("whole"), weights("parts"));
}

TEST_F(Compressing, CompiledAndEagerRunsAreTheSame) {
  const std::vector<std::string> quant{"quant.start=2", "quant.bits=4"};
  auto eager = quant;
  eager.emplace_back("trainer.compile=false");
  train("a", quant);
  train("b", eager);
  expect_same(weights("a"), weights("b"));
}

TEST_F(Compressing, MistakesNameTheirKey) {
  const auto refused = [&](const char* change, const char* text) {
    const std::string got = error_of([&] { train("no", {change}); });
    EXPECT_TRUE(has(got, text)) << got;
    EXPECT_FALSE(file_exists(f / "no/STATUS"));
  };
  refused("quant.bit=4", "did you mean 'bits'");
  refused("quant.bits=1", "bits");
  refused("quant.keep_float=[fc9]", "matches no Linear or convolution");
}

}  // namespace
}  // namespace tandem::recipe
