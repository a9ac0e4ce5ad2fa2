// SPDX-License-Identifier: Apache-2.0
// LoRA adapters against tests/golden/adapters, made by peft (make_adapters.py): merged, and applied
// at run time to rows with different ones. Then folders that are refused.
#include "tandem/models/adapters.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "tandem/init.h"
#include "tandem/io/safetensors.h"
#include "tandem/models/codes.h"
#include "tandem/models/text/generate.h"
#include "tandem/ops/ops.h"
#include "tandem/quant/weights.h"
#include "tests/io/io_helper.h"

namespace tandem::models {
namespace {

std::string adapter_golden(const std::string& path) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return std::string(root ? root : ".") + "/tests/golden/" + path;
}
struct AdapterCase {
  const char *base, *name;
};
constexpr AdapterCase kAdapterCases[] = {
    {"gpt2", "gpt2"}, {"gpt2", "gpt2_other"}, {"llama", "llama"}, {"llama", "llama_other"}};

class Adapters : public testing::Test {
 protected:
  static void SetUpTestSuite() { init(); }
  static std::unique_ptr<PretrainedModel> model_of(const std::string& base) {
    return from_pretrained(adapter_golden("hf/" + base));
  }
};

TEST_F(Adapters, AreThoseOfPeft) {
  const NoGradGuard no_grad;
  for (const AdapterCase& one : kAdapterCases) {
    SCOPED_TRACE(one.name);
    const std::string folder = adapter_golden(std::string("adapters/") + one.name);
    const StateDict c = load(folder + "/case.safetensors");
    const ModelInputs in{.input_ids = c.at("input_ids")};
    const auto model = model_of(one.base);
    const Tensor plain = model->forward(in);
    const Adapter adapter = load_adapter(folder, *model);
    EXPECT_FALSE(allclose(plain, c.at("logits"), 0.01, 0.01)) << "it changes nothing";
    const std::vector<int64_t> prompt = c.at("input_ids").narrow(1, 0, 3).to_vector<int64_t>();
    const std::vector<int64_t> tokens = c.at("tokens").to_vector<int64_t>();
    const GenerateOptions options{.max_new_tokens = 9, .eos_token_id = {-1}};
    {
      const AdapterSet set(*model, {adapter});
      EXPECT_TRUE(equal(model->forward(in), plain)) << "nobody asked for it";
      const AdapterSet::Use use(set, 1);
      EXPECT_TRUE(allclose(model->forward(in), c.at("logits"), 1e-5, 1e-5));
      EXPECT_EQ(generate(*model, {prompt}, options)[0], tokens);
      EXPECT_EQ(generate(*model, {prompt, prompt}, options)[1], tokens) << "of all rows";
    }
    EXPECT_TRUE(equal(model->forward(in), plain)) << "it is gone";
    merge_adapter(*model, adapter);
    EXPECT_TRUE(allclose(model->forward(in), c.at("logits"), 1e-5, 1e-5));
    EXPECT_EQ(generate(*model, {prompt}, options)[0], tokens);
  }
}

// Codes are as good as numbers at run time; nothing can be added to them.
TEST_F(Adapters, OfModelsWithCodes) {
  const NoGradGuard no_grad;
  for (const std::string base : {"gpt2", "llama"}) {
    SCOPED_TRACE(base);
    const auto coded = model_of(base), numbers = model_of(base);
    const std::vector<CodedLayer> codes = coded_layers(*coded), plain = coded_layers(*numbers);
    ASSERT_FALSE(codes.empty());
    for (size_t i = 0; i < codes.size(); ++i) {
      const PackedCodes w = quant::round_weight(plain[i].weight(), {.bits = 8, .group = 8});
      codes[i].set_codes(w);
      plain[i].set_weight(codes[i].weight());
    }
    const Adapter adapter = load_adapter(adapter_golden("adapters/" + base), *coded);
    merge_adapter(*numbers, adapter);
    const ModelInputs in{.input_ids = tensor({3, 4, 5, 6}).reshape({1, 4})};
    const AdapterSet set(*coded, {adapter});
    const AdapterSet::Use use(set, 1);
    EXPECT_TRUE(allclose(coded->forward(in), numbers->forward(in), 1e-4, 1e-4));
    EXPECT_THROW(merge_adapter(*coded, adapter), Error);
  }
}

TEST_F(Adapters, EveryRowHasItsOwn) {
  const NoGradGuard no_grad;
  for (const std::string base : {"gpt2", "llama"}) {
    SCOPED_TRACE(base);
    const auto model = model_of(base);
    const std::string first = adapter_golden("adapters/" + base), second = first + "_other";
    const AdapterSet set(*model, {load_adapter(first, *model), load_adapter(second, *model)});
    EXPECT_EQ(set.count(), 2);
    const StateDict a = load(first + "/case.safetensors"), b = load(second + "/case.safetensors");
    const Tensor ids = a.at("input_ids");
    const Tensor plain = model->forward({.input_ids = ids});
    const AdapterSet::Use use(set, tensor(std::vector<int64_t>{2, 0, 1}));
    const Tensor y = model->forward({.input_ids = cat({ids, ids, ids}, 0)});
    EXPECT_TRUE(allclose(y.narrow(0, 0, 1), b.at("logits"), 1e-5, 1e-5));
    EXPECT_TRUE(allclose(y.narrow(0, 1, 1), plain, 1e-6, 1e-6));
    EXPECT_TRUE(allclose(y.narrow(0, 2, 1), a.at("logits"), 1e-5, 1e-5));
  }
}

TEST_F(Adapters, WhatIsNotPlainLoraIsRefusedByName) {
  const TempFolder t;
  const auto model = model_of("llama");
  const std::string from = adapter_golden("adapters/llama_other");
  const StateDict files = load(from + "/adapter_model.safetensors");
  const std::string config = read_file(from + "/adapter_config.json");
  const auto said = [&](const std::string& text, const StateDict& weights) {
    write_file(t / "adapter_config.json", text);
    save(weights, t / "adapter_model.safetensors");
    return thrown([&] { load_adapter(t.path().string(), *model); });
  };
  const auto with = [&](const std::string& before, const std::string& after) {
    std::string text = config;
    const size_t at = text.find(before);
    EXPECT_NE(at, text.npos) << before;
    return text.replace(at, before.size(), after);
  };
  EXPECT_EQ(said(config, files), "nothing was thrown");
  const struct {
    const char *before, *after, *says;
  } configs[] = {
      {"\"use_dora\": false", "\"use_dora\": true", "'use_dora'"},
      {"\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]", "'modules_to_save'"},
      {"\"bias\": \"none\"", "\"bias\": \"all\"", "change biases"},
      {"\"peft_type\": \"LORA\"", "\"peft_type\": \"IA3\"", "type 'IA3'"},
      {"\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa_niter_4\"", "own weights"},
      {"\"k_proj\": 3", "\"k_proj\": 2", "has rank 3, its config says 2"},
      {"\"up_proj\": 12", "\"up.*\": 12", "regular expressions"},
      {"\"up_proj\": 12", "\"up_proj\": 0", "above 0"},
      {"\"model.layers.0.mlp.down_proj\"", "\"w1\"", "names 'w1', which the files lack"},
  };
  for (const auto& c : configs) {
    const std::string text = said(with(c.before, c.after), files);
    EXPECT_TRUE(has(text, c.says)) << c.after << "\n" << text;
  }
  const std::string q = "base_model.model.model.layers.0.self_attn.q_proj.";
  const struct {
    std::string without, name;
    Shape shape;
    const char* says;
  } weights[] = {
      {q + "lora_B.weight", "", Shape(), "has lora_A alone"},
      {"", q + "lora_magnitude_vector", Shape(8),
       "'"
       "base_model.model.model.layers.0.self_attn"},
      {"", "base_model.model.model.embed_tokens.lora_A.weight", Shape(2, 8), "embed_tokens"},
      {"", q + "lora_A.weight", Shape(2, 7), "expects lora_A [2, 8]"},
      {"", q + "lora_A.weight", Shape(2), "expects a matrix"},
      {"", q + "base_layer.weight", Shape(8, 8), "another weight"},
  };
  for (const auto& c : weights) {
    StateDict changed;
    for (const auto& [name, value] : files)
      if (name != c.without) changed[name] = value;
    if (!c.name.empty()) changed[c.name] = ones(c.shape);
    const std::string text = said(config, changed);
    EXPECT_TRUE(has(text, c.says)) << c.name << "\n" << text;
  }
  EXPECT_TRUE(has(said(config, StateDict()), "holds no matrices"));
}

}  // namespace
}  // namespace tandem::models
