// SPDX-License-Identifier: Apache-2.0
// Models of Hugging Face folders against tests/golden/hf, made by the library `transformers`
// (tests/peers/transformers --golden): logits, and greedy text of the decoders. Then sampling, and
// hostile folders.
#include "tandem/models/pretrained.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "tandem/init.h"
#include "tandem/io/safetensors.h"
#include "tandem/models/text/generate.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

std::string golden_folder() {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return std::string(root ? root : ".") + "/tests/golden/hf/";
}
class Pretrained : public testing::Test {
 protected:
  static void SetUpTestSuite() { init(); }
};

// Largest difference of rows that are not padding, relative to values above 1.
double difference(const Tensor& want, const Tensor& got, const Tensor* mask) {
  const auto a = want.to(DType::f32).to_vector<float>(), b = got.to_vector<float>();
  EXPECT_EQ(a.size(), b.size());
  std::vector<int64_t> seen;
  if (mask) seen = mask->to_vector<int64_t>();
  const size_t row = want.dim() == 3 ? static_cast<size_t>(want.size(-1)) : 1;
  double worst = 0;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (!seen.empty() && !seen[i / row]) continue;
    worst = std::max(worst, std::abs(double(a[i]) - b[i]) / std::max(1.0, std::abs(double(a[i]))));
  }
  return worst;
}

// Which tokens of an output [n, l] or [n, l, width] are compared: not those of padding.
const Tensor* seen_of(const StateDict& c, const Tensor& y) {
  const Tensor* mask = c.find("attention_mask");
  const bool rows = mask && mask->dim() == 2 && y.dim() >= 2 && y.size(1) == mask->size(1);
  return rows && !c.contains("decoder_input_ids") ? mask : nullptr;
}

TEST_F(Pretrained, OutputsOfEveryFamily) {
  int families = 0;
  for (const auto& folder : std::filesystem::directory_iterator(golden_folder())) {
    SCOPED_TRACE(folder.path().filename());
    const StateDict c = load(folder.path() / "case.safetensors");
    const auto model = from_pretrained(folder.path());
    EXPECT_TRUE(model->unexpected.empty()) << model->unexpected[0];
    EXPECT_TRUE(model->unknown_keys.empty()) << model->unknown_keys[0];
    ModelInputs in;
    for (const ModelPort& p : model->inputs()) {
      EXPECT_TRUE(p.optional || c.contains(p.name)) << p.name;
      if (c.contains(p.name)) in.at(p.name) = c.at(p.name);
    }
    const NoGradGuard no_grad;
    const std::vector<Tensor> y = model->run(in);
    const std::vector<std::string> names = model->output_names();
    ASSERT_EQ(y.size(), names.size());
    for (size_t i = 0; i < y.size(); ++i)
      EXPECT_LT(difference(c.at(names[i]), y[i].to(DType::f32), seen_of(c, y[i])), 1e-4)
          << names[i];
    ++families;
  }
  EXPECT_EQ(families, 28);
}

std::vector<std::vector<int64_t>> prompts_of(const StateDict& c) {
  std::vector<std::vector<int64_t>> out;
  const Tensor ids = c.at("input_ids"), mask = c.at("attention_mask");
  for (int64_t r = 0; r < ids.size(0); ++r) {
    const auto row = ids.select(0, r).to_vector<int64_t>();
    const auto seen = mask.select(0, r).to_vector<int64_t>();
    out.emplace_back();
    for (size_t i = 0; i < row.size(); ++i)
      if (seen[i]) out.back().push_back(row[i]);
  }
  return out;
}

TEST_F(Pretrained, GreedyTextOfTheDecoders) {
  for (const auto& folder : std::filesystem::directory_iterator(golden_folder())) {
    SCOPED_TRACE(folder.path().filename());
    const StateDict c = load(folder.path() / "case.safetensors");
    if (!c.contains("generated")) continue;
    const auto model = from_pretrained(folder.path());
    const Tensor want = c.at("generated");
    for (const bool compiled : {false, true}) {
      GenerateOptions o{.max_new_tokens = 8, .min_new_tokens = 8, .compiled = compiled};
      const Tensor* sound = c.find("input_features");
      if (sound) o.min_new_tokens = 0;
      const auto rows =
          sound ? generate_from(
                      *model,
                      {.decoder_input_ids = c.at("decoder_input_ids"), .input_features = *sound}, o)
                : generate(*model, prompts_of(c), o);
      ASSERT_EQ(static_cast<int64_t>(rows.size()), want.size(0));
      for (size_t r = 0; r < rows.size(); ++r) {
        auto expected = want.select(0, static_cast<int64_t>(r)).to_vector<int64_t>();
        expected.resize(std::min(expected.size(), rows[r].size()));
        EXPECT_EQ(rows[r], expected);
        EXPECT_TRUE(rows[r].size() == 8 || sound);
      }
    }
  }
}

// An encoder reads the prompt: each token is the likeliest according to the whole model's logits
// after the previous ones.
TEST_F(Pretrained, GreedyTextOfAnEncoderAndDecoder) {
  const auto model = from_pretrained(golden_folder() + "t5");
  EXPECT_TRUE(model->is_encoder_decoder());
  const std::vector<std::vector<int64_t>> prompts = {{3, 4, 5, 6, 7}, {6, 2}, {9}};
  const int64_t n = 15, begin = model->config.integer("decoder_start_token_id", 0, 0);
  for (const bool compiled : {false, true}) {
    const auto rows =
        generate(*model, prompts, {.max_new_tokens = n, .min_new_tokens = n, .compiled = compiled});
    const auto eos = model->config.tokens("eos_token_id");
    for (size_t r = 0; r < prompts.size(); ++r) {
      ASSERT_EQ(rows[r].size(), static_cast<size_t>(n));
      std::vector<int64_t> own = {begin};
      for (const int64_t token : rows[r]) {
        NoGradGuard no_grad;
        const Tensor y = model->forward({.input_ids = tensor(prompts[r]).unsqueeze(0),
                                         .decoder_input_ids = tensor(own).unsqueeze(0)});
        auto logits = y.select(1, y.size(1) - 1).to_vector<float>();
        for (const int64_t e : eos) logits[static_cast<size_t>(e)] = -INFINITY;
        const float most = *std::max_element(logits.begin(), logits.end());
        EXPECT_NEAR(logits[static_cast<size_t>(token)], most, 1e-4)
            << "row " << r << ", behind " << own.size();
        own.push_back(token);
      }
    }
  }
}

TEST_F(Pretrained, SamplingIsAFunctionOfTheSeed) {
  const auto model = from_pretrained(golden_folder() + "llama");
  const std::vector<std::vector<int64_t>> prompts = {{3, 4, 5}, {6}};
  GenerateOptions o{.max_new_tokens = 9, .do_sample = true, .temperature = 1.5, .seed = 11};
  const auto first = generate(*model, prompts, o);
  EXPECT_EQ(generate(*model, prompts, o), first);
  o.compiled = false;
  EXPECT_EQ(generate(*model, prompts, o), first);
  o.seed = 12;
  EXPECT_NE(generate(*model, prompts, o), first);
}

TEST_F(Pretrained, StreamsAndStops) {
  const auto model = from_pretrained(golden_folder() + "gpt2");
  std::vector<std::pair<int64_t, int64_t>> seen;
  GenerateOptions o{.max_new_tokens = 6, .min_new_tokens = 6};
  o.streamer = [&](int64_t row, int64_t token) {
    seen.emplace_back(row, token);
    return !(row == 1 && seen.size() >= 4);
  };
  const auto rows = generate(*model, {{2, 3}, {4, 5, 6}}, o);
  EXPECT_EQ(rows[0].size(), 6U);
  EXPECT_EQ(rows[1].size(), 2U);
  EXPECT_EQ(seen.size(), 8U);
  const int64_t third = rows[0][2];
  const auto ended = generate(*model, {{2, 3}}, {.max_new_tokens = 6, .eos_token_id = {third}});
  EXPECT_EQ(ended[0].back(), third);
  EXPECT_LE(ended[0].size(), 3U);
}

TEST_F(Pretrained, WhatTheNextTokenIs) {
  const std::vector<float> logits = {0, 3, 2, -1};
  const auto next = [&](GenerateOptions o, double draw, int64_t fresh = 9,
                        std::vector<int64_t> tokens = {}) {
    std::vector<float> copy = logits;
    return next_token(copy, tokens, fresh, {1}, o, draw);
  };
  EXPECT_EQ(next({}, 0), 1);
  EXPECT_EQ(next({.min_new_tokens = 3}, 0, 2), 2);
  EXPECT_EQ(next({.repetition_penalty = 2}, 0, 9, {1}), 2);
  EXPECT_EQ(next({.do_sample = true, .top_k = 1}, 0.99), 1);
  EXPECT_EQ(next({.do_sample = true, .top_k = 2}, 0.99), 2);
  EXPECT_EQ(next({.do_sample = true, .top_p = 0.5}, 0.99), 1);
  EXPECT_EQ(next({.do_sample = true, .top_p = 0.9}, 0.99), 2);
  EXPECT_EQ(next({.do_sample = true, .top_k = 0}, 0.999), 3);
  EXPECT_EQ(next({.do_sample = true, .temperature = 100}, 0.99), 3);
  EXPECT_EQ(next({.do_sample = true, .temperature = 0.01}, 0.99), 1);
}

TEST_F(Pretrained, WrongUseIsNamed) {
  const auto model = from_pretrained(golden_folder() + "gpt2");
  const auto bert = from_pretrained(golden_folder() + "bert");
  EXPECT_THROW(generate(*model, {{}}, {}), Error);
  EXPECT_THROW(generate(*model, {{1}}, {.max_new_tokens = 1000}), Error);
  EXPECT_THROW(generate(*model, {{1}}, {.temperature = 0}), Error);
  EXPECT_THROW(generate(*bert, {{1}}, {}), Error);
  EXPECT_THROW(model->forward({}), Error);
}

// ---- hostile folders
class Folder {
 public:
  explicit Folder(const char* from) {
    std::string text = (std::filesystem::temp_directory_path() / "tandem-hf-XXXXXX").string();
    path = mkdtemp(text.data());
    for (const char* f : {"config.json", "model.safetensors"})
      std::filesystem::copy_file(golden_folder() + from + "/" + f, path + "/" + f);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  // Replace the first `from` in config.json.
  void change(const std::string& from, const std::string& to) {
    std::string s = read_file(path + "/config.json");
    const size_t at = s.find(from);
    ASSERT_NE(at, s.npos) << from;
    write_file(path + "/config.json", s.replace(at, from.size(), to));
  }
  std::string path;
};

struct Change {
  const char *family, *from, *to, *says;
};

constexpr Change kChanges[] = {
    {"bert", "\"hidden_size\": 8", "\"hidden_size\": 0", "lie in"},
    {"bert", "\"hidden_size\": 8", "\"hidden_size\": -8", "lie in"},
    {"bert", "\"hidden_size\": 8", "\"hidden_size\": 9", "multiple"},
    {"bert", "\"hidden_size\": 8", "\"hidden_size\": 65536", "numbers"},
    {"bert", "\"hidden_size\": 8", "\"hidden_size\": 1e30", "integer"},
    {"bert", "\"hidden_size\": 8", "\"hidden_size\": \"8\"", "integer"},
    {"bert", "\"hidden_size\": 8", "\"hidden_size\": 4", "model"},
    {"bert", "\"vocab_size\": 32", "\"vocab_size\": 16000000", "numbers"},
    {"bert", "\"vocab_size\": 32", "\"vocab_size\": 33", "model"},
    {"bert", "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 3", "not in the files"},
    {"bert", "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 100000", "numbers"},
    {"bert", "\"num_attention_heads\": 2", "\"num_attention_heads\": 3", "multiple"},
    {"bert", "\"layer_norm_eps\": 1e-12", "\"layer_norm_eps\": []", "number"},
    {"bert", "\"hidden_act\": \"gelu\"", "\"hidden_act\": \"explode\"", "activation"},
    {"bert", "\"hidden_act\": \"gelu\"", "\"hidden_act\": 5", "string"},
    {"bert", "\"model_type\": \"bert\"", "\"model_type\": 5", "string"},
    {"bert", "\"model_type\": \"bert\"", "\"model_kind\": \"bert\"", "no 'model_type'"},
    {"bert", "\"architectures\": [", "\"architectures\": [[],", "names"},
    {"bert", "{", "[{", ""},
    {"bert", "}", "", ""},
    {"gpt2", "\"n_head\": 2", "\"n_head\": 3", "multiple"},
    {"gpt2", "\"n_inner\": 12", "\"n_inner\": 900000", ""},
    {"gpt2", "\"add_cross_attention\": false", "\"add_cross_attention\": true", "supported"},
    {"gpt2", "\"n_positions\": 20", "\"n_positions\": 21", "model"},
    {"gpt2", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", "not in the files"},
    {"gpt2", "\"scale_attn_weights\": true", "\"scale_attn_weights\": 1", "true or false"},
    {"llama", "\"num_key_value_heads\": 1", "\"num_key_value_heads\": 3", "multiple"},
    {"llama", "\"head_dim\": 4", "\"head_dim\": 5", "odd"},
    {"llama", "\"rope_type\": \"llama3\"", "\"rope_type\": \"spiral\"", "not supported"},
    {"llama", "\"rope_theta\": 10000.0", "\"rope_theta\": 0", "above 0"},
    {"llama", "\"factor\": 8.0", "\"factor\": 0.5", "factor"},
    {"llama", "\"factor\": 8.0", "\"factor\": \"8\"", "number"},
    {"llama", "\"low_freq_factor\": 1.0", "\"low_freq_factor\": 9.0", "contradict"},
    {"vit", "\"patch_size\": 4", "\"patch_size\": 40", "above"},
    {"vit", "\"patch_size\": 4", "\"patch_size\": [4, 3]", "equal"},
    {"vit", "\"patch_size\": 4", "\"patch_size\": []", "empty"},
    {"vit", "\"image_size\": 12", "\"image_size\": 16", "model"},
    {"t5", "\"feed_forward_proj\": \"gated-gelu\"", "\"feed_forward_proj\": \"gated-x\"",
     "activation"},
    {"t5", "\"relative_attention_num_buckets\": 8", "\"relative_attention_num_buckets\": 1",
     "lie in"},
    {"t5", "\"relative_attention_max_distance\": 12", "\"relative_attention_max_distance\": 2",
     "too small"},
    {"t5", "\"d_kv\": 4", "\"d_kv\": 2", "model"},
    {"bert", "\"is_decoder\": false", "\"is_decoder\": true", "'is_decoder'"},
    {"bert", "\"vocab_size\": 32", "\"position_embedding_type\": \"relative_key\"",
     "'position_embedding_type'"},
    {"bert", "\"vocab_size\": 32", "\"quantization_config\": {}, \"vocab_size\": 32", "quantised"},
    {"gemma2", "\"use_bidirectional_attention\": null", "\"use_bidirectional_attention\": true",
     "'use_bidirectional_attention'"},
    {"gemma2", "\"query_pre_attn_scalar\": 8", "\"query_pre_attn_scalar\": 0", "above 0"},
    {"gemma2", "\"full_attention\"", "\"chunked_attention\"", "chunked_attention"},
    {"qwen2", "\"sliding_window\": 5", "\"sliding_window\": -5", "negative"},
    {"mixtral", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 9", "lie in"},
    {"mixtral", "\"num_local_experts\": 3", "\"num_local_experts\": 4", "model"},
    {"dinov2", "\"mlp_ratio\": 2", "\"mlp_ratio\": 1e12", "mlp_ratio"},
    {"vit_mae", "\"mask_ratio\": 0.75", "\"mask_ratio\": 1.5", "mask_ratio"},
    {"swin", "\"num_heads\": [", "\"num_heads\": [3,", "entries"},
    {"convnext", "\"depths\": [", "\"depths\": [1000000,", "integers in"},
    {"detr", "\"position_embedding_type\": \"sine\"", "\"position_embedding_type\": \"learned\"",
     "'position_embedding_type'"},
    {"detr", "\"d_model\": 8", "\"d_model\": 10", "multiple"},
    {"sam", "\"window_size\": 3", "\"window_size\": 4", "model"},
    {"clip", "\"text_config\": {", "\"text_config\": [{", ""},
    {"clip", "\"hidden_size\": 8", "\"hidden_size\": 60000", "goes over the limit"},
    {"bart", "\"scale_embedding\": false", "\"normalize_before\": true", "'normalize_before'"},
    {"whisper", "\"d_model\": 8", "\"d_model\": 9", "multiple"},
};

TEST_F(Pretrained, HostileConfigsAreRefused) {
  for (const Change& c : kChanges) {
    SCOPED_TRACE(std::string(c.family) + ": " + c.to);
    Folder f(c.family);
    f.change(c.from, c.to);
    try {
      from_pretrained(f.path);
      ADD_FAILURE() << "was taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Format) << e.what();
      EXPECT_NE(std::string(e.what()).find(c.says), std::string::npos) << e.what();
    }
  }
}

// What a folder holds and the model does not use.
TEST_F(Pretrained, UnusedThingsAreNamed) {
  Folder f("bert");
  f.change("\"vocab_size\": 32", "\"scores_scale\": 2, \"vocab_size\": 32");
  f.change("BertForMaskedLM", "BertForQuestionAnswering");
  try {
    from_pretrained(f.path);
    ADD_FAILURE() << "was taken";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("qa_outputs.weight"), std::string::npos) << e.what();
  }
  f.change("BertForQuestionAnswering", "BertModel");
  const auto model = from_pretrained(f.path);
  EXPECT_EQ(model->unknown_keys, std::vector<std::string>{"scores_scale"});
  EXPECT_EQ(model->output_names(), std::vector<std::string>{"last_hidden_state"});
  EXPECT_EQ(model->unexpected.size(), 5U);
  for (const std::string& name : model->unexpected) EXPECT_EQ(name.rfind("cls.", 0), 0U) << name;
}

TEST_F(Pretrained, ClassesAreRefusedByName) {
  struct Row {
    const char *family, *from, *to, *says;
  };
  const Row rows[] = {
      {"bert", "BertForMaskedLM", "BertForNextSentencePrediction", "BertForTokenClassification"},
      {"gpt2", "GPT2LMHeadModel", "GPT2DoubleHeadsModel", "GPT2LMHeadModel"},
      {"llama", "LlamaForCausalLM", "LlamaForSequenceClassification", "LlamaForCausalLM"},
      {"vit", "ViTForImageClassification", "ViTForMaskedImageModeling", "ViTModel"},
      {"t5", "T5ForConditionalGeneration", "T5ForTokenClassification", "T5EncoderModel"},
      {"bert", "\"model_type\": \"bert\"", "\"model_type\": \"bart-like\"", "mixtral"}};
  for (const Row& r : rows) {
    SCOPED_TRACE(r.to);
    Folder f(r.family);
    f.change(r.from, r.to);
    try {
      from_pretrained(f.path);
      ADD_FAILURE() << "was taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Unsupported) << e.what();
      EXPECT_NE(std::string(e.what()).find(r.says), std::string::npos) << e.what();
    }
  }
}

TEST_F(Pretrained, HostileShardsAreRefused) {
  const char* maps[] = {"[]",
                        "{}",
                        R"({"weight_map":[]})",
                        R"({"weight_map":{"x":5}})",
                        R"({"weight_map":{"x":"../bert/model.safetensors"}})",
                        R"({"weight_map":{"x":"/etc/passwd"}})",
                        R"({"weight_map":{"x":""}})",
                        R"({"weight_map":{"x":".hidden"}})",
                        R"({"weight_map":{"x":"a\\b"}})",
                        "{"};
  for (const char* map : maps) {
    Folder f("bert");
    std::filesystem::remove(f.path + "/model.safetensors");
    write_file(f.path + "/model.safetensors.index.json", map);
    try {
      from_pretrained(f.path);
      ADD_FAILURE() << map;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Format) << map << ": " << e.what();
    }
  }
}

}  // namespace
}  // namespace tandem::models
