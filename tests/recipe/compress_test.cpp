// SPDX-License-Identifier: Apache-2.0
// `quant:`, `prune:` and `distill:` of recipes: trained, resumed, evaluated, opened and quantised
// by their run.
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
  EXPECT_TRUE(has(q.to_string(), "(learned in training, elsewhere percentile)")) << q.to_string();
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

TEST_F(Compressing, AnExportHasTheLearnedStepsAsConstants) {
  train("run", {"quant.start=3"});
  const OpenedRun opened = open_run(f / "run");
  const NoGradGuard no_grad;
  const Tensor x = rand({3, 1, 8, 8}), want = opened.model.predict({x});
  for (const std::string& out : {f / "e.onnx", f / "run/e.onnx"}) {
    write_onnx({.model = f / "run"}, out);
    const onnx::OnnxModel back = onnx::OnnxModel::load(out);
    const Tensor got = back({x})[0];
    EXPECT_GT(quant::sqnr({&want, 1}, {&got, 1}), 80);
    int rounds = 0;
    for (const onnx::OnnxNode& n : back.proto().graph.nodes) {
      rounds += n.op == "QuantizeLinear";
      EXPECT_TRUE(n.op != "Round" && n.op != "Abs") << n.op;
    }
    EXPECT_EQ(rounds, 4);
  }
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

double zeros_in(const StateDict& state, const std::string& name) {
  return mean((*state.find(name) == 0).to(DType::f32)).item<float>();
}

TEST_F(Compressing, PruneLeavesPlainWeightsAndResumes) {
  const std::vector<std::string> prune{"prune.final_sparsity=0.75", "prune.from=2", "prune.to=10",
                                       "prune.every=3", "sched.type=constant"};
  auto shorter = prune;
  shorter.emplace_back("trainer.epochs=1");
  const RecipeRun run = train("whole", prune);
  train("parts", shorter);
  EXPECT_GT(zeros_in(weights("parts"), "fc1.weight"), 0.5);
  EXPECT_LT(zeros_in(weights("parts"), "fc1.weight"), 0.74);
  train("parts", prune);
  const StateDict whole = weights("whole");
  expect_same(whole, weights("parts"));
  for (const char* name : {"conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight"})
    EXPECT_NEAR(zeros_in(whole, name), 0.75, 0.02) << name;
  for (const auto& [name, t] : whole) EXPECT_FALSE(name.ends_with("_mask")) << name;
  EXPECT_EQ(train::find_log(evaluate(f / "whole"), "test/accuracy"),
            train::find_log(run.test, "test/accuracy"));
  // From a checkpoint, too, which has the masks.
  remove_folder(f / "whole/model.safetensors");
  expect_same(whole, weights("whole"));
  EXPECT_EQ(open_run(f / "whole").model.module->state_dict().size(), whole.size());
}

TEST_F(Compressing, PrunedAndRoundedTogether) {
  train("run", {"quant.start=4", "prune.method=semi_structured", "prune.on=[conv2, fc1]"});
  const QuantizeReport q = quantize_file({.model = f / "run"}, f / "q.onnx");
  EXPECT_GT(q.score.sqnr, 40);
  EXPECT_EQ(zeros_in(weights("run"), "fc1.weight"), 0.5);
  for (const quant::LayerFigures& l : q.layers) EXPECT_GT(l.weight_sqnr, 100) << l.name;
}

TEST_F(Compressing, ATeacherHelps) {
  train("teacher", {"trainer.epochs=8"});
  const std::string by = "distill.teacher=" + (f / "teacher");
  const RecipeRun alone = train("alone", {}), taught = train("taught", {by, "distill.alpha=0.9"}),
                  own = train("own", {by, "distill.alpha=0"});
  expect_same(weights("alone"), weights("own"));
  // How far the outputs are from the teacher's.
  const OpenedRun teacher = open_run(f / "teacher");
  const Tensor x = rand({64, 1, 8, 8}), want = softmax(teacher.model.predict({x}), 1);
  const auto apart = [&](const char* run) {
    const Tensor got = softmax(open_run(f / run).model.predict({x}), 1);
    return mean(abs(got - want)).item<float>();
  };
  EXPECT_LT(apart("taught"), apart("alone"));
}

TEST_F(Compressing, MistakesNameTheirKey) {
  const auto refused = [&](const char* change, const char* text) {
    const std::string got = error_of([&] { train("no", {change}); });
    EXPECT_TRUE(has(got, text)) << got;
    EXPECT_FALSE(file_exists(f / "no/STATUS"));
  };
  refused("quant.bit=4", "did you mean 'bits'");
  refused("quant.bits=1", "bits");
  refused("prune.on=[fc9]", "matches no Linear or convolution");
  refused("prune.final_sparsity=1", "final_sparsity");
  refused("distill.alpha=0.5", "teacher");
  refused("distill.teacher=/nowhere", "/nowhere");
  refused("quant.keep_float=[fc9]", "matches no Linear or convolution");
}

}  // namespace
}  // namespace tandem::recipe
