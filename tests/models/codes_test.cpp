// SPDX-License-Identifier: Apache-2.0
// Folders whose linear layers hold codes: GPTQ's and AWQ's formats give the model of the numbers
// that the codes stand for; scales between layers change nothing; hostile folders.
#include "tandem/models/codes.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tandem/init.h"
#include "tandem/io/safetensors.h"
#include "tandem/nn/fine_tune.h"
#include "tandem/ops/ops.h"
#include "tandem/quant/weights.h"
#include "tests/io/io_helper.h"
#include "tests/support/errors.h"

namespace tandem::models {
namespace {

class Codes : public testing::Test {
 protected:
  static void SetUpTestSuite() { init(); }
  void SetUp() override { manual_seed(8); }
};

constexpr int64_t kGroup = 16;

std::string text_of(const char* type, const char* codes) {
  return fmt::format(
      R"({{"model_type": "{}", "vocab_size": 40, "hidden_size": 32, "intermediate_size": 64,
"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
"max_position_embeddings": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64{}}})",
      type, codes);
}
Tensor logits(PretrainedModel& m) {
  const NoGradGuard no_grad;
  return m.forward({.input_ids = arange(0, 12).reshape({2, 6})});
}
double difference(const Tensor& a, const Tensor& b) { return max(abs(a - b)).item<double>(); }

// The words of AWQ's format for codes [k, n].
Tensor awq_words(const Tensor& codes) {
  constexpr int kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
  const int64_t k = codes.size(0), n = codes.size(1);
  const std::vector<int64_t> c = codes.to_vector<int64_t>();
  std::vector<int32_t> words;
  for (int64_t r = 0; r < k; ++r)
    for (int64_t w = 0; w < n / 8; ++w) {
      uint32_t word = 0;
      for (int i = 0; i < 8; ++i)
        word |= static_cast<uint32_t>(c[static_cast<size_t>(r * n + w * 8 + kOrder[i])]) << (4 * i);
      words.push_back(static_cast<int32_t>(word));
    }
  return tensor(words, Shape(k, n / 8));
}

/// A model with codes, and the folder that a quantiser would write of it.
struct CodedFolder {
  CodedFolder(const char* type, bool awq, bool symmetric, int64_t bits = 4)
      : model(from_config(ModelConfig::from_json(text_of(type, "")))) {
    model->module().eval();
    for (const auto& [name, p] : model->module().named_parameters())
      if (p.dim() > 1) p.assign_(randn(p.shape()) * 0.2);
    const std::vector<CodedLayer> layers = coded_layers(*model);
    StateDict files = model->module().state_dict();
    for (const CodedLayer& l : layers) {
      const int64_t k = l.weight().size(1);
      const PackedCodes q =
          quant::round_weight(l.weight(), {.bits = bits, .group = kGroup, .symmetric = symmetric});
      files.erase(l.name + ".weight");
      StateDict own = gptq_tensors(q, k);
      if (awq) {
        own.erase("g_idx");
        own["qweight"] = awq_words(unpack_codes(q.codes, 4).reshape({-1, k}).t());
        own["qzeros"] =
            awq_words(q.zero.defined() ? unpack_codes(q.zero, 4).narrow(1, 0, q.codes.size(1)).t()
                                       : full({q.codes.size(1), q.codes.size(0)}, 8, DType::u8));
      }
      for (const auto& [part, t] : own) files[l.name + "." + part] = t;
      l.set_weight(dequantize_codes(q));
    }
    save(files, folder / "model.safetensors");
    config = fmt::format(
        R"(, "quantization_config": {{"quant_method": "{}", "bits": {}, "group_size": {}}})",
        awq ? "awq" : "gptq", bits, kGroup);
    write_file(folder / "config.json", text_of(type, config.c_str()));
  }
  TempFolder folder;
  std::unique_ptr<PretrainedModel> model;  ///< with the numbers
  std::string config;
};

TEST_F(Codes, FoldersOfBothFormats) {
  for (const char* type : {"llama", "qwen3", "gpt2", "phi3"})
    for (const bool awq : {false, true})
      for (const bool symmetric : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", type, awq, symmetric));
        const CodedFolder f(type, awq, symmetric);
        const auto read = from_pretrained(f.folder.path());
        EXPECT_TRUE(read->unexpected.empty());
        for (const CodedLayer& l : coded_layers(*read)) EXPECT_TRUE(l.has_codes()) << l.name;
        const Tensor want = logits(*f.model);
        EXPECT_LT(difference(logits(*read), want), 1e-4 * max(abs(want)).item<double>());
      }
  for (const int64_t bits : {2, 8}) {
    const CodedFolder f("llama", false, true, bits);
    const Tensor want = logits(*f.model);
    EXPECT_LT(difference(logits(*from_pretrained(f.folder.path())), want),
              1e-4 * max(abs(want)).item<double>());
  }
}

// The config of a folder says how what layers read is rounded; a caller may say otherwise.
TEST_F(Codes, AccuracyLevelsComeWithTheFolder) {
  const CodedFolder f("llama", false, true);
  const Tensor floats = logits(*from_pretrained(f.folder.path()));
  std::string config = f.config;
  config.insert(config.rfind('}'), R"(, "accuracy_level": 4)");
  write_file(f.folder / "config.json", text_of("llama", config.c_str()));
  const auto read = from_pretrained(f.folder.path());
  for (const CodedLayer& l : coded_layers(*read)) EXPECT_EQ(l.codes().accuracy_level, 4) << l.name;
  const Tensor rounded = logits(*read);
  EXPECT_GT(difference(rounded, floats), 0);
  EXPECT_LT(difference(rounded, floats), 0.05 * max(abs(floats)).item<double>());
  set_accuracy_level(*read, 0);
  EXPECT_EQ(difference(logits(*read), floats), 0);
  EXPECT_NE(error_of([&] { set_accuracy_level(*read, 5); }).find("accuracy level is 5"),
            std::string::npos);
  EXPECT_NE(error_of([&] { set_accuracy_level(*f.model, 4); }).find("tandem quantize"),
            std::string::npos);
}

TEST_F(Codes, TextsThatAreDecodedGiveTheSame) {
  const CodedFolder f("llama", false, false);
  const auto read = from_pretrained(f.folder.path());
  const NoGradGuard no_grad;
  const Tensor ids = arange(0, 6).reshape({1, 6}), all = read->forward({.input_ids = ids});
  DecodeState state = read->start_decoding(1, 16);
  Tensor last = read->start({.input_ids = ids.narrow(1, 0, 4)}, state);
  for (int64_t i = 4; i < 6; ++i) last = read->decode(ids.narrow(1, i, 1), state);
  EXPECT_LT(difference(last, all.select(1, 5)), 1e-4);
}

TEST_F(Codes, ScalesBetweenLayersChangeNothing) {
  for (const char* type : {"llama", "gemma2", "gpt2", "phi3"}) {
    const auto m = from_config(ModelConfig::from_json(text_of(type, "")));
    m->module().eval();
    const std::vector<CodedLayer> layers = coded_layers(*m);
    const std::vector<ScaledInputs> scaled = scaled_inputs(*m, layers);
    EXPECT_GE(scaled.size(), 4u) << type;
    const Tensor want = logits(*m);
    for (const ScaledInputs& s : scaled)
      scale_inputs(*m, layers, s, rand({layers[s.readers[0]].weight().size(1)}) + 0.5);
    EXPECT_LT(difference(logits(*m), want), 1e-4 * max(abs(want)).item<double>()) << type;
  }
}

TEST_F(Codes, LoraFindsLayersOfNumbersAlone) {
  const auto m = from_config(ModelConfig::from_json(text_of("llama", "")));
  EXPECT_EQ(nn::apply_lora(m->module(), {.on = {"*.q_proj"}}).size(), 2u);
  const CodedFolder f("llama", false, true);
  const auto read = from_pretrained(f.folder.path());
  const std::string none = error_of([&] { nn::apply_lora(read->module(), {.on = {"*.q_proj"}}); });
  EXPECT_NE(none.find("matches no Linear layer"), std::string::npos) << none;
}

TEST_F(Codes, HostileFolders) {
  const CodedFolder f("llama", false, true);
  const std::string config = f.folder / "config.json", weights = f.folder / "model.safetensors";
  const auto refused = [&](const std::string& codes) {
    write_file(config, text_of("llama", codes.c_str()));
    return error_of([&] { from_pretrained(f.folder.path()); });
  };
  const auto expect = [](const std::string& got, const char* text) {
    EXPECT_NE(got.find(text), std::string::npos) << got;
  };
  const char* kCodes = R"(, "quantization_config": {"quant_method": )";
  expect(refused(std::string(kCodes) + R"("bitsandbytes"})"), "method 'bitsandbytes'");
  expect(refused(std::string(kCodes) + R"("gptq", "bits": 3})"), "codes of 3 bits");
  expect(refused(std::string(kCodes) + R"("gptq", "checkpoint_format": "marlin"})"), "'marlin'");
  expect(refused(std::string(kCodes) + R"("gptq", "group_size": 8})"), "do not fit each other");
  expect(refused(std::string(kCodes) + R"("gptq", "group_size": 16777216})"),
         "do not fit each other");
  const StateDict good = load(weights);
  const std::string layer = "model.layers.1.self_attn.q_proj";
  const auto with = [&](const char* part, const Tensor& t) {
    StateDict bad;
    for (const auto& [name, v] : good) bad[name] = v.contiguous();
    if (t.defined())
      bad[layer + part] = t;
    else
      bad.erase(layer + part);
    const TempFolder other;
    save(bad, other / "model.safetensors");
    write_file(other / "config.json", text_of("llama", f.config.c_str()));
    return error_of([&] { from_pretrained(other.path()); });
  };
  expect(with(".scales", {}), "scales is not in the files");
  expect(with(".qweight", ones({4, 32})), "expected int32");
  expect(with(".qzeros", ones({2, 3}, DType::i32)), "do not fit each other");
  expect(with(".g_idx", arange(0, 32).flip({0}).to(DType::i32)), "another order");
  StateDict wide = gptq_tensors(quant::round_weight(randn({64, 32}), {.group = kGroup}), 32);
  expect(with(".qweight", wide.at("qweight")), "do not fit each other");
}

}  // namespace
}  // namespace tandem::models
