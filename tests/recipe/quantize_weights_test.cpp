// SPDX-License-Identifier: Apache-2.0
// recipe::quantize_weights: a run of gpt becomes a folder with codes, and that folder a model
// again.
#include "tandem/recipe/quantize_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tandem/models/codes.h"
#include "tandem/recipe/gpt_folder.h"
#include "tandem/recipe/loaded_model.h"
#include "tandem/recipe/train.h"
#include "tandem/tandem.h"
#include "tandem/text/tokenizer.h"
#include "tests/io/io_helper.h"
#include "tests/support/errors.h"

namespace tandem::recipe {
namespace {

struct QuantizeWeights : testing::Test {
  void SetUp() override {
    init();
    if (!run_.empty()) return;
    std::string text;
    for (int i = 0; i < 200; ++i)
      text += i % 3 ? "The cat sat on the mat.\n" : "A dog ran to the lake.\n";
    write_file(folder_ / "prose.txt", text);
    write_file(folder_ / "recipe.yaml",
               "recipe: r\nseed: 0\ndata: {type: chars, file: " + (folder_ / "prose.txt") +
                   ", block: 16, batch: 8, steps_per_epoch: 40}\n"
                   "model: {type: gpt, layers: 2, heads: 2, width: 32}\n"
                   "loss: {type: cross_entropy}\noptim: {type: adam, lr: 0.01}\n"
                   "trainer: {max_steps: 120, report: false, metrics: []}\n");
    run_ =
        train(Recipe::load(folder_ / "recipe.yaml"), {.folder = folder_ / "run", .progress = false})
            .folder;
  }
  static QuantizeWeightsOptions options(quant::WeightMethod m) {
    QuantizeWeightsOptions o;
    o.method = m;
    o.weights.group = 32;
    return o;
  }
  static inline TempFolder folder_;
  static inline std::string run_;
};

TEST_F(QuantizeWeights, ARunAsAFolderIsTheSameModel) {
  const GptFolder gpt = gpt_folder_of(run_);
  const NoGradGuard no_grad;
  const Tensor ids = remainder(arange(0, 32), 9).reshape({2, 16});
  const Tensor want = load_run(run_).run({ids}).at(0);
  EXPECT_LT(max(abs(gpt.model->forward({.input_ids = ids}) - want)).item<double>(), 1e-4);
  const text::Tokenizer t = text::Tokenizer::from_json(gpt.tokenizer);
  EXPECT_EQ(t.decode(t.encode("The dog sat.\n").ids), "The dog sat.\n");
}

TEST_F(QuantizeWeights, EveryMethodWritesAFolder) {
  for (const auto m :
       {quant::WeightMethod::rtn, quant::WeightMethod::gptq, quant::WeightMethod::awq}) {
    SCOPED_TRACE(quant::to_string(m));
    const std::string out = folder_ / quant::to_string(m);
    const QuantizeWeightsReport r = quantize_weights(run_, out, options(m));
    EXPECT_EQ(r.layers, 8);
    EXPECT_EQ(r.kept, 0);
    EXPECT_GT(r.tokens, 400);
    EXPECT_GT(r.perplexity_before, 1);
    EXPECT_NEAR(r.perplexity_after / r.perplexity_before, 1, 0.1);
    EXPECT_LT(r.bytes_after, 0.5 * static_cast<double>(r.bytes_before));
    EXPECT_NE(r.to_string().find("perplexity"), std::string::npos);
    EXPECT_EQ(r.to_json().find("layers")->as_int()[0], 8);
    // The folder gives the perplexity that was reported.
    const auto model = models::from_pretrained(out);
    for (const auto& l : models::coded_layers(*model)) EXPECT_TRUE(l.has_codes());
    const text::Tokenizer t = text::Tokenizer::from_file(out + "/tokenizer.json");
    const Tensor ids = tensor(t.encode("The cat sat on the").ids).reshape({1, -1}).narrow(1, 0, 16);
    const NoGradGuard no_grad;
    const Tensor y = model->forward({.input_ids = ids});
    EXPECT_EQ(argmax(y.select(1, 15), 1).item<int64_t>(), t.token_to_id("h").value_or(-1));
  }
}

TEST_F(QuantizeWeights, TextFilesCalibrateAFolder) {
  quantize_weights(run_, folder_ / "rtn8", [] {
    QuantizeWeightsOptions o = options(quant::WeightMethod::rtn);
    o.weights.bits = 8;
    return o;
  }());
  QuantizeWeightsOptions o = options(quant::WeightMethod::gptq);
  o.data = folder_ / "prose.txt";
  const auto refused = [&](const std::string& model, const std::string& out, const char* text) {
    const std::string got = error_of([&] { quantize_weights(model, out, o); });
    EXPECT_NE(got.find(text), std::string::npos) << got;
  };
  refused(folder_ / "rtn8", folder_ / "x", "is quantised already");
  refused(run_, run_, "is there already");
  const QuantizeWeightsReport r = quantize_weights(run_, folder_ / "text", o);
  EXPECT_NEAR(r.perplexity_after / r.perplexity_before, 1, 0.1);
  o.accuracy_level = 4;
  const QuantizeWeightsReport rounded = quantize_weights(run_, folder_ / "rounded", o);
  EXPECT_NE(rounded.perplexity_after, r.perplexity_after);
  EXPECT_NEAR(rounded.perplexity_after / r.perplexity_after, 1, 0.01);
  EXPECT_TRUE(has(rounded.to_string(), "inputs are rounded to int8"));
  const auto model = models::from_pretrained(folder_ / "rounded");
  for (const auto& l : models::coded_layers(*model)) EXPECT_EQ(l.codes().accuracy_level, 4);
  o.accuracy_level = 7;
  refused(run_, folder_ / "x", "accuracy level is 7");
  o.accuracy_level = 0;
  o.weights.group = 0;
  refused(run_, folder_ / "x", "groups of 0");
  o.weights.group = 256;
  refused(run_, folder_ / "x", "groups of 256 divide");
  // A folder without data: what looks at inputs needs some.
  const GptFolder gpt = gpt_folder_of(run_);
  const std::string plain = folder_ / "plain";
  std::filesystem::create_directory(plain);
  save(gpt.model->module().state_dict(), plain + "/model.safetensors");
  write_file(plain + "/config.json", gpt.model->config.json().dump());
  o.weights.group = 32;
  o.data = "";
  refused(plain, folder_ / "x", "there is no data");
  o.method = quant::WeightMethod::rtn;
  EXPECT_EQ(quantize_weights(plain, folder_ / "plain4", o).tokens, 0);
}

}  // namespace
}  // namespace tandem::recipe
